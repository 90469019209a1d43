/* Rows of the same configuration, measured at different times or with other libraries. Their
 * differences, with one taken as the prediction of another, are the best that a model can achieve.
 */
#include "accuracy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TWINS_MAX = 32 };

/* Columns that do not describe what was run. */
static bool column_of_twins(const char *name)
{
	static const char *const others[] = {"libraries", "date", "reference", "notes", "row"};

	for (int i = 0; i < COUNT_OF(others); i++)
		if (strcmp(name, others[i]) == 0)
			return false;
	return strncmp(name, "measured_", 9) != 0 && strcmp(name, "mem_metric") != 0;
}

static bool are_twins(const struct row *a, const struct row *b)
{
	if (a == b || a->header != b->header || !row_has_time(b))
		return false;
	for (int i = 0; i < a->header->n_cells; i++)
		if (column_of_twins(a->header->cells[i]) && strcmp(a->cells[i], b->cells[i]) != 0)
			return false;
	return true;
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

/* The median step of the others; 0: there are none, or all repeat one figure. */
static double step_of_twins(const struct row_list *rows, const struct row *row)
{
	double steps[TWINS_MAX];
	bool differs = false;
	int n = 0;

	for (int i = 0; i < rows->n && n < TWINS_MAX; i++) {
		if (!are_twins(row, &rows->of[i]))
			continue;
		steps[n++] = rows->of[i].measured_step;
		differs = differs || rows->of[i].measured_tokens != row->measured_tokens;
	}
	if (!differs)
		return 0;
	qsort(steps, (size_t)n, sizeof(*steps), compare);
	return (steps[(n - 1) / 2] + steps[n / 2]) / 2;
}

void report_twins(const struct row_list *rows, struct arena *arena)
{
	printf("\n## Twins\n\nRows of one configuration: the median of the others, taken as the "
	       "prediction.\n\n| part | n | twins: median %% | p90 %% | this model: median %% | "
	       "p90 "
	       "%% |\n|---|---:|---:|---:|---:|---:|\n");
	for (int part = 0; part <= PART_FOUND; part++) {
		struct sample twins = {0}, model = {0};
		for (int i = 0; i < rows->n; i++) {
			const struct row *row = &rows->of[i];
			double step = row->part == (enum part)part && row_has_time(row)
					      ? step_of_twins(rows, row)
					      : 0;
			if (step <= 0)
				continue;
			sample_add(arena, &twins, step / row->measured_step - 1);
			sample_add(arena, &model, row_time_error(row));
		}
		struct summary a = sample_summary(&twins), b = sample_summary(&model);
		if (a.n > 0)
			printf("| %s | %d | %.1f | %.1f | %.1f | %.1f |\n", part_names[part], a.n,
				100 * a.median, 100 * a.p90, 100 * b.median, 100 * b.p90);
	}
}
