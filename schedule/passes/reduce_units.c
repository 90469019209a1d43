/* Follows the gradients of units from the end of a unit's backward to the shard that the optimizer
 * reads, for FSDP1, FSDP2 and our runtime. */
#include "schedule/passes/sizes.h"

struct reducing {
	struct step *step;
	const struct action *at;
	bool *has_shard;   /* per unit: an earlier micro-batch has left a reduced gradient */
	bool *has_partial; /* per unit: an earlier one has left a gradient reduced over the shard
			      group only */
	bool is_in_flight; /* FSDP2: a reduction's input waits to be released */
};

static struct action add(
	struct reducing *r, enum action_kind kind, enum stream stream, unsigned flags)
{
	struct action action = action_at(r->at, kind, r->at->unit);
	action.stream = stream;
	action.flags |= flags;
	return *action_add(r->step, action);
}

/* Is there another rank to reduce with? A single rank under NO_SHARD has none. */
static bool has_others(const struct step *step)
{
	return step->method.shards || step->group_replicate >= 0;
}

/* Does the result of the reduction become the gradient shard as it is? The first one of a step does
 * when it has the dtype of the shard. FSDP1's flat gradient does not, unless it was cast. */
static bool is_in_place(const struct reducing *r, int unit)
{
	const struct plan *plan = r->step->plan;
	bool is_flat = r->step->method.flattens && !r->step->method.shards &&
		       plan_gradient_dtype(plan) == plan->param_dtype;
	return plan_gradient_dtype(plan) == plan_gradient_shard_dtype(plan) &&
	       !r->has_shard[unit] && !is_flat;
}

/* Adds the action that divides, casts to the master dtype and adds to earlier micro-batches, where
 * one of these is needed. */
static void accumulate(struct reducing *r, enum stream stream)
{
	const struct method *method = &r->step->method;
	int unit = r->at->unit;
	unsigned flags = is_in_place(r, unit) ? IN_PLACE : 0;
	unsigned here = has_others(r->step) ? 0 : REDUCED_HERE;
	if (!(flags & IN_PLACE) || method->divides) {
		add(r, ACTION_ACCUMULATE, stream, flags | here);
		here = 0;
	}
	r->has_shard[unit] = !unit_is_offloaded(r->step, unit);
	add(r, ACTION_GRADIENT_DONE, stream, here);
}

/* With late_all_reduce only the last micro-batch is summed over replicas. Earlier ones stay sums
 * over the shard group. */
static bool is_partial(const struct reducing *r)
{
	const struct plan *plan = r->step->plan;
	return plan->late_all_reduce && r->at->micro_batch < plan->grad_accum - 1;
}

/* Adds to the partial sum of earlier micro-batches; the first one simply stays. */
static void keep_partial(struct reducing *r)
{
	bool *has_partial = &r->has_partial[r->at->unit];
	if (*has_partial)
		add(r, ACTION_KEEP_PARTIAL, STREAM_REDUCE, 0);
	*has_partial = true;
}

static void reduce_leaves(struct reducing *r, const struct range *range)
{
	struct action action = action_at(r->at, ACTION_REDUCE_STREAM, r->at->unit);
	for (int m = range->first_module; m < range->end_module; m++) {
		action.first_module = m;
		action.end_module = m + 1;
		if (leaf_is_partial(r->step, m))
			action_add(r->step, action);
	}
}

static void reduce_stream(struct reducing *r)
{
	const struct step *step = r->step;
	if (step->group_tensor < 0 || !step->method.adds_in_compute)
		return;
	for (int i = 0; i < step->n_ranges; i++)
		if (step->ranges[i].unit == r->at->unit)
			reduce_leaves(r, &step->ranges[i]);
}

static void reduce(struct reducing *r)
{
	const struct method *method = &r->step->method;
	enum stream stream = STREAM_REDUCE;
	if (!(r->at->flags & SYNCHRONISES)) {
		if (method->copies_out)
			add(r, ACTION_KEEP_UNSHARDED, STREAM_COMPUTE, 0);
		return;
	}
	reduce_stream(r);
	if (method->copies_out)
		add(r, ACTION_COPY_IN, STREAM_COMPUTE, 0);
	else if (method->flattens)
		add(r, ACTION_CAST_FLAT, STREAM_REDUCE, 0);
	if (method->shards)
		add(r, ACTION_SCATTER, STREAM_REDUCE, is_partial(r) ? IS_PARTIAL : 0);
	r->is_in_flight = method->shards && method->copies_out;
	if (is_partial(r)) {
		keep_partial(r);
		return;
	}
	if (r->has_partial[r->at->unit])
		add(r, ACTION_ADD_PARTIAL, STREAM_REDUCE, 0);
	r->has_partial[r->at->unit] = false;
	if (r->step->group_replicate >= 0) {
		stream = method->shards ? STREAM_REPLICATE : STREAM_REDUCE;
		add(r, ACTION_REDUCE_REPLICAS, stream, 0);
	}
	accumulate(r, stream);
}

/* FSDP2 releases the input of the reduction before together with the parameters, so compute waits
 * for that reduction. */
static void reshard(struct reducing *r)
{
	struct action action = *r->at;
	if (r->is_in_flight && (action.flags & IN_BACKWARD)) {
		action.flags |= RELEASES_INPUT;
		r->is_in_flight = false;
	}
	action_add(r->step, action);
}

/* FSDP2 releases the last reduction's input before the optimizer runs. */
static void end_backward(struct reducing *r)
{
	if (r->is_in_flight)
		add(r, ACTION_END_BACKWARD, STREAM_COMPUTE, 0);
	r->is_in_flight = false;
}

static void replace(struct reducing *r)
{
	bool has_parameters = r->at->unit >= 0 && unit_is_trained(r->step, r->at->unit);
	if (r->at->kind == ACTION_RESHARD)
		reshard(r);
	else if (r->at->kind == ACTION_BACKWARD_DONE)
		end_backward(r);
	else if (r->at->kind == ACTION_REDUCE && has_parameters)
		reduce(r);
	else if (r->at->kind == ACTION_UNIT_DONE && has_parameters && r->step->method.flattens)
		add(r, ACTION_FLATTEN, r->step->method.flattens_on, 0);
	else
		action_add(r->step, *r->at);
}

void pass_reduce_units(struct step *step)
{
	struct reducing r = {.step = step};
	if (step->method.reduces != REDUCES_UNITS)
		return;
	struct action_list old = actions_begin(step);
	r.has_shard = ARENA_ARRAY(step->arena, bool, step->n_units);
	r.has_partial = ARENA_ARRAY(step->arena, bool, step->n_units);
	for (int i = 0; i < old.n; i++) {
		r.at = &old.items[i];
		replace(&r);
	}
	actions_end(&old);
}
