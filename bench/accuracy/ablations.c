/* What one changed knob does: rows of a source that differ in nothing else, compared with the
 * ratio that is predicted. Errors that both rows share cancel, which is what a choice between two
 * strategies rests on. */
#include "accuracy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A knob may be several columns that go together. */
static const struct knob {
	const char *name;
	const char *columns[3];
} knobs[] = {
	{"activation checkpointing", {"activation_checkpointing"}},
	{"micro-batch", {"micro_batch"}},
	{"accumulation", {"grad_accum"}},
	{"reduce dtype", {"reduce_dtype"}},
	{"shard group", {"shard_group"}},
	{"strategy", {"strategy"}},
	{"runtime", {"runtime", "reshard_after_forward"}},
	{"compile", {"compile"}},
	{"library versions", {"libraries"}},
	{"nodes", {"topology"}},
	{"sequence length", {"seq_len", "model"}},
};

static bool has(const struct knob *knob, const char *column)
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

/* The same in all but the knob, and not in that. */
static bool is_pair(const struct row *a, const struct row *b, const struct knob *knob)
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

/* Seconds a token, so that batches of different sizes compare. */
static double log_ratio(const struct row *a, const struct row *b, double time_a, double time_b)
{
	return log(time_a / a->measured_step * (1 / a->measured_tokens)) -
	       log(time_b / b->measured_step * (1 / b->measured_tokens));
}

static void report_knob(const struct rows *rows, const struct knob *knob, struct arena *arena)
{
	struct sample errors = {0};
	int clear = 0, right = 0;
	double size = 0;

	for (int i = 0; i < rows->n; i++) {
		for (int j = 0; j < i; j++) {
			const struct row *a = &rows->of[i], *b = &rows->of[j];
			if (!row_has_time(a) || !row_has_time(b) || !is_pair(a, b, knob))
				continue;
			double measured = log_ratio(a, b, a->measured_step, b->measured_step);
			double predicted =
				log_ratio(a, b, a->prediction.step_time, b->prediction.step_time);
			sample_add(arena, &errors, predicted - measured);
			size += fabs(measured);
			clear += fabs(measured) > 0.03;
			right += fabs(measured) > 0.03 && (measured > 0) == (predicted > 0);
		}
	}
	struct summary s = sample_summary(&errors);
	if (s.n > 0)
		printf("| %s | %d | %.1f | %d of %d | %.1f | %.1f |\n", knob->name, s.n,
			100 * size / s.n, right, clear, 100 * s.median, 100 * s.p90);
}

void report_ablations(const struct rows *rows, struct arena *arena)
{
	printf("\n## One knob at a time\n\nPairs of rows of one source that differ in one knob: "
	       "the "
	       "measured change of seconds per token beside the predicted one. The sign counts "
	       "where the measured change exceeds 3 %%.\n\n| knob | pairs | mean measured change "
	       "%% | right sign | median error of the change %% | p90 %% |\n"
	       "|---|---:|---:|---:|---:|---:|\n");
	for (int i = 0; i < COUNT_OF(knobs); i++)
		report_knob(rows, &knobs[i], arena);
}
