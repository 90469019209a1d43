/* Activation offload moves a block's saved tensors between the device and host memory. */
#include "schedule/passes/lower.h"

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
