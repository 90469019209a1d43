/* The effect of one changed knob: rows of a source that differ in nothing else, compared with the
 * predicted ratio. Errors that both rows share cancel, as they do in a choice between two
 * strategies. */
#include "accuracy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGES_MAX = 64 };

/* A knob may be several columns that change together; the first one names the change. */
static const struct ablation {
	const char *name;
	const char *columns[3];
	bool by_size; /* one line for each number of GPUs */
} ablations[] = {
	{"activation checkpointing", {"activation_checkpointing"}},
	{"micro-batch", {"micro_batch"}},
	{"accumulation", {"grad_accum"}, true},
	{"reduce dtype", {"reduce_dtype"}},
	{"shard group", {"shard_group"}, true},
	{"strategy", {"strategy"}},
	{"runtime", {"runtime", "reshard_after_forward"}},
	{"compile", {"compile"}},
	{"library versions", {"libraries"}},
	{"nodes", {"topology"}},
	{"sequence length", {"seq_len", "model"}},
};

/* The pairs with the same two values. */
struct change {
	const char *label;
	struct sample errors, measured, predicted;
	int clear, right;
};

static bool has(const struct ablation *knob, const char *column)
{
	for (int i = 0; i < COUNT_OF(knob->columns) && knob->columns[i] != NULL; i++) {
		if (strcmp(knob->columns[i], column) == 0)
			return true;
	}
	return false;
}

static bool compared(const char *column)
{
	return column_is_option(column) || strcmp(column, "model") == 0 ||
	       strcmp(column, "topology") == 0;
}

/* Are the two rows equal in all columns but the knob's, and different there? */
static bool is_pair(const struct row *a, const struct row *b, const struct ablation *knob)
{
	bool differs = false;

	if (a->header != b->header || strcmp(a->source, b->source) != 0 ||
		strcmp(a->gpu, b->gpu) != 0)
		return false;
	for (int i = 0; i < a->header->n_cells; i++) {
		const char *column = a->header->cells[i];
		if (!compared(column) || strcmp(a->cells[i], b->cells[i]) == 0)
			continue;
		if (!has(knob, column))
			return false;
		differs = true;
	}
	return differs;
}

static const char *value_of(const struct row *row, const struct ablation *knob)
{
	const char *cell = row_cell(row, knob->columns[0]);
	return cell[0] != '\0' ? cell : "all";
}

/* Does this row's value come first in the label? The larger number does, else the earlier word. */
static bool comes_first(const struct row *a, const struct row *b, const struct ablation *knob)
{
	const char *of_a = value_of(a, knob), *of_b = value_of(b, knob);
	double number_a = strtod(of_a, NULL), number_b = strtod(of_b, NULL);

	return number_a != number_b ? number_a > number_b : strcmp(of_a, of_b) < 0;
}

static const char *label_of(const struct row *first, const struct row *second,
	const struct ablation *knob, struct arena *arena)
{
	const char *a = value_of(first, knob), *b = value_of(second, knob);
	bool numbers = strtod(a, NULL) > 0 && strtod(b, NULL) > 0;
	const char *size =
		knob->by_size ? arena_printf(arena, ", %lld GPUs", (long long)first->gpus) : "";

	if (numbers)
		return arena_printf(arena, "%s: more%s", knob->name, size);
	return arena_printf(arena, "%s: %s instead of %s%s", knob->name, a, b, size);
}

/* Uses seconds per token, so that batches of different sizes can be compared. */
static double log_ratio(const struct row *a, const struct row *b, double time_a, double time_b)
{
	return log(time_a / a->measured_step * (1 / a->measured_tokens)) -
	       log(time_b / b->measured_step * (1 / b->measured_tokens));
}

static struct change *find_change(struct change *changes, int *n, const char *label)
{
	for (int i = 0; i < *n; i++) {
		if (strcmp(changes[i].label, label) == 0)
			return &changes[i];
	}
	if (*n == CHANGES_MAX)
		abort();
	changes[*n] = (struct change){.label = label};
	return &changes[(*n)++];
}

static void add_pair(
	struct change *change, const struct row *a, const struct row *b, struct arena *arena)
{
	double measured = log_ratio(a, b, a->measured_step, b->measured_step);
	double predicted = log_ratio(a, b, a->prediction.step_time, b->prediction.step_time);

	sample_add(arena, &change->errors, predicted - measured);
	sample_add(arena, &change->measured, measured);
	sample_add(arena, &change->predicted, predicted);
	change->clear += fabs(measured) > 0.03;
	change->right += fabs(measured) > 0.03 && (measured > 0) == (predicted > 0);
}

static void print_change(const struct change *change)
{
	struct summary s = sample_summary(&change->errors);
	/* Medians of the signed changes. */
	double measured = sample_summary(&change->measured).bias;
	double predicted = sample_summary(&change->predicted).bias;

	printf("| %s | %d | %+.1f | %+.1f | %d of %d | %.1f | %.1f |\n", change->label, s.n,
		100 * measured, 100 * predicted, change->right, change->clear, 100 * s.median,
		100 * s.p90);
}

static void report_knob(
	const struct row_list *rows, const struct ablation *knob, struct arena *arena)
{
	struct change changes[CHANGES_MAX];
	int n = 0;

	for (int i = 0; i < rows->n; i++) {
		for (int j = 0; j < i; j++) {
			const struct row *a = &rows->of[i], *b = &rows->of[j];
			if (!row_has_time(a) || !row_has_time(b) || !is_pair(a, b, knob))
				continue;
			bool order = comes_first(a, b, knob);
			const struct row *first = order ? a : b, *second = order ? b : a;
			add_pair(find_change(changes, &n, label_of(first, second, knob, arena)),
				first, second, arena);
		}
	}
	for (int i = 0; i < n; i++)
		print_change(&changes[i]);
}

void report_ablations(const struct row_list *rows, struct arena *arena)
{
	printf("\n## One knob at a time\n\nPairs of rows of one source that differ in one knob: "
	       "by how much seconds per token change, measured beside predicted (medians, in "
	       "logarithms). The sign counts where the measured change exceeds 3 %%.\n\n"
	       "| knob | pairs | measured %% | predicted %% | right sign | median error of the "
	       "change %% | p90 %% |\n|---|---:|---:|---:|---:|---:|---:|\n");
	for (int i = 0; i < COUNT_OF(ablations); i++)
		report_knob(rows, &ablations[i], arena);
}
