/* Lowers what ranks that divide the model exchange: tokens of the residual stream, sums of the
 * loss, keys and values. Between stages they exchange the residual stream itself and its gradient.
 */
#include "schedule/passes/lower.h"

void op_set_exchange(struct lowering *l, int group, int64_t bytes)
{
	op_set_range(l, l->at->range);
	if (l->at->end_module > 0) {
		l->op.first_module = l->at->first_module;
		l->op.end_module = l->at->end_module;
	}
	l->op.group = group;
	l->op.bytes = bytes;
}

static void take_gathered(struct lowering *l, int *buffer)
{
	*buffer = op_take_new(l, BUFFER_GATHERED_TOKENS, -1, l->op.bytes, l->op.dtype);
}

/* Gathers the input of the layer that a range begins with, or the gradient for the layer that ends
 * it. */
static void gather_in_fp8(struct lowering *l, bool is_input)
{
	const struct range *range = &l->step->ranges[l->at->range];
	int leaf = is_input ? range->first_module : range->end_module - 1;
	int64_t bytes =
		fp8_gathered_bytes(l->step->plan, l->op.bytes / dtype_bytes(l->op.dtype), is_input);
	if (bytes == l->op.bytes || !fp8_converts(l->step->plan, l->step->model, leaf) ||
		(is_input && fp8_is_read_by_adapter(l->step->plan, l->step->model, leaf)))
		return;
	l->op.bytes = bytes;
	l->op.dtype = DTYPE_FP8;
}

void op_use_stream_gradient(struct lowering *l)
{
	const struct flight *flight = flight_of(l);
	op_use(l, flight->backward_work >= 0 ? flight->backward_work : flight->received);
}

/* Uses the rank's part of what is gathered: the result of the norm before, or the gradient of the
 * residual stream. */
static void use_own_tokens(struct lowering *l, bool is_input)
{
	struct flight *flight = flight_of(l);
	if (!is_input) {
		op_use_stream_gradient(l);
		return;
	}
	op_use(l, flight->saved[l->at->range - 1]);
	op_use(l, flight->results[l->at->range - 1]);
}

static bool gathers_in_buffer(const struct lowering *l, bool is_input)
{
	const int *buffers = l->step->gather_buffers;
	bool of_head = buffers[false] == buffers[true];
	return buffers[is_input] >= 0 && (!of_head || range_has_head(l->step, l->at->range));
}

/* Where autograd keeps the gathered input, it lies among the tensors of the norm before. */
void lower_GATHER_TOKENS(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	const struct range *range = &l->step->ranges[l->at->range];
	bool is_input = l->at->flags & OF_INPUT;
	op_set_exchange(l, l->step->group_tensor, exchanged_tokens_bytes(l->step));
	gather_in_fp8(l, is_input);
	if (l->step->method.adds_in_compute)
		use_own_tokens(l, is_input);
	if (is_input && l->step->rules.keeps_gathered_input && !range->first_of_slot)
		op_use(l, flight->saved[l->at->range - 1]);
	else if (gathers_in_buffer(l, is_input))
		op_use(l, flight->gathered[is_input] = l->step->gather_buffers[is_input]);
	else
		take_gathered(l, &flight->gathered[is_input]);
}

/* Beside the product that makes them, tokens live until they are added up. */
void lower_SCATTER_TOKENS(struct lowering *l)
{
	int *partial = &flight_of(l)->partial, sums = -1;
	op_set_exchange(l, l->step->group_tensor, exchanged_tokens_bytes(l->step));
	if (l->at->flags & BESIDE) {
		op_use(l, *partial);
		return;
	}
	op_use(l, *partial);
	if (l->step->method.adds_in_compute)
		sums = op_take_new(l, BUFFER_PARTIAL_SUMS, -1,
			l->op.bytes / l->step->plan->mesh.tensor, l->step->plan->param_dtype);
	op_give(l, partial);
	*partial = sums;
}

void lower_REDUCE_TOKENS(struct lowering *l)
{
	op_set_exchange(l, l->step->group_tensor, exchanged_tokens_bytes(l->step));
	op_use(l, flight_of(l)->partial);
	if (!l->step->method.adds_in_compute)
		op_give(l, &flight_of(l)->partial);
}

/* Returns the input of the first range of the stage, or the output of the last one. */
static int *residual_at(struct lowering *l, bool is_output)
{
	int range = l->step->last_ranges[l->at->chunk];
	if (is_output)
		return &flight_of(l)->residuals[l->step->ranges[range].slot + 1];
	while (!l->step->ranges[range].first_of_chunk)
		range--;
	return &flight_of(l)->residuals[l->step->ranges[range].slot];
}

/* Adds the sum at the end of a stage, or adds up the parts of the rank's tokens that have come from
 * all ranks. */
void lower_ADD_SUM(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	int64_t parts = exchanged_tokens_bytes(l->step);
	bool of_parts = l->at->flags & BESIDE;
	op_set_range(l, l->at->range);
	if (!of_parts)
		op_use(l, *residual_at(l, true));
	op_use(l, flight->partial);
	op_give(l, &flight->partial);
	l->op.bytes =
		of_parts ? parts + parts / l->step->plan->mesh.tensor : 3 * residual_bytes(l->step);
}

/* An adapter cannot read tokens that its layer gathers in pieces, and gathers them by itself
 * (Megatron-Bridge, get_adapter_attributes_from_linear). */
static void exchange_adapter(struct lowering *l, enum buffer_role role)
{
	const struct plan *plan = l->step->plan;
	bool apart = plan->async_tensor && runtime_of(plan->runtime)->layers_exchange;
	op_set_exchange(l, l->step->group_tensor,
		exchanged_adapter_bytes(l->step) + (apart ? exchanged_tokens_bytes(l->step) : 0));
	int buffer = op_take_new(l, role, -1, l->op.bytes, l->op.dtype);
	op_give(l, &buffer);
}

void lower_GATHER_ADAPTER(struct lowering *l)
{
	exchange_adapter(l, BUFFER_GATHERED_TOKENS);
}

void lower_SCATTER_ADAPTER(struct lowering *l)
{
	exchange_adapter(l, BUFFER_PARTIAL_SUMS);
}

void lower_REDUCE_LOSS(struct lowering *l)
{
	l->op.group = l->step->group_tensor;
	l->op.dtype = DTYPE_FP32;
	l->op.bytes = exchanged_loss_bytes(l->step);
	int sums = op_take_new(l, BUFFER_PARTIAL_SUMS, -1, l->op.bytes, DTYPE_FP32);
	op_give(l, &sums);
}

void lower_GATHER_LOSS(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	l->op.group = l->step->group_tensor;
	l->op.dtype = DTYPE_FP32;
	l->op.bytes = l->step->plan->mesh.tensor * LOSS_PARTS * exchanged_loss_bytes(l->step);
	op_use(l, flight->partial);
	flight->gathered[0] = op_take_new(l, BUFFER_GATHERED_TOKENS, -1, l->op.bytes, DTYPE_FP32);
	op_give(l, &flight->partial);
}

static void use_saved(struct lowering *l, int range)
{
	op_use(l, flight_of(l)->saved[range]);
	op_use(l, flight_of(l)->results[range]);
}

/* Uses queries, keys and values of the rank's tokens, as they are saved. */
static void use_projections(struct lowering *l)
{
	use_saved(l, l->at->range - 1);
}

/* Uses the result of attention, and its gradient. */
static void use_attention_back(struct lowering *l)
{
	use_saved(l, l->at->range);
	op_use(l, flight_of(l)->backward_work);
	op_use(l, flight_of(l)->stage_work);
}

/* Ours hands them to the next backward in a buffer of their own. */
void lower_SCATTER_KEYS(struct lowering *l)
{
	int *partial = &flight_of(l)->partial_keys, sums = -1;
	op_set_exchange(l, l->step->group_context, exchanged_keys_bytes(l->step));
	op_use(l, *partial);
	if (l->step->method.adds_in_compute)
		sums = op_take_new(l, BUFFER_PARTIAL_SUMS, -1,
			l->op.bytes / l->step->plan->mesh.context, l->step->plan->param_dtype);
	op_give(l, partial);
	*partial = sums;
}

/* --- a ring of context ranks ---------------------------------------------------------------------
 */

static const struct ring_rules *ring_of(const struct lowering *l)
{
	return runtime_of(l->step->plan->runtime)->ring;
}

/* Gives the first n blocks back. */
static void give_blocks(struct lowering *l, int n)
{
	for (int i = 0; i < n; i++)
		op_give(l, &l->blocks.items[i]);
	for (int i = n; i < l->blocks.n; i++)
		l->blocks.items[i - n] = l->blocks.items[i];
	l->blocks.n -= n;
}

/* A block lives until it has been computed with and, unless a copy of it is sent, sent on, which is
 * certain in the next round. All rounds but the first compute with gathered blocks. */
static void use_blocks(struct lowering *l, bool is_back)
{
	const struct ring_rules *ring = ring_of(l);
	bool ends = l->at->flags & ENDS_ROUNDS;
	bool gathers = l->step->plan->context_method == CONTEXT_ALL_GATHER;
	int here = gathers ? (l->results < 0 ? -1 : 0) : l->blocks.n - (ends ? 1 : 2);
	if (here >= 0)
		op_use(l, l->blocks.items[here]);
	if (ends)
		give_blocks(l, l->blocks.n);
	else if (!gathers && (!ring->keeps_blocks || is_back))
		give_blocks(l, ring->copies_blocks ? here + 1 : here < 0 ? 0 : here);
}

static int take_results(struct lowering *l, bool is_back)
{
	return op_take_new(l, BUFFER_PARTIAL_SUMS, -1,
		is_back ? ring_sums_bytes(l->step) : ring_results_bytes(l->step),
		l->step->plan->param_dtype);
}

void op_use_round(struct lowering *l)
{
	bool is_back = op_kind_is_backward(l->op.kind);
	use_blocks(l, is_back);
	if (l->results < 0)
		l->results = take_results(l, is_back);
	else if (is_back && ring_of(l)->keeps_own_sums)
		l->found = take_results(l, true);
	else
		op_use(l, l->results);
	if (!is_back && l->at->flags & ENDS_ROUNDS)
		op_give(l, &l->results);
}

void op_end_ring(struct lowering *l)
{
	op_use(l, l->results);
	op_use(l, l->sums);
	op_give(l, &l->results);
	op_give(l, &l->sums);
}

/* The sum so far is added to before it is sent on, and nothing else reads it. */
static void take_sums(struct lowering *l)
{
	int sums = op_take_new(
		l, BUFFER_PARTIAL_SUMS, -1, ring_sums_bytes(l->step), l->step->plan->param_dtype);
	op_give(l, &l->sums);
	l->sums = sums;
}

/* Takes what arrives for the rounds. What is sent may first be put together in a copy. */
static void take_block(struct lowering *l, int64_t sent_bytes, int64_t bytes, bool copies)
{
	if (copies) {
		int sent = op_take_new(l, BUFFER_GATHERED_TOKENS, -1, sent_bytes, l->op.dtype);
		op_give(l, &sent);
	}
	number_add(&l->blocks, op_take_new(l, BUFFER_GATHERED_TOKENS, -1, bytes, l->op.dtype));
}

/* Torch gathers for its rounds what a ring would send. */
void lower_GATHER_KEYS(struct lowering *l)
{
	if (l->at->flags & IN_ROUNDS) {
		int64_t block = key_block_bytes(l->step);
		op_set_exchange(l, l->step->group_context, l->step->plan->mesh.context * block);
		take_block(l, block, l->op.bytes, ring_of(l)->copies_blocks);
		return;
	}
	op_set_exchange(l, l->step->group_context, exchanged_keys_bytes(l->step));
	if (l->step->method.adds_in_compute)
		use_projections(l);
	take_gathered(l, &flight_of(l)->keys);
}

void lower_ROTATE_KEYS(struct lowering *l)
{
	int64_t block = key_block_bytes(l->step);
	bool alone = l->at->flags & OF_INPUT, is_first = l->at->flags & FIRST;
	op_set_exchange(l, l->step->group_context, block + (alone ? 0 : ring_sums_bytes(l->step)));
	if (l->step->method.adds_in_compute && is_first)
		use_projections(l);
	else if (l->step->method.adds_in_compute)
		op_use(l, l->blocks.items[l->blocks.n - 1]);
	take_block(l, block, block, is_first || ring_of(l)->copies_blocks);
	if (!alone)
		take_sums(l);
}

void lower_ROTATE_SUMS(struct lowering *l)
{
	if (ring_of(l)->fp32_sums)
		l->op.dtype = DTYPE_FP32;
	op_set_exchange(l, l->step->group_context, ring_sums_bytes(l->step));
	op_use(l, l->found);
	if (l->found >= 0)
		op_use(l, l->sums);
	take_sums(l);
	op_give(l, &l->found);
}

static void round_of(struct lowering *l)
{
	op_set_range(l, l->at->range);
	op_use_slot(l);
	op_use_round(l);
}

void lower_ROUND_FORWARD(struct lowering *l)
{
	round_of(l);
	if (l->step->plan->context_method == CONTEXT_ALL_GATHER)
		l->op.rounds = (int)plan_attention_rounds(l->step->plan) - 1;
}

void lower_ROUND_RECOMPUTE(struct lowering *l)
{
	lower_ROUND_FORWARD(l);
}

void lower_ROUND_BACKWARD(struct lowering *l)
{
	round_of(l);
	op_use(l, flight_of(l)->backward_work);
	op_use(l, flight_of(l)->stage_work);
}

/* --- heads for tokens ----------------------------------------------------------------------------
 */

/* What is sent is first put in order, in a copy. */
static void take_sent(struct lowering *l)
{
	int sent = op_take_new(l, BUFFER_GATHERED_TOKENS, -1, l->op.bytes, l->op.dtype);
	op_give(l, &sent);
}

/* Where a block computes two attentions again, nobody reads the result of the first. */
void lower_CUT_HEADS(struct lowering *l)
{
	bool is_forward = l->at->flags & OF_INPUT;
	op_set_exchange(l, l->step->group_context, cut_heads_bytes(l->step, is_forward));
	take_sent(l);
	if (l->step->method.adds_in_compute) {
		use_projections(l);
		if (!is_forward)
			use_attention_back(l);
	}
	op_give(l, &flight_of(l)->keys);
	take_gathered(l, &flight_of(l)->keys);
}

/* Ours needs no copy, because attention has left the result in order. Gradients go to where the
 * next backward finds those of other ranks. */
static void join_left(struct lowering *l, int *left)
{
	int came;
	op_use(l, *left);
	if (l->at->flags & OF_INPUT) {
		take_gathered(l, &flight_of(l)->keys);
		op_give(l, left);
		return;
	}
	came = op_take_new(l, BUFFER_PARTIAL_SUMS, -1, l->op.bytes, l->op.dtype);
	op_give(l, left);
	*left = came;
}

void lower_JOIN_HEADS(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	bool is_forward = l->at->flags & OF_INPUT;
	op_set_exchange(l, l->step->group_context, exchanged_heads_bytes(l->step, !is_forward));
	if (l->step->method.adds_in_compute) {
		join_left(l, &flight->partial_keys);
		return;
	}
	take_sent(l);
	take_gathered(l, &flight->keys);
	op_use(l, is_forward ? flight->saved[l->at->range] : flight->partial_keys);
	op_give(l, &flight->partial_keys);
}

/* --- between stages of a pipeline ----------------------------------------------------------------
 */

static bool is_back(const struct lowering *l)
{
	return l->at->flags & IN_BACKWARD;
}

/* torch.distributed.pipelining has a communicator for each pair of ranks. */
static enum stream stream_with(const struct step *step, enum op_kind kind, int peer)
{
	bool is_next = !pipeline_splits_backward(step->pipeline.schedule) ||
		       peer == (step->class + 1) % step->pipeline.ranks;
	if (kind == OP_SEND)
		return is_next ? STREAM_SEND : STREAM_SEND_BACK;
	return is_next ? STREAM_RECEIVE : STREAM_RECEIVE_BACK;
}

/* `distance` leads to the stage at the other end. */
static void set_message(struct lowering *l, int distance)
{
	const struct step *step = l->step;
	int rank, chunk, stage = pipeline_stage(&step->pipeline, step->class, l->at->chunk);
	pipeline_place(&step->pipeline, stage + distance, &rank, &chunk);
	l->op.group = is_back(l) ? step->group_backward : step->group_forward;
	l->op.bytes = message_bytes(step);
	l->op.stream = stream_with(step, l->op.kind, rank);
	l->op.message = (struct message){.peer = rank,
		.chunk = l->op.kind == OP_SEND ? l->at->chunk : chunk,
		.direction = is_back(l) ? DIRECTION_BACKWARD : DIRECTION_FORWARD};
}

/* Returns what the pass through a stage of the rank begins with, before it has a flight. */
static int *handed_to(struct lowering *l, int chunk)
{
	return &l->handed[chunk * (int)l->step->plan->grad_accum + l->at->micro_batch];
}

/* Without a message the residual stream is one tensor of both stages: PyTorch detaches it, which
 * keeps the storage. */
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

static int take_message(struct lowering *l)
{
	return op_take_new(l, is_back(l) ? BUFFER_RESIDUAL_GRADIENT : BUFFER_RESIDUAL, -1,
		l->op.bytes, l->step->plan->param_dtype);
}

void lower_RECEIVE(struct lowering *l)
{
	int *received = l->at->flight < 0 ? handed_to(l, l->at->chunk)
			: is_back(l)      ? &flight_of(l)->received
					  : residual_at(l, false);
	set_message(l, is_back(l) ? 1 : -1);
	*received = take_message(l);
}

void lower_GATHER_MESSAGE(struct lowering *l)
{
	int *received = is_back(l) ? &flight_of(l)->received : residual_at(l, false);
	l->op.group = l->step->group_tensor;
	l->op.bytes = residual_bytes(l->step);
	op_use(l, *received);
	op_give(l, received);
	*received = take_message(l);
}
