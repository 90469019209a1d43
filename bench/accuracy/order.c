/* Is the faster of two runs predicted to be faster? Pairs count if their measured times differ by
 * more than 5 %. */
#include "accuracy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double apart = 1.05;

/* How similar the two runs of a pair are. Each kind is a part of the one before. */
enum kind { KIND_MODEL, KIND_GPUS, KIND_QUESTION, KIND_COUNT };
static const char *const kinds[KIND_COUNT] = {
	[KIND_MODEL] = "one model",
	[KIND_GPUS] = "and as many GPUs",
	[KIND_QUESTION] = "and one global batch",
};

struct count {
	int pairs, right;
};

static int64_t step_tokens(const struct row *row)
{
	return (int64_t)llround(row->measured_step * row->measured_tokens * (double)row->gpus);
}

static bool is_pair(const struct row *a, const struct row *b, enum kind kind)
{
	return row_has_time(b) && strcmp(a->family, b->family) == 0 && a->seq_len == b->seq_len &&
	       (kind < KIND_GPUS || a->gpus == b->gpus) &&
	       (kind < KIND_QUESTION || step_tokens(a) == step_tokens(b));
}

/* Seconds of one GPU per token. */
static double measured(const struct row *row)
{
	return 1 / row->measured_tokens;
}

static double predicted(const struct row *row)
{
	return row->prediction.step_time / row->measured_step / row->measured_tokens;
}

static void add_pairs(const struct row_list *rows, int first, enum kind kind, struct count *count)
{
	const struct row *a = &rows->of[first];

	for (int i = first + 1; i < rows->n; i++) {
		const struct row *b = &rows->of[i];
		if (b->part != a->part || !is_pair(a, b, kind))
			continue;
		double ratio = measured(a) / measured(b);
		if (ratio < apart && ratio > 1 / apart)
			continue;
		count->pairs++;
		count->right += (ratio > 1) == (predicted(a) > predicted(b));
	}
}

void report_order(const struct row_list *rows)
{
	printf("\n## Order\n\nPairs of runs that are more than 5 %% apart a token.\n\n"
	       "| part | pairs of | n | right %% |\n|---|---|---:|---:|\n");
	for (int part = 0; part < PART_COUNT; part++)
		for (int kind = 0; kind < KIND_COUNT; kind++) {
			struct count count = {0, 0};
			for (int i = 0; i < rows->n; i++)
				if (rows->of[i].part == (enum part)part &&
					row_has_time(&rows->of[i]))
					add_pairs(rows, i, (enum kind)kind, &count);
			if (count.pairs > 0)
				printf("| %s | %s | %d | %.1f |\n", part_names[part], kinds[kind],
					count.pairs, 100.0 * count.right / count.pairs);
		}
}
