/* Bounds of pipelines, from the load of the whole model: what its blocks compute, exchange and save
 * for a micro-batch.
 *
 * Time. A rank computes for each of m micro-batches, one after the other, and where tensor or
 * context ranks exchange something, compute waits for it. It begins when the first one has come
 * through the first stage of each rank before it, and those stages' backwards end after its own. So
 * a step takes at least the most over ranks of m times its own passes plus the passes through these
 * stages. Where backward is split, gradients of weights may be what ends last: then these passes do
 * not count. Unless receives are posted early, a rank asks for what a pass begins with when it has
 * computed all that comes before (pass_messages), so that every message is waited for: the more
 * stages a rank has, the longer.
 *
 * Memory. The first rank keeps what its blocks save for as many micro-batches as the order lets it
 * begin (pipeline.h), the weight parts of backward to the last. States are shared out over the
 * stages and the shards; the largest part is not below the mean, nor below that of the rank whose
 * blocks have the most parameters. */
#include "planner/bounds/bounds.h"

#include <math.h>

#include "planner/bounds/parts.h"
#include "schedule/pipeline/pipeline.h"
#include "simulator/costs/costs.h"

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

/* Between stages of two ranks; both are alike where they are of one. */
struct messages {
	const struct topology *topology;
	struct pipeline pipeline;
	int64_t apart, bytes;
};

static struct messages messages_of(
	const struct topology *topology, const struct plan *plan, const struct model *model)
{
	const struct activation_rules rules =
		plan_activation_rules(plan, topology->device.generation);
	int64_t parts = plan->scatter_gather ? plan->mesh.tensor : 1;
	return (struct messages){topology, plan_pipeline(plan),
		plan_reduce_ranks(plan) * plan->mesh.tensor,
		model_residual_bytes(model, &rules, plan->micro_batch, plan->seq_len) / parts};
}

/* Seconds for which a stage waits for what comes from the stage so far on. */
static double wait_for(const struct messages *messages, int stage, int distance)
{
	const struct pipeline *pipeline = &messages->pipeline;
	int from, to, chunk, sender = stage + distance;
	if (sender < 0 || sender >= pipeline->ranks * pipeline->chunks)
		return 0;
	pipeline_place(pipeline, sender, &from, &chunk);
	pipeline_place(pipeline, stage, &to, &chunk);
	return from == to ? 0
			  : cost_message(
				    messages->topology, messages->apart, from, to, messages->bytes);
}

/* In forward and backward. */
static double waits_of(const struct messages *messages, int stage)
{
	const struct pipeline *pipeline = &messages->pipeline;
	if (pipeline->pairs || pipeline_receives_early(pipeline))
		return 0;
	return wait_for(messages, stage, -1) + wait_for(messages, stage, 1);
}

static double waits_of_rank(const struct messages *messages, int rank)
{
	double waits = 0;
	for (int c = 0; c < messages->pipeline.chunks; c++)
		waits += waits_of(messages, pipeline_stage(&messages->pipeline, rank, c));
	return waits;
}

double bound_stages_time(const struct topology *topology, const struct plan *plan,
	const struct model *model, const struct stage_load *load)
{
	const struct messages messages = messages_of(topology, plan, model);
	const struct pipeline pipeline = messages.pipeline;
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
		pass += waits_of_rank(&messages, k);
		time = fmax(time, before + pipeline.micro_batches * pass);
		before += splits ? 0 : block * stages[k] + waits_of(&messages, k);
	}
	arena_finish(&arena);
	return time * (1 - 1e-3); /* stages begin and end ranges of their own */
}

/* States of experts may be over more ranks than others'. */
static double most_shards(const struct plan *plan)
{
	return (double)max_i64(plan_shard_ranks(plan), plan_expert_shard_ranks(plan));
}

static double sharded_bytes(const struct plan *plan)
{
	return (states_kept(plan) + states_gradient(plan)) / most_shards(plan);
}

/* Has each stage of the rank gradients of a micro-batch before any of them has those of its last
 * one? With few micro-batches a rank is done with a stage before it begins the next. */
static bool all_have_gradients(const struct pipeline *pipeline, int rank, struct arena *arena)
{
	struct pipeline_slot *slots;
	int n = pipeline_order(pipeline, rank, arena, &slots);
	int *left = ARENA_ARRAY(arena, int, pipeline->chunks), begun = 0;
	for (int i = 0; i < n; i++) {
		bool ends = slots[i].pass != PIPELINE_FORWARD &&
			    slots[i].pass != PIPELINE_BACKWARD_INPUT;
		int *of_stage = &left[slots[i].chunk];
		begun += ends && *of_stage == 0;
		*of_stage += ends;
		if (*of_stage == pipeline->micro_batches)
			return begun == pipeline->chunks;
	}
	return false;
}

/* FSDP2 keeps gradients whole until it reduces them, in the last micro-batch. What is sharded of
 * them comes afterwards. */
static double whole_gradient_bytes(
	const struct plan *plan, const struct pipeline *pipeline, int rank, struct arena *arena)
{
	bool waits = plan->runtime == RUNTIME_PYTORCH_FSDP2 && plan->grad_accum > 1 &&
		     !plan->sync_each_micro_batch && all_have_gradients(pipeline, rank, arena);
	double shard = states_gradient(plan) / most_shards(plan);
	return waits ? fmax(0, (double)dtype_bytes(plan->reduce_dtype) - shard) : 0;
}

/* The same, and what stays whole. */
static double state_bytes(const struct plan *plan)
{
	enum dtype dtype = plan->fp8_param_gather ? DTYPE_FP8 : plan->param_dtype;
	double whole = strategy_shards(plan->strategy) && !strategy_reshards(plan->strategy)
			       ? (double)dtype_bytes(dtype)
			       : 0;
	return sharded_bytes(plan) + whole;
}

/* What Megatron-LM's distributed optimizer adds up: buckets of whole gradients that stay. */
static double bucket_bytes(const struct plan *plan)
{
	const struct zero_rules *zero = runtime_of(plan->runtime)->zero;
	return zero != NULL && zero->adds_at_once && strategy_stage(plan->strategy) == 1
		       ? (double)dtype_bytes(plan->reduce_dtype) * (1 - 1 / most_shards(plan))
		       : 0;
}

/* Lists of buckets do not fold: a shape that surely does not fit is not to be looked at. */
static bool keeps_whole(const struct plan *plan)
{
	return strategy_stage(plan->strategy) == 1 && plan_layout(plan) == LAYOUT_WHOLE;
}

double bound_states(const struct plan *plan)
{
	if (plan_offloads_any(plan))
		return 0;
	return keeps_whole(plan) ? state_bytes(plan) + bucket_bytes(plan) : sharded_bytes(plan);
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

/* Of a rank's blocks. */
static double parameters_of_rank(
	const struct pipeline *pipeline, const int *stages, int rank, const double *before_block)
{
	double parameters = 0;
	int first = 0;
	for (int s = 0; s < pipeline->ranks * pipeline->chunks; s++) {
		int place, chunk;
		pipeline_place(pipeline, s, &place, &chunk);
		if (place == rank)
			parameters += before_block[first + stages[s]] - before_block[first];
		first += stages[s];
	}
	return parameters;
}

static const double *parameters_before(const struct model *part, struct arena *arena)
{
	int blocks = (int)part->architecture.layers;
	double *before = ARENA_ARRAY(arena, double, blocks + 1);
	for (int i = 0; i < part->n_parameters; i++) {
		int layer = part->modules[part->parameters[i].module].layer;
		if (layer >= 0 && layer < blocks)
			before[layer + 1] += (double)part->parameters[i].elements;
	}
	for (int i = 0; i < blocks; i++)
		before[i + 1] += before[i];
	return before;
}

int bounds_heaviest_stage(const struct plan *plan, const struct model *part, double *parameters)
{
	const struct pipeline pipeline = plan_pipeline(plan);
	struct arena arena = {0};
	const int *stages = stages_of(plan, part, &arena);
	const double *before = parameters_before(part, &arena);
	int heaviest = 0;
	*parameters = 0;
	for (int k = 0; k < pipeline.ranks; k++) {
		double own = parameters_of_rank(&pipeline, stages, k, before);
		heaviest = own > *parameters ? k : heaviest;
		*parameters = fmax(*parameters, own);
	}
	arena_finish(&arena);
	return heaviest;
}

/* Micro-batches a rank that fill a pipeline. */
enum { FILLING = 2 };

int64_t bound_stages_memory(
	const struct plan *plan, const struct model *part, const struct stage_load *load)
{
	struct pipeline pipeline = plan_pipeline(plan);
	int64_t blocks = part->architecture.layers;
	struct arena arena = {0};
	struct pipeline_slot *slots;
	if (pipeline.schedule != PIPELINE_GPIPE) /* more of them are never held */
		pipeline.micro_batches = min_i64(pipeline.micro_batches, FILLING * pipeline.ranks);
	int n = pipeline_order(&pipeline, 0, &arena, &slots);
	const int *stages = stages_of(plan, part, &arena);
	double held = most_held(&pipeline, stages, slots, n) / (double)blocks;
	double parameters = (double)part->parameter_count / pipeline.ranks;
	double each = state_bytes(plan) + bucket_bytes(plan), most;
	int heaviest = bounds_heaviest_stage(plan, part, &most);
	double whole = whole_gradient_bytes(plan, &pipeline, 0, &arena);
	double of_heaviest = whole_gradient_bytes(plan, &pipeline, heaviest, &arena);
	arena_finish(&arena);
	return (int64_t)fmax(0.95 * (load->saved * held + (each + whole) * parameters),
		0.99 * (each + of_heaviest) * most);
}
