/* Bounds of pipelines, from the load of the whole model: what its blocks compute, exchange and save
 * for a micro-batch.
 *
 * Time. Let rank k spend f_k on a micro-batch at least, forward and backward: it computes, and
 * where tensor or context ranks exchange something, compute waits for it. It does so for all m of
 * them one after the other. It begins when the first one has come through the ranks before it, and
 * their backwards end after its own: with one stage a rank that is f_j of each, with v stages of
 * one length a v-th. So a step takes at least the most over k of m f_k plus the sum of these.
 *
 * Memory. The first rank keeps what its blocks save for as many micro-batches as the order lets it
 * begin (pipeline.h). States are shared out over the stages and the shards; the largest part is not
 * below the mean. */
#include "planner/bounds/parts.h"

#include <math.h>

#include "schedule/pipeline/pipeline.h"

/* Blocks of each rank. */
static void count_blocks(const struct plan *plan, const struct pipeline *pipeline, int64_t blocks,
	struct arena *arena, int64_t *of_rank)
{
	int n = pipeline->ranks * pipeline->chunks;
	int *stages = ARENA_ARRAY(arena, int, n);
	struct error error = {0};
	if (!plan_split(plan, blocks, stages, &error))
		return;
	for (int k = 0; k < pipeline->ranks; k++)
		for (int c = 0; c < pipeline->chunks; c++)
			of_rank[k] += stages[pipeline_stage(pipeline, k, c)];
}

/* Seconds of rank k for a micro-batch. */
static double pass_time(
	const struct stage_load *load, const int64_t *blocks, int64_t layers, int k, int ranks)
{
	double share = (double)blocks[k] / (double)max_i64(1, layers);
	return load->blocks * share + (k == ranks - 1 ? load->head : 0);
}

double bound_stages_time(
	const struct plan *plan, const struct model *model, const struct stage_load *load)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	int64_t layers = model->architecture.layers;
	struct arena arena = {0};
	int64_t *blocks = ARENA_ARRAY(&arena, int64_t, pipeline.ranks);
	double before = 0, time = 0;
	double lead = 1.0 / pipeline.chunks;
	count_blocks(plan, &pipeline, layers, &arena, blocks);
	for (int k = 0; k < pipeline.ranks; k++) {
		double pass = pass_time(load, blocks, layers, k, pipeline.ranks);
		time = fmax(time, before + pipeline.micro_batches * pass);
		before += lead * pass;
	}
	arena_finish(&arena);
	return time * (1 - 1e-3); /* stages begin and end ranges of their own */
}

/* Of a parameter between steps and in the last backward: master, moments, gradient; and what stays
 * whole. */
static double state_bytes(const struct plan *plan)
{
	double master = (double)dtype_bytes(plan->master_dtype);
	double gradient = (double)dtype_bytes(plan_gradient_shard_dtype(plan));
	double moments = plan->optimizer == OPTIMIZER_SGD ? 0 : 2 * master;
	double sharded = strategy_shards(plan->strategy) ? (double)plan_shard_ranks(plan) : 1;
	double whole = strategy_shards(plan->strategy) && !strategy_reshards(plan->strategy)
			       ? (double)dtype_bytes(plan->param_dtype)
			       : 0;
	return (master + moments + gradient) / sharded + whole;
}

int64_t bound_stages_memory(
	const struct plan *plan, const struct model *part, const struct stage_load *load)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	int64_t layers = part->architecture.layers;
	struct arena arena = {0};
	struct pipeline_slot *slots;
	int64_t *blocks = ARENA_ARRAY(&arena, int64_t, pipeline.ranks);
	int n = pipeline_order(&pipeline, 0, &arena, &slots);
	count_blocks(plan, &pipeline, layers, &arena, blocks);
	double flights = pipeline_in_flight(slots, n) / (double)pipeline.chunks;
	double saved = load->saved * flights * (double)blocks[0] / (double)max_i64(1, layers);
	double states = state_bytes(plan) * (double)part->parameter_count / pipeline.ranks;
	arena_finish(&arena);
	return (int64_t)(0.95 * (saved + states));
}
