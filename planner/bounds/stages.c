/* Bounds of pipelines, from the load of the whole model: what its blocks compute, exchange and save
 * for a micro-batch.
 *
 * Time. A rank computes for each of m micro-batches, one after the other, and where tensor or
 * context ranks exchange something, compute waits for it. It begins when the first one has come
 * through the first stage of each rank before it, and those stages' backwards end after its own. So
 * a step takes at least the most over ranks of m times its own passes plus the passes through these
 * stages. Where backward is split, gradients of weights may be what ends last: then these passes do
 * not count.
 *
 * Memory. The first rank keeps what its blocks save for as many micro-batches as the order lets it
 * begin (pipeline.h), the weight parts of backward to the last. States are shared out over the
 * stages and the shards; the largest part is not below the mean. */
#include "planner/bounds/parts.h"

#include <math.h>

#include "schedule/pipeline/pipeline.h"

/* Of the blocks how many each stage has. */
static const int *stages_of(const struct plan *plan, const struct model *model, struct arena *arena)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	int *stages = ARENA_ARRAY(arena, int, pipeline.ranks *pipeline.chunks);
	struct error error = {0};
	plan_split(plan, model, stages, &error); /* the plan was checked */
	return stages;
}

static double blocks_of_rank(const struct pipeline *pipeline, const int *stages, int rank)
{
	int blocks = 0;
	for (int c = 0; c < pipeline->chunks; c++)
		blocks += stages[pipeline_stage(pipeline, rank, c)];
	return blocks;
}

double bound_stages_time(
	const struct plan *plan, const struct model *model, const struct stage_load *load)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	int64_t blocks = model->architecture.layers;
	struct arena arena = {0};
	const int *stages = stages_of(plan, model, &arena);
	double block = load->blocks / (double)blocks, before = 0, time = 0;
	bool splits = pipeline_splits_backward(pipeline.schedule);
	int last, chunk;
	pipeline_place(&pipeline, pipeline.ranks * pipeline.chunks - 1, &last, &chunk);
	for (int k = 0; k < pipeline.ranks; k++) {
		double pass = block * blocks_of_rank(&pipeline, stages, k);
		pass += k == last ? load->head : 0;
		time = fmax(time, before + pipeline.micro_batches * pass);
		before += splits ? 0 : block * stages[k];
	}
	arena_finish(&arena);
	return time * (1 - 1e-3); /* stages begin and end ranges of their own */
}

/* States of experts may be over more ranks than others'. */
static double most_shards(const struct plan *plan)
{
	return (double)max_i64(plan_shard_ranks(plan), plan_expert_shard_ranks(plan));
}

static double moment_bytes(const struct plan *plan)
{
	return plan->optimizer == OPTIMIZER_SGD ? 0 : 2 * (double)dtype_bytes(plan->master_dtype);
}

/* Of a parameter between steps and in the last backward: master, moments, gradient. */
static double sharded_bytes(const struct plan *plan)
{
	double master = (double)dtype_bytes(plan->master_dtype);
	double gradient = (double)dtype_bytes(plan_gradient_shard_dtype(plan));
	return (master + moment_bytes(plan) + gradient) / most_shards(plan);
}

/* The same, and what stays whole. */
static double state_bytes(const struct plan *plan)
{
	double whole = strategy_shards(plan->strategy) && !strategy_reshards(plan->strategy)
			       ? (double)dtype_bytes(plan->param_dtype)
			       : 0;
	return sharded_bytes(plan) + whole;
}

double bound_states(const struct plan *plan)
{
	return plan_offloads_any(plan) ? 0 : sharded_bytes(plan);
}

double bound_block_states(const struct plan *plan, const struct model *part)
{
	double parameters = 0;
	for (int i = 0; i < part->n_parameters; i++)
		if (part->modules[part->parameters[i].module].layer >= 0)
			parameters += (double)part->parameters[i].elements;
	return state_bytes(plan) * parameters / (double)part->architecture.layers;
}

/* Blocks of the first rank that hold what they have saved, at the most. */
static int most_held(const struct pipeline *pipeline, const int *stages,
	const struct pipeline_slot *slots, int n)
{
	int held = 0, most = 0;
	for (int i = 0; i < n; i++) {
		int blocks = stages[pipeline_stage(pipeline, 0, slots[i].chunk)];
		if (slots[i].pass == PIPELINE_FORWARD)
			held += blocks;
		else if (slots[i].pass != PIPELINE_BACKWARD_INPUT)
			held -= blocks;
		most = held > most ? held : most;
	}
	return most;
}

int64_t bound_stages_memory(
	const struct plan *plan, const struct model *part, const struct stage_load *load)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	int64_t blocks = part->architecture.layers;
	struct arena arena = {0};
	struct pipeline_slot *slots;
	int n = pipeline_order(&pipeline, 0, &arena, &slots);
	const int *stages = stages_of(plan, part, &arena);
	double held = most_held(&pipeline, stages, slots, n) / (double)blocks;
	double states = state_bytes(plan) * (double)part->parameter_count / pipeline.ranks;
	arena_finish(&arena);
	return (int64_t)(0.95 * (load->saved * held + states));
}
