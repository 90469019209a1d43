/* Step time: errors by part, source, GPU, model, size and micro-batch, and the worst rows. */
#include "accuracy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A smaller set is listed, not averaged. */
enum { LEAST = 10, WORST = 12 };

/* The name of the set to which a row belongs. */
typedef const char *key_fn(const struct row *row, struct arena *arena);

static const char *by_part(const struct row *row, struct arena *arena)
{
	(void)arena;
	return part_names[row->part];
}

static const char *by_source(const struct row *row, struct arena *arena)
{
	return arena_printf(arena, "%s, %s", row->source, part_names[row->part]);
}

static const char *by_gpu(const struct row *row, struct arena *arena)
{
	return arena_printf(arena, "%s, %s", row->gpu, part_names[row->part]);
}

/* Tensor ranks inside a node are one set. */
static const char *by_tensor(const struct row *row, struct arena *arena)
{
	int64_t ranks = strtol(row_cell(row, "tensor"), NULL, 10);
	const char *size = ranks <= 1   ? "no tensor ranks"
			   : ranks <= 8 ? "tensor 2 to 8"
					: arena_printf(arena, "tensor %lld", (long long)ranks);
	return arena_printf(arena, "%s, %s, %s", row->source, size, part_names[row->part]);
}

static const char *by_strategy(const struct row *row, struct arena *arena)
{
	return arena_printf(arena, "%s, %s", row_cell(row, "strategy"), part_names[row->part]);
}

static const char *by_model(const struct row *row, struct arena *arena)
{
	return arena_printf(arena, "%s: %s", row->source, row->family);
}

static const char *by_gpus(const struct row *row, struct arena *arena)
{
	return arena_printf(arena, "%s, %lld GPUs", row->source, (long long)row->gpus);
}

/* The largest power of two up to `value`. */
static long long bin(int64_t value)
{
	long long low = 1;

	while (2 * low <= value)
		low *= 2;
	return low;
}

static const char *by_micro_batch(const struct row *row, struct arena *arena)
{
	long long low = bin(row->micro_batch);
	return arena_printf(arena, "micro-batch %lld..%lld", low, 2 * low - 1);
}

static const char *by_sequence(const struct row *row, struct arena *arena)
{
	return arena_printf(arena, "sequence %lld..", bin(row->seq_len));
}

static const struct {
	const char *title;
	key_fn *key;
} groupings[] = {
	{"part", by_part},
	{"source and part", by_source},
	{"source, tensor ranks and part", by_tensor},
	{"GPU and part", by_gpu},
	{"strategy and part", by_strategy},
	{"model", by_model},
	{"number of GPUs", by_gpus},
	{"micro-batch", by_micro_batch},
	{"sequence length", by_sequence},
};

struct row_group {
	const char *name;
	struct sample errors, baseline;
};

static struct row_group *find_group(
	struct row_group *groups, int *n, int capacity, const char *name, struct arena *arena)
{
	for (int i = 0; i < *n; i++) {
		if (strcmp(groups[i].name, name) == 0)
			return &groups[i];
	}
	if (*n == capacity)
		abort();
	groups[*n] = (struct row_group){.name = arena_strdup(arena, name)};
	return &groups[(*n)++];
}

static void print_few(const struct sample *sample)
{
	printf(" each:");
	for (int i = 0; i < sample->n; i++)
		printf(" %+.1f", 100 * sample->errors[i]);
	printf(" |  |  |  |");
}

static void print_group(const struct row_group *group)
{
	struct summary s = sample_summary(&group->errors), b = sample_summary(&group->baseline);

	printf("| %s | %d |", group->name, s.n);
	if (s.n < LEAST)
		print_few(&group->errors);
	else
		printf(" %.1f | %.1f | %.1f | %+.1f |", 100 * s.median, 100 * s.mean, 100 * s.p90,
			100 * s.bias);
	printf(" %.1f |\n", 100 * b.median);
}

static void print_grouping(
	const struct row_list *rows, const char *title, key_fn *key, struct arena *arena)
{
	struct row_group *groups = ARENA_ARRAY(arena, struct row_group, rows->n + 1);
	int n = 0;

	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		if (!row_has_time(row))
			continue;
		struct row_group *group =
			find_group(groups, &n, rows->n + 1, key(row, arena), arena);
		sample_add(arena, &group->errors, row_time_error(row));
		if (row->baseline_step > 0)
			sample_add(arena, &group->baseline,
				row->baseline_step / row->measured_step - 1);
	}
	printf("\nBy %s:\n\n| | n | median %% | mean %% | p90 %% | bias %% | baseline median %% |\n"
	       "|---|---:|---:|---:|---:|---:|---:|\n",
		title);
	for (int i = 0; i < n; i++)
		print_group(&groups[i]);
}

static int compare_errors(const void *left, const void *right)
{
	double a = fabs(row_time_error(*(const struct row *const *)left));
	double b = fabs(row_time_error(*(const struct row *const *)right));
	return (a < b) - (a > b);
}

/* Prints the parts of the predicted time, which may explain an error. */
static void print_worst(const struct row *row)
{
	const struct prediction *p = &row->prediction;
	double compute = p->time.compute, exposed = p->time.exposed_communication;

	printf("| %s | %s, %s, seq %lld, micro-batch %lld, checkpointing %s | %.4g | %.4g | "
	       "%+.1f | compute %.0f %%, exposed communication %.0f %%, rest %.0f %% | %s |\n",
		row->name, row->family, row->topology, (long long)row->seq_len,
		(long long)row->micro_batch, row_cell(row, "activation_checkpointing"),
		row->measured_step, p->step_time, 100 * row_time_error(row),
		100 * compute / p->step_time, 100 * exposed / p->step_time,
		100 * (p->step_time - compute - exposed) / p->step_time, row->notes);
}

static void print_worst_rows(const struct row_list *rows, enum part part, struct arena *arena)
{
	const struct row **sorted = ARENA_ARRAY(arena, const struct row *, rows->n + 1);
	int n = 0;

	for (int i = 0; i < rows->n; i++) {
		if (row_has_time(&rows->of[i]) && rows->of[i].part == part)
			sorted[n++] = &rows->of[i];
	}
	qsort(sorted, (size_t)n, sizeof(struct row *), compare_errors);
	printf("\nThe worst rows of the %s part:\n\n"
	       "| row | what | measured s | predicted s | error %% | predicted split | note |\n"
	       "|---|---|---:|---:|---:|---|---|\n",
		part_names[part]);
	for (int i = 0; i < n && i < WORST; i++)
		print_worst(sorted[i]);
}

/* Rows whose source does not state what decides the time are shown but not judged. */
static void print_incomplete(const struct row_list *rows)
{
	printf("\nNot judged, because the source leaves out what decides the time:\n\n"
	       "| row | what | measured s | predicted s | error %% | predicted split | note |\n"
	       "|---|---|---:|---:|---:|---|---|\n");
	for (int i = 0; i < rows->n; i++) {
		const struct row *row = &rows->of[i];
		if (row->error == NULL && row->status == STATUS_INCOMPLETE &&
			row->measured_step > 0)
			print_worst(row);
	}
}

void report_time(const struct row_list *rows, struct arena *arena)
{
	printf("\n## Step time\n\nErrors of the step time, predicted / measured - 1. The baseline "
	       "is 6N FLOPs a token at 50 %% of the datasheet's dense peak.\n");
	for (int i = 0; i < COUNT_OF(groupings); i++)
		print_grouping(rows, groupings[i].title, groupings[i].key, arena);
	for (int part = 0; part <= PART_FOUND; part++)
		print_worst_rows(rows, part, arena);
	print_incomplete(rows);
}
