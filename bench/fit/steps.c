/* Fits to whole steps: sustained_clock of a GPU from the rows that may be used, and from each
 * source alone. */
#include "fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The clock of one GPU type; other topologies stay as they are. */
struct clock {
	const char *gpu;
	double value;
};

static void set_clock(struct topology *topology, const void *adjusting)
{
	topology->calibration.sustained_clock = *(const double *)adjusting;
}

static int step_errors(const struct step_fit *fit)
{
	int n = 0;

	for (int i = 0; i < fit->n; i++) {
		struct arena scratch = {0};

		row_predict(fit->catalogue, fit->rows[i], fit->keep, &scratch);
		if (row_has_time(fit->rows[i]))
			fit->errors[n++] = fabs(row_time_error(fit->rows[i]));
		arena_finish(&scratch);
	}
	return n;
}

static double at_clock(double x, void *context)
{
	struct step_fit *fit = context;
	double sum = 0;
	int n;

	fit->catalogue->adjust = set_clock;
	fit->catalogue->adjusting = &x;
	n = step_errors(fit);
	fit->catalogue->adjust = NULL;
	for (int i = 0; i < n; i++)
		sum += fit->errors[i];
	return n > 0 ? sum / n : 0;
}

double fit_clock(struct step_fit *fit)
{
	return search_least(at_clock, fit, 0.5, 1);
}

bool row_shows_the_clock(const struct row *row)
{
	return row->status == STATUS_OK && row->measured_tokens > 0 && row->gpus <= 8 &&
	       row->micro_batch * row->seq_len >= 8192;
}

static void collect(
	struct row_list *rows, const char *gpu, const char *source, int part, struct step_fit *fit)
{
	fit->n = 0;
	for (int i = 0; i < rows->n; i++) {
		struct row *row = &rows->of[i];

		if (strcmp(row->gpu, gpu) == 0 && row_shows_the_clock(row) &&
			(source == NULL || strcmp(row->source, source) == 0) &&
			(part == PART_COUNT || (int)row->part == part))
			fit->rows[fit->n++] = row;
	}
}

static void print_fit(struct step_fit *fit, const char *gpu, const char *what)
{
	double clock, error;

	if (fit->n == 0)
		return;
	clock = fit_clock(fit);
	error = at_clock(clock, fit);
	printf("| %s | %s | %d | %.3f | %.1f |\n", gpu, what, fit->n, clock, 100 * error);
}

static bool is_first(const struct row_list *rows, int at, bool with_source)
{
	for (int i = 0; i < at; i++)
		if (strcmp(rows->of[i].gpu, rows->of[at].gpu) == 0 &&
			(!with_source || strcmp(rows->of[i].source, rows->of[at].source) == 0))
			return false;
	return true;
}

bool fit_steps(struct catalogue *catalogue, struct row_list *rows, struct arena *arena)
{
	struct step_fit fit = {.catalogue = catalogue,
		.rows = ARENA_ARRAY(arena, struct row *, rows->n),
		.keep = arena,
		.errors = ARENA_ARRAY(arena, double, rows->n)};

	printf("\n## Whole steps on one node\n\nsustained_clock with the least mean error: of the "
	       "calibration part (what the catalogue\nmay hold), and of each source by itself "
	       "(what "
	       "it would say).\n\n| GPU | rows | n | sustained_clock | mean error %% "
	       "|\n|---|---|---:|---:|---:|\n");
	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];

		if (is_first(rows, i, false)) {
			collect(rows, row->gpu, NULL, PART_CALIBRATION, &fit);
			print_fit(&fit, row->gpu, "calibration part");
		}
		if (is_first(rows, i, true)) {
			collect(rows, row->gpu, row->source, PART_COUNT, &fit);
			print_fit(&fit, row->gpu, row->source);
		}
	}
	return true;
}
