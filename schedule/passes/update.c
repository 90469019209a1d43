/* Adds the end of a step: the gradient norm, clipping, the update, and what is gathered behind it
 * or in the next step's forward. */
#include "schedule/passes/sizes.h"

/* If no stream has anything to update, the device still ends the step. */
static bool has_work(const struct step *step, enum stream stream)
{
	bool has[STREAM_COUNT] = {false};
	for (int u = 0; u < step->n_units; u++)
		if (step->units[u].trained_chunk > 0)
			has[unit_updater(step, u)] = true;
	return has[stream] || (stream == STREAM_COMPUTE && !has[STREAM_HOST]);
}

static void add(
	struct step *step, enum action_kind kind, enum stream stream, int unit, unsigned flags)
{
	struct action action = action_of_step(kind, unit);
	action.stream = stream;
	action.flags = flags;
	action_add(step, action);
}

/* True when ranks have different parts of the model, and no group that shards has all parts. */
static bool has_parts(const struct step *step)
{
	return step->group_tensor >= 0 ||
	       (step->group_expert >= 0 && step->method.adds_in_compute && !step->method.shards);
}

/* The second part adds to the scalars of the first. */
static void add_norm(struct step *step, bool on_device, bool on_host)
{
	if (on_device)
		add(step, ACTION_NORM, STREAM_COMPUTE, -1, FIRST);
	if (on_host)
		add(step, ACTION_NORM, STREAM_HOST, -1, on_device ? 0 : FIRST);
	if (step->method.shards && plan_shard_ranks(step->plan) > 1)
		add(step, ACTION_REDUCE_NORM, STREAM_REDUCE, -1, 0);
	if (has_parts(step))
		add(step, ACTION_REDUCE_NORM_PARTS, STREAM_REDUCE, -1, 0);
	if (step->group_forward >= 0)
		add(step, ACTION_REDUCE_NORM_STAGES, STREAM_REDUCE, -1, 0);
}

static void add_clip(struct step *step, bool on_device, bool on_host)
{
	if (on_device)
		add(step, ACTION_CLIP, STREAM_COMPUTE, -1, 0);
	if (on_host)
		add(step, ACTION_CLIP, STREAM_HOST, -1, 0);
}

/* Returns the last unit with trained parameters that the stream updates, or -1. */
static int last_unit(const struct step *step, enum stream stream)
{
	int last = step->n_units - 1;
	while (last >= 0 && (!unit_is_trained(step, last) || unit_updater(step, last) != stream))
		last--;
	return last;
}

/* Adds what the stream updates, in one operation or in one for each unit. Where all ranks keep all
 * parameters, the updated ones are gathered. */
static void add_updates(struct step *step, enum stream stream, unsigned last)
{
	int end = last_unit(step, stream);
	if (!step->method.update_per_unit) {
		add(step, ACTION_UPDATE, stream, -1, last);
		return;
	}
	for (int u = 0; u <= end; u++) {
		if (!unit_is_trained(step, u) || unit_updater(step, u) != stream)
			continue;
		add(step, ACTION_UPDATE, stream, u, u == end ? last : 0);
		if (step->method.keeps_units)
			action_add_gather(step, action_of_step(ACTION_GATHER, u), false);
	}
}

/* Updated shards go into the rank's part of the whole parameters, which are gathered in place. */
static void add_whole(struct step *step)
{
	action_add(step, action_of_step(ACTION_CAST_WHOLE, -1));
	if (step->group_gather >= 0)
		action_add(step, action_of_step(ACTION_GATHER_WHOLE, -1));
}

static void gather_buckets(struct step *step)
{
	for (int u = step->n_units - 1; u >= 0; u--)
		if (unit_group(step, u) >= 0 && unit_is_trained(step, u))
			action_add(step, action_of_step(ACTION_GATHER_BUCKET, u));
}

/* Updated shards are cast to the compute dtype, and every rank gets the small parameters again. */
static void add_leaves(struct step *step)
{
	const struct action at = action_of_step(ACTION_CAST_LEAVES, -1);
	struct slice kept = {step->lists.n, 0};
	action_add(step, at);
	for (int u = 0; u < step->n_units && step->group_gather >= 0; u++)
		if (step->resident[u].kept >= 0)
			number_add(&step->lists, u);
	kept.count = step->lists.n - kept.first;
	if (kept.count > 0)
		action_add_gather_of_leaves(step, &at, kept, -1);
	for (int i = 0; i < kept.count; i++) {
		struct action unpack =
			action_of_step(ACTION_UNPACK_LEAF, step->lists.items[kept.first + i]);
		unpack.flags = i == kept.count - 1 ? LAST : 0;
		action_add(step, unpack);
	}
}

static void add_alike(struct step *step)
{
	if (step->group_tensor >= 0 && step->method.sums_alike && partial_parameters(step) > 0)
		action_add(step, action_of_step(ACTION_REDUCE_ALIKE, -1));
}

/* The gradients of the table that the first and the last stage share become one. */
static void add_table(struct step *step)
{
	bool has = step->class == 0 || step->class == step->pipeline.ranks - 1;
	if (step->group_table >= 0 && has)
		action_add(step, action_of_step(ACTION_REDUCE_TABLE, -1));
}

/* The updates of the device are issued first, because those of the host keep the issuing thread
 * busy. The last update ends the scalars of the norm. */
void pass_update(struct step *step)
{
	bool on_device = has_work(step, STREAM_COMPUTE), on_host = has_work(step, STREAM_HOST);
	add_alike(step);
	add_table(step);
	if (step->plan->clip > 0 || step->method.measures_norm)
		add_norm(step, on_device, on_host);
	if (step->plan->clip > 0)
		add_clip(step, on_device, on_host);
	if (on_device)
		add_updates(step, STREAM_COMPUTE, on_host ? 0 : LAST);
	if (on_host)
		add_updates(step, STREAM_HOST, LAST);
	if (step->method.gathers == GATHERS_AT_END)
		add_whole(step);
	if (step->method.weights == WEIGHTS_WHOLE_BUCKETS)
		action_add(step, action_of_step(ACTION_CAST_BUCKETS, -1));
	if (step->method.gathers == GATHERS_BUCKETS_AT_END)
		gather_buckets(step);
	if (step->method.gathers == GATHERS_BY_TRACE)
		add_leaves(step);
}

/* Lists the buckets of experts, or those of the rest, the last one first. */
struct chain {
	int first, last, next;
};

static struct chain chain_of(const struct step *step, bool of_experts)
{
	struct chain chain = {step->n_units, -1, -1};
	for (int u = 0; u < step->n_units; u++) {
		if (step->units[u].of_experts != of_experts || unit_group(step, u) < 0 ||
			!unit_is_trained(step, u))
			continue;
		chain.first = u < chain.first ? u : chain.first;
		chain.last = chain.next = u;
	}
	return chain;
}

static void gather_next(struct step *step, struct chain *chain, const struct action *at)
{
	while (chain->next >= chain->first &&
		(chain->next == chain->last || step->bucket_done[chain->next + 1] <= at->range))
		action_add(step, action_at(at, ACTION_GATHER_BUCKET, chain->next--));
}

/* Of interleaved stages, those of the rank's first two are gathered at the start of the step, and
 * those of each further one when the first rank begins with the stage before it (schedules.py,
 * param_sync_func; --no-align-param-gather is not modelled). No gather waits for a message. */
static void gather_chunks(struct step *step, struct chain *chain, const struct action *at, int pass)
{
	int group = step->pipeline.group > 0 ? step->pipeline.group : step->pipeline.ranks;

	for (; chain->next >= chain->first; chain->next--) {
		int before = step->ranges[step->bucket_done[chain->next]].chunk - 1;
		bool begins = pass + step->class >= before * group || at->chunk >= before;
		if (before > 0 && !begins)
			return;
		struct action gather = action_at(at, ACTION_GATHER_BUCKET, chain->next);
		gather.micro_batch = 0; /* whichever begins here: no other brings one */
		action_add(step, gather);
	}
}

/* Gathers each bucket when compute begins with the one before it, and the first two at the start of
 * the step. Buckets are numbered in the order in which backward fills them. */
void pass_gather_by_bucket(struct step *step)
{
	if (step->method.gathers != GATHERS_BY_BUCKET || step->group_gather < 0)
		return;
	struct chain rest = chain_of(step, false), experts = chain_of(step, true);
	struct action_list old = actions_begin(step);
	for (int i = 0, passes = 0; i < old.n; i++) {
		const struct action *at = &old.items[i];
		if (step->pipeline.chunks > 1) {
			if (at->kind == ACTION_PASS_BEGINS && !(at->flags & IN_BACKWARD)) {
				gather_chunks(step, &rest, at, passes);
				gather_chunks(step, &experts, at, passes++);
			}
		} else if (at->kind == ACTION_FORWARD && at->micro_batch == 0) {
			gather_next(step, &rest, at);
			gather_next(step, &experts, at);
		}
		action_add(step, *at);
	}
	actions_end(&old);
}
