/* Memory: peaks that sources print, and whether a run that fitted is predicted to fit and one that
 * did not is not. */
#include "accuracy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_peaks(const struct row_list *rows, struct arena *arena)
{
	struct sample all = {0}, allocated = {0};

	printf("\n| row | what | metric | measured GiB | predicted error %% | peak at |\n"
	       "|---|---|---|---:|---:|---|\n");
	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		if (!row_has_peak(row))
			continue;
		double error = row_peak_error(row);
		sample_add(arena, &all, error);
		if (strcmp(row->metric, "allocated") == 0 || strcmp(row->metric, "active") == 0)
			sample_add(arena, &allocated, error);
		printf("| %s | %s %s %s micro-batch %lld | %s | %.2f | %+.1f | %s |\n", row->name,
			row->family, row_cell(row, "runtime"), row_cell(row, "strategy"),
			(long long)row->micro_batch, row->metric, row->measured_peak, 100 * error,
			row->prediction.peak_at);
	}
	struct summary s = sample_summary(&all), a = sample_summary(&allocated);
	printf("\nn %d: median %.1f %%, mean %.1f %%, p90 %.1f %%, bias %+.1f %%; "
	       "of them allocated or active, n %d: median %.1f %%, p90 %.1f %%\n",
		s.n, 100 * s.median, 100 * s.mean, 100 * s.p90, 100 * s.bias, a.n, 100 * a.median,
		100 * a.p90);
}

/* Is the row of the same source, metric and part? */
static bool in_set(const struct row *row, const struct row *first)
{
	return row_has_peak(row) && row->part == first->part &&
	       strcmp(row->source, first->source) == 0 && strcmp(row->metric, first->metric) == 0;
}

static void print_set(const struct row_list *rows, int first, struct arena *arena)
{
	const struct row *row = &rows->of[first];
	struct sample sample = {0};

	for (int i = 0; i < rows->n; i++) {
		if (!in_set(&rows->of[i], row))
			continue;
		if (i < first)
			return; /* printed with that row */
		sample_add(arena, &sample, row_peak_error(&rows->of[i]));
	}
	struct summary s = sample_summary(&sample);
	printf("| %s, %s | %s | %d | %.1f | %.1f | %+.1f |\n", row->source, part_names[row->part],
		row->metric, s.n, 100 * s.median, 100 * s.p90, 100 * s.bias);
}

static void print_sets(const struct row_list *rows, struct arena *arena)
{
	printf("\n| source and part | metric | n | median %% | p90 %% | bias %% |\n"
	       "|---|---|---:|---:|---:|---:|\n");
	for (int i = 0; i < rows->n; i++)
		if (row_has_peak(&rows->of[i]))
			print_set(rows, i, arena);
}

/* Rows that ran must fit, rows that ran out of memory must not. */
static void print_fits(const struct row_list *rows)
{
	int ran = 0, ran_tight = 0, ran_not = 0, oom = 0, oom_fits = 0;

	printf("\n### Fits\n\n");
	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		enum fits fits = row->prediction.fits;
		if (row->error != NULL)
			continue;
		if (row->status == STATUS_OOM) {
			oom++;
			oom_fits += fits == FITS_YES;
		}
		if (row->status == STATUS_OK) {
			ran++;
			ran_tight += fits == FITS_TIGHT;
			ran_not += fits == FITS_NO;
		}
		if ((row->status == STATUS_OOM && fits == FITS_YES) ||
			(row->status == STATUS_OK && fits == FITS_NO))
			printf("- %s %s %s micro-batch %lld seq %lld: %s, predicted %s with %.1f "
			       "of %.1f GiB\n",
				row->name, row->family, row->topology, (long long)row->micro_batch,
				(long long)row->seq_len,
				row->status == STATUS_OOM ? "ran out of memory" : "ran",
				fits_names[fits],
				(double)row->prediction.peak_memory_bytes / 0x1p30,
				(double)row->prediction.memory_limit_bytes / 0x1p30);
	}
	printf("\nRan: %d; false out-of-memory: %d; called tight: %d. Ran out of memory: %d; "
	       "false fits: %d.\n",
		ran, ran_not, ran_tight, oom, oom_fits);
}

static bool is_largest(const struct row_list *rows, const struct row *row)
{
	for (int i = 0; i < rows->n; i++) {
		const struct row *other = &rows->of[i];
		if (other->error == NULL && other->status == STATUS_OK &&
			strcmp(other->family, row->family) == 0 &&
			strcmp(other->gpu, row->gpu) == 0 &&
			strcmp(other->source, row->source) == 0 &&
			(other->micro_batch > row->micro_batch ||
				(other->micro_batch == row->micro_batch && other < row)))
			return false;
	}
	return row->error == NULL && row->status == STATUS_OK;
}

static bool predict_at(const struct catalogue *catalogue, const struct row *row,
	int64_t micro_batch, struct arena *scratch, struct prediction *prediction)
{
	const char *value = arena_printf(scratch, "%lld", (long long)micro_batch);
	return row_predict_with(catalogue, row, "micro_batch", value, scratch, prediction);
}

/* Doubles the largest micro-batch that was run: activations grow with it, states do not. */
static void print_doubled(
	const struct catalogue *catalogue, const struct row_list *rows, struct arena *scratch)
{
	printf("\n### Twice the largest published micro-batch\n\n| model | GPU | micro-batch | "
	       "peak "
	       "GiB | doubled GiB | growth / growth from half | fits | doubled fits |\n"
	       "|---|---|---:|---:|---:|---:|---|---|\n");
	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		struct prediction twice, half;
		if (!is_largest(rows, row) || row->micro_batch % 2 != 0 ||
			!predict_at(catalogue, row, 2 * row->micro_batch, scratch, &twice) ||
			!predict_at(catalogue, row, row->micro_batch / 2, scratch, &half))
			continue;
		double here = (double)row->prediction.peak_allocated_bytes;
		double up = (double)twice.peak_allocated_bytes - here;
		double down = here - (double)half.peak_allocated_bytes;
		printf("| %s: %s | %s | %lld | %.1f | %.1f | %.2f | %s | %s |\n", row->source,
			row->family, row->gpu, (long long)row->micro_batch, here / 0x1p30,
			(double)twice.peak_allocated_bytes / 0x1p30, down > 0 ? up / down : NAN,
			fits_names[row->prediction.fits], fits_names[twice.fits]);
		arena_reset(scratch);
	}
}

void report_memory(
	const struct catalogue *catalogue, const struct row_list *rows, struct arena *arena)
{
	struct arena scratch = {0};

	printf("\n## Peak memory\n");
	print_peaks(rows, arena);
	print_sets(rows, arena);
	print_fits(rows);
	print_doubled(catalogue, rows, &scratch);
	arena_finish(&scratch);
}
