/* What ranks exchange that divide the model: tokens of the residual stream, sums of the loss, keys
 * and values, rows for experts; between stages the residual stream itself, and its gradient. */
#include "schedule/passes/lower.h"

/* The operation belongs to the leaves of its range, and is of no unit: no parameters move. */
static void set_exchange(struct lowering *l, int group, int64_t bytes)
{
	op_set_range(l, l->at->range);
	l->op.group = group;
	l->op.bytes = bytes;
}

static void take_gathered(struct lowering *l, int *buffer)
{
	*buffer =
		op_take_new(l, BUFFER_GATHERED_TOKENS, -1, l->op.bytes, l->step->plan->param_dtype);
}

/* Where autograd keeps the gathered input, it is among the tensors of the norm before. */
void lower_GATHER_TOKENS(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	const struct range *range = &l->step->ranges[l->at->range];
	bool is_input = l->at->flags & OF_INPUT;
	set_exchange(l, l->step->group_tensor, exchanged_tokens_bytes(l->step));
	if (is_input && l->step->rules.keeps_gathered_input && !range->first_of_slot)
		op_use(l, flight->saved[l->at->range - 1]);
	else if (range_has_head(l->step, l->at->range) && l->step->gather_buffer >= 0)
		op_use(l, flight->gathered[is_input] = l->step->gather_buffer);
	else
		take_gathered(l, &flight->gathered[is_input]);
}

void lower_SCATTER_TOKENS(struct lowering *l)
{
	set_exchange(l, l->step->group_tensor, exchanged_tokens_bytes(l->step));
	op_use(l, flight_of(l)->partial);
	op_give(l, &flight_of(l)->partial);
}

void lower_REDUCE_TOKENS(struct lowering *l)
{
	lower_SCATTER_TOKENS(l);
}

void lower_REDUCE_LOSS(struct lowering *l)
{
	l->op.group = l->step->group_tensor;
	l->op.dtype = DTYPE_FP32;
	l->op.bytes = exchanged_loss_bytes(l->step);
	int sums = op_take_new(l, BUFFER_PARTIAL_SUMS, -1, l->op.bytes, DTYPE_FP32);
	op_give(l, &sums);
}

void lower_GATHER_KEYS(struct lowering *l)
{
	set_exchange(l, l->step->group_context, exchanged_keys_bytes(l->step));
	take_gathered(l, &flight_of(l)->keys);
}

void lower_SCATTER_KEYS(struct lowering *l)
{
	set_exchange(l, l->step->group_context, exchanged_keys_bytes(l->step));
	op_use(l, flight_of(l)->partial_keys);
	op_give(l, &flight_of(l)->partial_keys);
}

static int take_rows(struct lowering *l, int64_t bytes)
{
	return op_take_new(l, BUFFER_ROWS, -1, bytes, l->op.dtype);
}

void lower_COUNT_ROWS(struct lowering *l)
{
	l->op.dtype = DTYPE_INT64;
	set_exchange(l, l->step->group_expert, row_counts_bytes(l->step));
	int counts = take_rows(l, l->op.bytes);
	op_give(l, &counts);
}

/* The rank's own rows, in the order of their experts, are a copy that ends with it. */
void lower_DISPATCH_ROWS(struct lowering *l)
{
	set_exchange(l, l->step->group_expert, received_rows_bytes(l->step));
	int sent = take_rows(l, sent_rows_bytes(l->step));
	flight_of(l)->rows[l->at->range] = take_rows(l, l->op.bytes);
	op_give(l, &sent);
}

/* Results that come back are among the saved tensors. */
void lower_COMBINE_ROWS(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	set_exchange(l, l->step->group_expert, received_rows_bytes(l->step));
	op_use(l, flight->rows_leaving);
	op_give(l, &flight->rows_leaving);
	if (l->at->flags & OF_INPUT)
		op_use(l, flight->saved[l->at->range]);
	else
		flight->rows_returned = take_rows(l, sent_rows_bytes(l->step));
}

/* --- between stages of a pipeline ----------------------------------------------------------------
 */

static bool is_back(const struct lowering *l)
{
	return l->at->flags & IN_BACKWARD;
}

/* torch.distributed.pipelining has a communicator for each two ranks. */
static enum stream stream_with(const struct step *step, enum op_kind kind, int peer)
{
	bool is_next = !pipeline_splits_backward(step->pipeline.schedule) ||
		       peer == (step->class + 1) % step->pipeline.ranks;
	if (kind == OP_SEND)
		return is_next ? STREAM_SEND : STREAM_SEND_BACK;
	return is_next ? STREAM_RECEIVE : STREAM_RECEIVE_BACK;
}

/* `distance` to the stage at the other end. */
static void set_message(struct lowering *l, int distance)
{
	const struct step *step = l->step;
	int rank, chunk, stage = pipeline_stage(&step->pipeline, step->class, l->at->chunk);
	pipeline_place(&step->pipeline, stage + distance, &rank, &chunk);
	l->op.group = is_back(l) ? step->group_backward : step->group_forward;
	l->op.bytes = residual_bytes(step);
	l->op.stream = stream_with(step, l->op.kind, rank);
	l->op.message = (struct message){.peer = rank,
		.chunk = l->op.kind == OP_SEND ? l->at->chunk : chunk,
		.direction = is_back(l) ? DIRECTION_BACKWARD : DIRECTION_FORWARD};
}

/* The input of the first range of the stage, or the output of the last one. */
static int *residual_at(struct lowering *l, bool is_output)
{
	int range = l->step->last_ranges[l->at->chunk];
	if (is_output)
		return &flight_of(l)->residuals[l->step->ranges[range].slot + 1];
	while (!l->step->ranges[range].first_of_chunk)
		range--;
	return &flight_of(l)->residuals[l->step->ranges[range].slot];
}

/* What the pass through a stage of the rank begins with, before it has a flight. */
static int *handed_to(struct lowering *l, int chunk)
{
	return &l->handed[chunk * (int)l->step->plan->grad_accum + l->at->micro_batch];
}

/* Without a message the residual stream is one tensor of both stages (PyTorch: detached, of the
 * same storage). */
void lower_hand_over(struct lowering *l)
{
	const struct pipeline *pipeline = &l->step->pipeline;
	int stage = pipeline_stage(pipeline, l->step->class, l->at->chunk);
	int *handed = is_back(l) ? &flight_of(l)->backward_work : residual_at(l, true);
	int rank, chunk;
	pipeline_place(pipeline, stage + (is_back(l) ? -1 : 1), &rank, &chunk);
	*handed_to(l, chunk) = *handed;
	if (is_back(l) || !runtime_of(l->step->plan->runtime)->keeps_stage_output)
		*handed = -1;
	else
		number_add(&l->shared, *handed);
}

void lower_take_over(struct lowering *l)
{
	int *taken = is_back(l) ? &flight_of(l)->received : residual_at(l, false);
	*taken = *handed_to(l, l->at->chunk);
}

void lower_SEND(struct lowering *l)
{
	int *sent = is_back(l) ? &flight_of(l)->backward_work : residual_at(l, true);
	set_message(l, is_back(l) ? -1 : 1);
	op_use(l, *sent);
	if (is_back(l) || !runtime_of(l->step->plan->runtime)->keeps_stage_output)
		op_give(l, sent);
}

void lower_RECEIVE(struct lowering *l)
{
	int *received = l->at->flight < 0 ? handed_to(l, l->at->chunk)
			: is_back(l)      ? &flight_of(l)->received
					  : residual_at(l, false);
	set_message(l, is_back(l) ? 1 : -1);
	*received = op_take_new(l, is_back(l) ? BUFFER_RESIDUAL_GRADIENT : BUFFER_RESIDUAL, -1,
		l->op.bytes, l->step->plan->param_dtype);
}
