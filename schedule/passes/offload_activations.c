/* Activation offload (docs/runtimes.md) edits the list: what a block saves leaves for host memory
 * when its forward has ended, and comes back while the block behind it is in backward. The last
 * block keeps its own, because its backward comes at once. */
#include "schedule/passes/lower.h"

struct offloading {
	struct step *step;
	const struct action *at;
	int *first_ranges; /* per block */
	int slot;          /* the last slot that backward has come to */
	bool is_copying;   /* in forward: the block before has not left the device yet */
};

static enum activation_offload kind_of(const struct offloading *o)
{
	return o->step->plan->activation_offload;
}

static bool block_leaves(const struct offloading *o, int block)
{
	if (block < 0 || block + 1 >= o->step->model->architecture.layers)
		return false;
	return kind_of(o) == ACTIVATIONS_ALL || o->step->checkpointing[block] != CHECKPOINTING_NONE;
}

static void add(struct offloading *o, enum action_kind kind, int range, unsigned flags)
{
	struct action action = action_at(o->at, kind, -1);
	action.range = range;
	action.flags |= flags;
	action_add(o->step, action);
}

/* Copies the block's input, and what its ranges save unless they are computed again. */
static void copy_block(struct offloading *o, enum action_kind kind, int block)
{
	const struct step *step = o->step;
	int first = o->first_ranges[block];
	add(o, kind, first, OF_INPUT);
	if (step->checkpointing[block] != CHECKPOINTING_NONE)
		return;
	for (int r = first; r < step->n_ranges && step->ranges[r].slot == block; r++)
		if (step->ranges[r].saved_bytes > 0)
			add(o, kind, r, 0);
}

/* Compute waits for one copy before the next one begins, so that at most two blocks are on the
 * device. */
static void end_forward(struct offloading *o)
{
	const struct range *range = &o->step->ranges[o->at->range];
	if (range->layer < 0 || !range->last_of_slot)
		return;
	if (o->is_copying)
		add(o, ACTION_END_COPIES, o->at->range, 0);
	o->is_copying = block_leaves(o, range->slot);
	if (o->is_copying)
		copy_block(o, ACTION_SAVE, range->slot);
}

/* A block's tensors were asked for when the block behind it began. */
static void begin_backward(struct offloading *o)
{
	int slot = o->step->ranges[o->at->range].slot;
	if (slot == o->slot)
		return;
	o->slot = slot;
	if (block_leaves(o, slot))
		add(o, ACTION_END_COPIES, o->at->range, 0);
	if (block_leaves(o, slot - 1))
		copy_block(o, ACTION_FETCH, slot - 1);
}

/* The results of experts come back behind their forward, and sums go beside the product that makes
 * them, so the range ends only there. */
static bool ends_range(const struct action *action)
{
	bool forward = !(action->flags & IN_BACKWARD);
	if (action->kind == ACTION_FORWARD)
		return !(action->flags & LEAVES_ROWS) &&
		       (action->flags & (LEAVES_SUM | BESIDE)) != (LEAVES_SUM | BESIDE);
	return forward && (action->kind == ACTION_COMBINE_ROWS ||
				  (action->kind == ACTION_ADD_SUM && action->flags & BESIDE));
}

/* Before the block's backward begins, ours gathers what a norm, or the projections before
 * attention, have saved. Where a gather goes beside a product, backward begins with it. */
static bool gathers_saved(const struct offloading *o)
{
	bool gathers = o->at->kind == ACTION_GATHER_TOKENS || o->at->kind == ACTION_GATHER_KEYS ||
		       o->at->kind == ACTION_DISPATCH_ROWS;
	return gathers && (o->at->flags & IN_BACKWARD) &&
	       (o->step->method.adds_in_compute || o->at->stream == STREAM_PEER);
}

static void find_first_ranges(struct offloading *o)
{
	const struct step *step = o->step;
	o->first_ranges = ARENA_ARRAY(step->arena, int, step->model->architecture.layers);
	for (int r = 0; r < step->n_ranges; r++)
		if (step->ranges[r].layer >= 0 && step->ranges[r].first_of_slot)
			o->first_ranges[step->ranges[r].slot] = r;
}

void pass_offload_activations(struct step *step)
{
	struct offloading o = {.step = step, .slot = -1};
	if (kind_of(&o) == ACTIVATIONS_STAY)
		return;
	struct action_list old = actions_begin(step);
	find_first_ranges(&o);
	for (int i = 0; i < old.n; i++) {
		o.at = &old.items[i];
		if (o.at->kind == ACTION_RECOMPUTE || o.at->kind == ACTION_BACKWARD ||
			gathers_saved(&o))
			begin_backward(&o);
		action_add(step, *o.at);
		if (ends_range(o.at))
			end_forward(&o);
	}
	actions_end(&old);
}

/* --- lowering ------------------------------------------------------------------------------------
 */

/* Returns the tensors that the action moves: its block's input, or what its range saves. */
static int *tensors_of(const struct lowering *l)
{
	struct flight *flight = &l->flights[l->at->flight];
	const struct range *range = &l->step->ranges[l->at->range];
	return l->at->flags & OF_INPUT ? &flight->residuals[range->slot]
				       : &flight->saved[l->at->range];
}

/* Moves the tensors to a buffer like theirs in another pool, and returns the buffer that they
 * leave. */
static int move(struct lowering *l, enum stream pool)
{
	int *tensors = tensors_of(l), from = *tensors;
	struct buffer like = l->step->buffers[from];
	int to = buffer_new(l->step, like.role, pool, like.unit, like.bytes, like.dtype);
	like.pool = pool;
	l->step->buffers[to] = like;
	l->op.bytes = like.bytes;
	op_use(l, from);
	op_take(l, to);
	op_use(l, to);
	*tensors = to;
	return from;
}

/* The buffer stays on the device until compute has waited for the copy. */
void lower_SAVE(struct lowering *l)
{
	l->op.layer = l->step->ranges[l->at->range].layer;
	number_add(&l->leaving, move(l, STREAM_HOST));
}

/* The block behind issues the copy. It waits for compute, so that it can use memory of compute's
 * pool, where all that was given back is free by then. */
void lower_FETCH(struct lowering *l)
{
	l->op.layer = l->step->ranges[l->at->range].layer + 1;
	int from = move(l, STREAM_COMPUTE);
	op_give(l, &from);
}

void lower_END_COPIES(struct lowering *l)
{
	l->op.layer = l->step->ranges[l->at->range].layer;
	for (int i = 0; i < l->leaving.n; i++)
		op_give(l, &l->leaving.items[i]);
	l->leaving.n = 0;
}
