/* Reduces gradients of buckets. That is DistributedDataParallel; and ZeRO with whole parameters,
 * where every rank reduces all gradients, updates its shard and gathers the rest: DeepSpeed's
 * stages 1 and 2, nanotron's ZeRO-1 and DDP, InternEvo's ZeRO-1, Megatron-LM's DDP and distributed
 * optimizer (docs/runtimes.md). Master copies are cut per bucket, which adds up to the same. */
#include "schedule/passes/sizes.h"

struct reducing {
	struct step *step;
	const struct action *at;
	bool *has_gradient; /* per range: backward has left one that is not collected yet */
	/* These are lists of buckets: per range the first one that it completes, and per bucket the
	 * next one of the same range. -1 ends a list. */
	int *first_done, *next_done;
};

static void add(struct reducing *r, enum action_kind kind, enum stream stream, int unit, int range)
{
	struct action action = action_at(r->at, kind, unit);
	action.stream = stream;
	action.range = range;
	action_add(r->step, action);
}

static void add_reduction(struct reducing *r, int bucket)
{
	if (unit_group(r->step, bucket) >= 0)
		add(r, ACTION_REDUCE_BUCKET, STREAM_REDUCE, bucket, -1);
}

/* Reduces a bucket and copies the rank's slice out of it. */
static void cut(struct reducing *r, int bucket)
{
	enum stream stream = r->step->method.overlaps ? STREAM_REDUCE : STREAM_COMPUTE;
	add(r, ACTION_FLATTEN_BUCKET, STREAM_COMPUTE, bucket, -1);
	add_reduction(r, bucket);
	add(r, ACTION_KEEP_SLICE, stream, bucket, -1);
	add(r, ACTION_GRADIENT_DONE, stream, bucket, -1);
}

static void scatter(struct reducing *r, int bucket)
{
	if (unit_group(r->step, bucket) >= 0)
		add(r, ACTION_SCATTER_BUCKET, STREAM_REDUCE, bucket, -1);
	if (r->step->group_replicate >= 0)
		add(r, ACTION_REDUCE_SLICE, STREAM_REDUCE, bucket, -1);
}

static void reduce(struct reducing *r, int bucket)
{
	switch (r->step->method.buckets) {
	case BUCKETS_COPIED_BACK:
		if (r->step->group_replicate >= 0)
			add(r, ACTION_FILL_BUCKET, STREAM_COMPUTE, bucket, -1);
		add_reduction(r, bucket);
		break;
	case BUCKETS_ADDED_UP:
		if (r->step->method.adds_in_hook)
			add(r, ACTION_ADD_IN_HOOK, STREAM_COMPUTE, bucket, -1);
		if (r->step->method.scatters)
			scatter(r, bucket);
		else
			add_reduction(r, bucket);
		break;
	case BUCKETS_CUT:
		cut(r, bucket);
		break;
	}
}

/* The gradients of a range are complete after its own backward, but with a tied weight those of the
 * head only after the backward of the embedding. */
static bool completes(const struct step *step, int range, int done)
{
	int tied = step->model->modules[step->model->n_modules - 1].tied_parameter;
	bool head = step->ranges[range].end_module == step->model->n_modules;
	return head && tied >= 0 ? step->owners[tied] == done : range == done;
}

/* DeepSpeed copies complete gradients into a collecting buffer, which frees their own buffers. */
static void collect(struct reducing *r)
{
	for (int range = r->step->n_ranges - 1; range >= r->at->range; range--) {
		if (!r->has_gradient[range] || !completes(r->step, range, r->at->range))
			continue;
		add(r, ACTION_COLLECT_RANGE, STREAM_COMPUTE, -1, range);
		r->has_gradient[range] = false;
	}
}

static void range_done(struct reducing *r)
{
	const struct method *method = &r->step->method;
	r->has_gradient[r->at->range] = range_parameters(r->step, r->at->range) >
					range_tied_parameters(r->step, r->at->range);
	if (!(r->at->flags & SYNCHRONISES) || method->reduces_late)
		return;
	if (method->collector_elements > 0)
		collect(r);
	for (int u = r->first_done[r->at->range]; u >= 0; u = r->next_done[u])
		reduce(r, u);
}

/* DDP copies its buckets back into the gradients when the last one has been reduced. */
static void copy_back(struct reducing *r)
{
	if (!(r->at->flags & SYNCHRONISES) || r->step->group_replicate < 0)
		return;
	for (int u = 0; u < r->step->n_units; u++)
		if (unit_is_trained(r->step, u))
			add(r, ACTION_EMPTY_BUCKET, STREAM_COMPUTE, u, -1);
}

/* Backward ends when the last of the rank's stages has come to its end. */
static void backward_done(struct reducing *r)
{
	const struct method *method = &r->step->method;
	bool synchronises = r->at->flags & SYNCHRONISES;
	if (!(r->at->flags & LAST))
		return;
	if (method->buckets == BUCKETS_COPIED_BACK) {
		copy_back(r);
		return;
	}
	if (method->buckets == BUCKETS_ADDED_UP && !method->adds_at_once &&
		(!synchronises || method->reduces_late))
		add(r, ACTION_ADD_TO_COPIES, STREAM_COMPUTE, -1, -1);
	for (int u = 0; u < r->step->n_units && synchronises && method->reduces_late; u++)
		if (unit_is_trained(r->step, u))
			reduce(r, u);
	if (synchronises)
		add(r, ACTION_RELEASE_GRADIENTS, STREAM_COMPUTE, -1, -1);
}

static void sort_buckets(struct reducing *r)
{
	const struct step *step = r->step;
	r->first_done = ARENA_ARRAY(step->arena, int, step->n_ranges);
	r->next_done = ARENA_ARRAY(step->arena, int, step->n_units);
	for (int range = 0; range < step->n_ranges; range++)
		r->first_done[range] = -1;
	for (int u = step->n_units - 1; u >= 0; u--) {
		int range = step->bucket_done[u];
		if (range < 0 || range >= step->n_ranges)
			continue;
		r->next_done[u] = r->first_done[range];
		r->first_done[range] = u;
	}
}

void pass_reduce_buckets(struct step *step)
{
	struct reducing r = {.step = step};
	if (step->method.reduces != REDUCES_BUCKETS)
		return;
	struct action_list old = actions_begin(step);
	r.has_gradient = ARENA_ARRAY(step->arena, bool, step->n_ranges);
	sort_buckets(&r);
	for (int i = 0; i < old.n; i++) {
		r.at = &old.items[i];
		if (r.at->kind == ACTION_RANGE_DONE)
			range_done(&r);
		else if (r.at->kind == ACTION_BACKWARD_DONE)
			backward_done(&r);
		else
			action_add(step, *r.at);
	}
	actions_end(&old);
}
