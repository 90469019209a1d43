/* The split whose slowest stage is fastest, by dynamic programming over (stages, blocks). */
#include <math.h>

#include "schedule/pipeline/pipeline.h"

/* cost(s, b): the best that stages 0..s make of blocks 0..b-1; came(s, b): where stage s begins. */
struct table {
	const struct pipeline_weights *weights;
	int n_stages;
	double *before; /* seconds of the blocks before each */
	double *cost;
	int *came;
	double limit; /* of a stage, where sums of squares are compared; else infinite */
};

static size_t at(const struct table *t, int stage, int end)
{
	return (size_t)stage * ((size_t)t->weights->n + 1) + (size_t)end;
}

/* Of blocks begin..end-1 as a stage; infinite where there is no such stage. */
static double seconds(const struct table *t, int stage, int begin, int end)
{
	double ends = (stage == 0 ? t->weights->embedding : 0) +
		      (stage == t->n_stages - 1 ? t->weights->head : 0);
	double sum = t->before[end] - t->before[begin] + ends;

	return begin == end && ends == 0 ? INFINITY : sum;
}

static double join(const struct table *t, double before, double stage)
{
	if (isinf(t->limit))
		return fmax(before, stage);
	return stage > t->limit ? INFINITY : before + stage * stage;
}

static void fill_place(struct table *t, int stage, int end)
{
	double *best = &t->cost[at(t, stage, end)];

	*best = INFINITY;
	/* Stage 0 begins with block 0. */
	for (int begin = stage == 0 ? 0 : end; begin >= 0; begin--) {
		double before = stage == 0 ? 0 : t->cost[at(t, stage - 1, begin)];
		double cost = join(t, before, seconds(t, stage, begin, end));
		if (cost < *best) {
			*best = cost;
			t->came[at(t, stage, end)] = begin;
		}
	}
}

static double fill(struct table *t)
{
	for (int stage = 0; stage < t->n_stages; stage++)
		for (int end = 0; end <= t->weights->n; end++)
			fill_place(t, stage, end);
	return t->cost[at(t, t->n_stages - 1, t->weights->n)];
}

double pipeline_split_balanced(
	const struct pipeline_weights *weights, int n_stages, struct arena *arena, int *stages)
{
	size_t places = (size_t)n_stages * ((size_t)weights->n + 1);
	struct table t = {.weights = weights,
		.n_stages = n_stages,
		.before = ARENA_ARRAY(arena, double, weights->n + 1),
		.cost = ARENA_ARRAY(arena, double, places),
		.came = ARENA_ARRAY(arena, int, places),
		.limit = INFINITY};

	for (int b = 0; b < weights->n; b++)
		t.before[b + 1] = t.before[b] + weights->blocks[b];
	double slowest = fill(&t);
	/* Sums of the same seconds differ in their last bits. */
	t.limit = slowest * (1 + 1e-12);
	fill(&t);
	for (int s = n_stages - 1, end = weights->n; s >= 0; s--) {
		int begin = t.came[at(&t, s, end)];
		stages[s] = end - begin;
		end = begin;
	}
	return slowest;
}
