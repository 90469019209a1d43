/* What a rank surely holds of the parameters, gradients and optimizer states of its part of the
 * model. */
#include "planner/bounds/parts.h"

#include <math.h>

/* --- parameters ------------------------------------------------------------------------------- */

static void add(const struct model *part, int parameter, struct elements *sum)
{
	const struct parameter *p = &part->parameters[parameter];
	bool of_experts = module_kind_is_of_experts(part->modules[p->module].kind);
	*(of_experts ? &sum->experts : &sum->dense) += (double)p->elements;
}

struct elements elements_of(const struct model *part)
{
	struct elements sum = {0};
	for (int i = 0; i < part->n_parameters; i++)
		add(part, i, &sum);
	return sum;
}

static struct elements elements_trained(const struct model *part)
{
	struct elements sum = {0};
	for (int i = 0; i < part->n_parameters; i++)
		if (part->parameters[i].trainable)
			add(part, i, &sum);
	return sum;
}

const struct elements *elements_before(const struct model *part, struct arena *arena)
{
	int blocks = (int)part->architecture.layers;
	struct elements *before = ARENA_ARRAY(arena, struct elements, blocks + 1);
	for (int i = 0; i < part->n_parameters; i++) {
		int layer = part->modules[part->parameters[i].module].layer;
		if (layer >= 0 && layer < blocks)
			add(part, i, &before[layer + 1]);
	}
	for (int i = 0; i < blocks; i++) {
		before[i + 1].dense += before[i].dense;
		before[i + 1].experts += before[i].experts;
	}
	return before;
}

/* --- bytes of each ---------------------------------------------------------------------------- */

/* Of a parameter whose states are shared out over so many ranks. */
static double sharded_bytes(const struct plan *plan, double shards)
{
	return (states_kept(plan) + states_gradient(plan)) / shards;
}

/* The same, and what stays whole. */
static double state_bytes(const struct plan *plan, double shards)
{
	double whole = strategy_shards(plan->strategy) && !strategy_reshards(plan->strategy)
			       ? fp8_weight_width(plan)
			       : 0;
	return sharded_bytes(plan, shards) + whole;
}

/* The same, and what Megatron-LM's distributed optimizer adds up: buckets of whole gradients that
 * stay. */
static double bucket_bytes(const struct plan *plan, double shards)
{
	const struct zero_rules *zero = runtime_of(plan->runtime)->zero;
	bool adds = zero != NULL && zero->adds_at_once && strategy_stage(plan->strategy) == 1;
	double whole = adds ? (double)dtype_bytes(plan->reduce_dtype) * (1 - 1 / shards) : 0;
	return state_bytes(plan, shards) + whole;
}

/* The same, and gradients that FSDP2 keeps whole until it reduces them, in the last micro-batch.
 * What is sharded of them comes afterwards. */
static double waiting_bytes(const struct plan *plan, double shards)
{
	double shard = states_gradient(plan) / shards;
	return bucket_bytes(plan, shards) +
	       fmax(0, (double)dtype_bytes(plan->reduce_dtype) - shard);
}

/* States of experts are over other ranks than those of the rest. */
static double bytes_of(const struct plan *plan, const struct elements *elements,
	double (*each)(const struct plan *plan, double shards))
{
	return elements->dense * each(plan, (double)plan_shard_ranks(plan)) +
	       elements->experts * each(plan, (double)plan_expert_shard_ranks(plan));
}

/* --- of a rank -------------------------------------------------------------------------------- */

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

double elements_held(const struct plan *plan, const struct pipeline *pipeline, int rank,
	const struct elements *elements, struct arena *arena)
{
	bool waits = plan->runtime == RUNTIME_PYTORCH_FSDP2 && plan->grad_accum > 1 &&
		     !plan->sync_each_micro_batch && all_have_gradients(pipeline, rank, arena);
	return bytes_of(plan, elements, waits ? waiting_bytes : bucket_bytes);
}

/* Lists of buckets do not fold: a shape that surely does not fit is not to be looked at. */
static bool keeps_whole(const struct plan *plan)
{
	return strategy_stage(plan->strategy) == 1 && plan_layout(plan) == LAYOUT_WHOLE;
}

double bound_states(const struct plan *plan, const struct model *part)
{
	const struct elements trained = elements_trained(part);
	if (plan_offloads_any(plan))
		return 0;
	return bytes_of(plan, &trained, keeps_whole(plan) ? bucket_bytes : sharded_bytes);
}

double bound_block_states(const struct plan *plan, const struct model *part)
{
	struct arena arena = {0};
	int64_t blocks = part->architecture.layers;
	const struct elements all = elements_before(part, &arena)[blocks];
	arena_finish(&arena);
	return bytes_of(plan, &all, state_bytes) / (double)blocks;
}
