/* Lowers forward, loss, recomputation and backward. */
#include "schedule/passes/lower.h"

static const struct range *range_of(const struct lowering *l)
{
	return &l->step->ranges[l->at->range];
}

static void use_unit(struct lowering *l, int unit)
{
	if (unit_has_parameters(l->step, unit))
		op_use(l, l->units[unit].unsharded >= 0 ? l->units[unit].unsharded
							: l->step->resident[unit].parameter_shard);
}

static void use_weights(struct lowering *l)
{
	int unit = l->at->unit, range = l->at->range;
	switch (l->step->method.weights) {
	case WEIGHTS_OF_UNIT:
		use_unit(l, unit);
		if (unit_twin(l->step, unit) >= 0)
			use_unit(l, unit_twin(l->step, unit));
		break;
	case WEIGHTS_OF_BUCKETS:
	case WEIGHTS_WHOLE_BUCKETS:
		op_use_bucket_weights(l, range, flight_of(l)->copies[range]);
		break;
	case WEIGHTS_WHOLE:
		op_use(l, l->step->whole);
		break;
	}
}

void op_use_slot(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	op_use(l, flight->saved[l->at->range]);
	op_use(l, flight->results[l->at->range]);
	for (int r = slot_begin(l->step, l->at->range); r < l->at->range; r++) {
		op_use(l, flight->saved[r]);
		op_use(l, flight->results[r]);
	}
}

/* Takes a buffer for tensors of the range, or returns -1 if it needs none. */
static int new_tensors(struct lowering *l, enum buffer_role role, int64_t bytes)
{
	if (bytes == 0)
		return -1;
	int buffer = buffer_new(l->step, role, STREAM_COMPUTE, range_of(l)->unit, bytes,
		l->step->plan->param_dtype);
	buffer_set_range(l, buffer, l->at->range);
	return buffer;
}

/* --- what ranks exchange for it --------------------------------------------------------------- */

static int take_partial(struct lowering *l, int64_t bytes)
{
	return op_take_new(l, BUFFER_PARTIAL_SUMS, -1, bytes, l->step->plan->param_dtype);
}

/* True for all but the last part of a backward beside which tensor ranks exchange something. */
static bool goes_on(const struct lowering *l)
{
	return (l->at->flags & BESIDE) && action_makes_input(l->at);
}

static void set_range(struct lowering *l)
{
	op_set_range(l, l->at->range);
	if (l->at->end_module == 0)
		return;
	l->op.first_module = l->at->first_module;
	l->op.end_module = l->at->end_module;
}

/* What was gathered for the operation ends with it. */
static void use_gathered(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	int *buffers[] = {&flight->gathered[0], &flight->gathered[1], &flight->keys,
		&flight->rows_returned, &flight->rows[l->at->range]};
	for (int i = 0; i < COUNT_OF(buffers); i++) {
		op_use(l, *buffers[i]);
		if (*buffers[i] == l->step->gather_buffers[false] ||
			*buffers[i] == l->step->gather_buffers[true])
			*buffers[i] = -1;
		op_give(l, buffers[i]);
	}
	if (l->at->flags & IN_ROUNDS)
		op_use_round(l);
	else
		op_end_ring(l);
}

/* Gradients that experts sent back are a part of dX. */
static void use_returned_rows(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	op_use(l, flight->rows_returned);
	op_give(l, &flight->rows_returned);
}

static void use_exchanged(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	op_use(l, flight->partial);
	op_give(l, &flight->partial);
	op_use(l, flight->partial_keys);
	op_give(l, &flight->partial_keys);
	if (goes_on(l)) {
		op_use(l, flight->gathered[0]);
		if (l->op.kind == OP_BACKWARD_INPUT)
			use_returned_rows(l);
	} else {
		use_gathered(l);
	}
	if (l->at->flags & LEAVES_ROWS)
		flight->rows_leaving = op_take_new(
			l, BUFFER_ROWS, -1, row_room_bytes(l->step), l->step->plan->param_dtype);
	if (l->at->flags & LEAVES_SUM)
		flight->partial = take_partial(l, exchanged_tokens_bytes(l->step));
	if (l->at->flags & LEAVES_KEYS)
		flight->partial_keys =
			take_partial(l, left_keys_bytes(l->step, op_kind_is_backward(l->op.kind)));
}

/* The operands in fp8 are those of one leaf at a time. */
static void use_fp8_copies(struct lowering *l, enum pass pass)
{
	int64_t bytes = fp8_work_bytes(
		l->step->plan, l->step->model, l->op.first_module, l->op.end_module, pass);
	if (bytes == 0)
		return;
	int copies = op_take_new(l, BUFFER_KERNEL_WORKSPACE, -1, bytes, DTYPE_FP8);
	op_give(l, &copies);
}

/* --- forward -------------------------------------------------------------------------------------
 */

static void use_input(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	int slot = range_of(l)->slot;
	bool reads = slot < 0 || range_has_head(l->step, l->at->range);
	if (slot >= 0)
		op_use(l, flight->residuals[slot]);
	if (reads && flight->tokens < 0)
		flight->tokens =
			op_take_new(l, BUFFER_TOKENS, -1, tokens_bytes(l->step), DTYPE_INT32);
	if (slot < 0)
		op_use(l, flight->tokens);
}

static void save_tensors(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	int range = l->at->range;
	enum checkpointing checkpointing = range_checkpointing(l->step, range);
	bool goes_back = range_goes_back(l->step, range);
	enum buffer_role role = checkpointing != CHECKPOINTING_NONE || !goes_back
					? BUFFER_FORWARD_WORK
					: BUFFER_ACTIVATIONS;
	flight->saved[range] = new_tensors(l, role, range_of(l)->saved_bytes);
	op_take(l, flight->saved[range]);
	if (checkpointing == CHECKPOINTING_SELECTIVE)
		flight->results[range] =
			new_tensors(l, BUFFER_ACTIVATIONS, range_kept_bytes(l->step, range));
	op_take(l, flight->results[range]);
}

static void take_residual(struct lowering *l, int slot)
{
	struct flight *flight = flight_of(l);
	flight->residuals[slot] = op_take_new(
		l, BUFFER_RESIDUAL, -1, residual_bytes(l->step), l->step->plan->param_dtype);
	l->step->buffers[flight->residuals[slot]].layer = slot;
}

static void use_output(struct lowering *l)
{
	const struct range *range = range_of(l);
	if (range->slot < 0 && range->first_of_slot)
		take_residual(l, 0);
	else if (range->slot < 0)
		op_use(l, flight_of(l)->residuals[0]);
	else if (range->layer >= 0 && range->last_of_slot)
		take_residual(l, range->slot + 1);
}

/* What checkpointing drops lives until its block ends. Where backward does not come, all that the
 * range saves does so too. */
void op_give_dropped(struct lowering *l)
{
	int range = l->at->range, slot = range_of(l)->slot;
	struct flight *flight = flight_of(l);
	bool goes_back = range_goes_back(l->step, range);
	bool drops = range_checkpointing(l->step, range) != CHECKPOINTING_NONE || !goes_back;
	if (!drops || !range_of(l)->last_of_slot)
		return;
	for (int r = slot_begin(l->step, range); r <= range; r++) {
		op_give(l, &flight->saved[r]);
		if (!goes_back)
			op_give(l, &flight->results[r]);
	}
	if (!goes_back && slot >= 0)
		op_give(l, &flight->residuals[slot]);
}

static void take_logits(struct lowering *l)
{
	flight_of(l)->logits = op_take_new(
		l, BUFFER_LOGITS, -1, logits_bytes(l->step), l->step->plan->param_dtype);
}

/* Takes what the loss needs of the logits in the rank's part of the vocabulary. */
static void take_loss_parts(struct lowering *l)
{
	const struct step *step = l->step;
	if (!range_has_head(step, l->at->range) || step->group_tensor < 0 ||
		!step->method.adds_in_compute)
		return;
	op_use(l, flight_of(l)->tokens);
	flight_of(l)->partial = op_take_new(
		l, BUFFER_PARTIAL_SUMS, -1, LOSS_PARTS * exchanged_loss_bytes(step), DTYPE_FP32);
}

void lower_FORWARD(struct lowering *l)
{
	op_set_range(l, l->at->range);
	use_weights(l);
	use_input(l);
	save_tensors(l);
	op_use_slot(l);
	use_output(l);
	use_exchanged(l);
	if (range_has_head(l->step, l->at->range) && !l->step->method.chunks_head)
		take_logits(l);
	take_loss_parts(l);
	/* FSDP2's post-forward hook of the root releases the last gathered buffer. */
	if (range_of(l)->last_of_chunk)
		op_give(l, &l->implicit_gathered);
	use_fp8_copies(l, PASS_FORWARD);
	op_use(l, l->step->kernel_workspace);
	if (!(l->at->flags & LEAVES_ROWS) || !l->step->method.adds_in_compute)
		op_give_dropped(l);
}

void lower_LOSS(struct lowering *l)
{
	l->op.first_module = l->step->model->n_modules - 1;
	l->op.end_module = l->step->model->n_modules;
	op_use(l, flight_of(l)->logits);
	op_use(l, flight_of(l)->tokens);
	op_use(l, flight_of(l)->gathered[0]);
	op_give(l, &flight_of(l)->gathered[0]);
	if (l->step->method.chunks_head)
		return;
	int work = op_take_new(l, BUFFER_LOSS_WORK, -1, loss_work_bytes(l->step), DTYPE_FP32);
	op_give(l, &work);
}

/* --- backward ------------------------------------------------------------------------------------
 */

void lower_RECOMPUTE(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	int *saved = &flight->saved[l->at->range];
	if (l->at->flags & FIRST)
		*saved = new_tensors(l, BUFFER_RECOMPUTED, range_of(l)->saved_bytes);
	set_range(l);
	use_weights(l);
	op_use(l, flight->residuals[range_of(l)->slot]);
	if (l->at->flags & FIRST)
		op_take(l, *saved);
	op_use_slot(l);
	use_exchanged(l);
	use_fp8_copies(l, PASS_FORWARD);
	op_use(l, l->step->kernel_workspace);
}

static int take_work(struct lowering *l, int64_t bytes)
{
	return op_take_new(l, BUFFER_BACKWARD_WORK, -1, bytes, l->step->plan->param_dtype);
}

/* Does the stage before wait for the gradient of its output? */
static bool is_sent(const struct lowering *l)
{
	const struct step *step = l->step;
	return step->pipeline.ranks > 1 &&
	       pipeline_stage(&step->pipeline, step->class, l->at->chunk) > 0;
}

/* Takes the gradient of the residual stream, which at the end of a stage is sent. */
static int take_residual_gradient(struct lowering *l)
{
	const struct step *step = l->step;
	if (is_sent(l))
		return op_take_new(l, BUFFER_RESIDUAL_GRADIENT, -1, residual_bytes(step),
			step->plan->param_dtype);
	return take_work(l, step->method.keeps_work ? l->work.all : l->work.residual);
}

/* Ours goes on in the gradient that has come, and sends that on without a copy. */
static void use_work_of_stage(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	if (flight->backward_work < 0) {
		flight->backward_work =
			flight->received >= 0
				? flight->received
				: op_take_new(l, BUFFER_RESIDUAL_GRADIENT, -1,
					  residual_bytes(l->step), l->step->plan->param_dtype);
		flight->received = -1;
		flight->stage_work = take_work(l, l->work.all);
	}
	op_use(l, flight->backward_work);
	op_use(l, flight->stage_work);
}

/* Ours keeps all gradients of a block's tensors side by side for the whole of its backward.
 * Autograd frees a saved tensor as soon as its gradient is made, so that beside the saved tensors
 * only the residual stream's gradient lives on, and inside of a block the widest gradient on its
 * way is extra. */
static int use_work(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	bool keeps = l->step->method.keeps_work;
	if (keeps && l->step->pipeline.ranks > 1) {
		use_work_of_stage(l);
		return -1;
	}
	if (flight->backward_work < 0)
		flight->backward_work = take_residual_gradient(l);
	else
		op_use(l, flight->backward_work);
	return keeps || range_of(l)->layer < 0 ? -1 : take_work(l, l->work.widest);
}

static void give_received(struct lowering *l)
{
	op_use(l, flight_of(l)->received);
	op_give(l, &flight_of(l)->received);
}

static void give_work(struct lowering *l)
{
	if (!range_ends_backward(l->step, l->at->range))
		return;
	op_give(l, &flight_of(l)->stage_work);
	if (!is_sent(l))
		op_give(l, &flight_of(l)->backward_work);
}

static void give_tensors(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	const struct range *range = range_of(l);
	op_give(l, &flight->saved[l->at->range]);
	op_give(l, &flight->results[l->at->range]);
	if (range->slot >= 0 && range->first_of_slot)
		op_give(l, &flight->residuals[range->slot]);
	if (range_has_head(l->step, l->at->range))
		op_give(l, &flight->logits);
	else if (range->last_of_chunk)
		op_give(l, &flight->residuals[range->slot + 1]);
}

static void give_tokens(struct lowering *l)
{
	if (range_ends_backward(l->step, l->at->range))
		op_give(l, &flight_of(l)->tokens);
}

/* Chunks of the logits are made here. */
static void use_logits(struct lowering *l)
{
	if (!range_has_head(l->step, l->at->range))
		return;
	if (l->step->method.chunks_head)
		op_use(l, flight_of(l)->tokens);
	if (flight_of(l)->logits < 0)
		take_logits(l);
	else
		op_use(l, flight_of(l)->logits);
}

static void take_gradient(struct lowering *l)
{
	if (l->step->method.reduces == REDUCES_BUCKETS)
		op_take_bucket_gradient(l);
	else
		op_take_unit_gradient(l);
}

void lower_BACKWARD(struct lowering *l)
{
	set_range(l);
	use_weights(l);
	use_input(l);
	op_use_slot(l);
	take_gradient(l);
	int widest = use_work(l);
	op_give(l, &widest);
	use_exchanged(l);
	use_logits(l);
	use_fp8_copies(l, PASS_BACKWARD);
	op_use(l, l->step->kernel_workspace);
	if (goes_on(l)) {
		op_use(l, flight_of(l)->received);
		return;
	}
	op_give(l, &flight_of(l)->copies[l->at->range]);
	give_tensors(l);
	give_received(l);
	give_tokens(l);
	give_work(l);
}

static void take_outputs(struct lowering *l, int *outputs)
{
	*outputs = new_tensors(
		l, BUFFER_OUTPUT_GRADIENTS, range_output_gradient_bytes(l->step, l->at->range));
	op_take(l, *outputs);
	op_use(l, *outputs);
}

/* Saved tensors stay: autograd keeps the whole graph of a stage until its weight part has run
 * (torch.distributed.pipelining._backward: retain_graph), and with it the gradients of what its
 * leaves return. Where the weight part follows at once, only the widest gradient on its way is
 * extra. */
void lower_BACKWARD_INPUT(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	int *outputs = &flight->outputs[l->at->range];
	set_range(l);
	use_weights(l);
	use_input(l);
	op_use_slot(l);
	if (!goes_on(l))
		take_outputs(l, outputs);
	int widest = use_work(l);
	if (goes_on(l))
		*outputs = widest;
	else
		op_give(l, &widest);
	use_exchanged(l);
	use_logits(l);
	use_fp8_copies(l, PASS_BACKWARD_INPUT);
	op_use(l, l->step->kernel_workspace);
	if (goes_on(l))
		return;
	op_give(l, &flight->copies[l->at->range]);
	give_received(l);
	give_work(l);
}

/* The weight part reads no weights. */
void lower_BACKWARD_WEIGHT(struct lowering *l)
{
	struct flight *flight = flight_of(l);
	int *outputs = &flight->outputs[l->at->range];
	set_range(l);
	use_input(l);
	op_use_slot(l);
	op_use(l, *outputs);
	take_gradient(l);
	use_exchanged(l);
	use_logits(l);
	use_fp8_copies(l, PASS_BACKWARD_WEIGHT);
	op_use(l, l->step->kernel_workspace);
	op_give(l, outputs);
	op_give(l, &flight->copies[l->at->range]);
	give_tensors(l);
	give_received(l);
	give_tokens(l);
	give_work(l);
}
