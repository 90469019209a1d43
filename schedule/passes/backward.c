/* Backward: the forward events in reverse; recomputation; post-backward hooks. */
#include "schedule/passes/passes.h"

static void give_range(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	op_give(b, b->saved[index]);
	op_give(b, b->results[index]);
	b->saved[index] = b->results[index] = -1;
	if (event->slot >= 0 && event->first_of_slot) {
		op_give(b, b->residuals[event->slot]);
		b->residuals[event->slot] = -1;
	}
	if (b->model->modules[event->end_module - 1].kind == MODULE_HEAD) {
		op_give(b, b->logits);
		b->logits = -1;
	}
}

static bool is_ours(const struct builder *b)
{
	return b->plan->runtime == RUNTIME_SHARDPLAN;
}

/* The whole of what backward works with, and two parts of it: the residual stream's gradient and
 * the widest gradient inside a block. */
static int64_t backward_work_bytes(const struct builder *b, int64_t *residual, int64_t *widest)
{
	struct tensor tensors[BACKWARD_TENSORS_MAX];
	int64_t bytes;
	int n = model_backward_tensors(
		b->model, &b->rules, b->plan->micro_batch, b->plan->seq_len, tensors, &bytes);
	*residual = *widest = 0;
	for (int i = 0; i < n; i++) {
		if (tensors[i].role == TENSOR_D_RESIDUAL)
			*residual = tensors[i].bytes;
		else if (tensors[i].role == TENSOR_D_PRODUCT ||
			 tensors[i].role == TENSOR_D_ATTENTION_OUT)
			*widest = max_i64(*widest, tensors[i].bytes);
	}
	return bytes;
}

static int backward_work_new(struct builder *b, int64_t bytes)
{
	int buffer = buffer_new(
		b, BUFFER_BACKWARD_WORK, STREAM_COMPUTE, -1, bytes, b->plan->param_dtype);
	op_take(b, buffer);
	op_use(b, buffer);
	return buffer;
}

/* Ours keeps all gradients of a block's tensors side by side, for the whole of backward. Autograd
 * frees a saved tensor as soon as its gradient is made: beside the saved ones only the residual
 * stream's gradient lives on, and inside a block the widest gradient on its way is extra. */
static void take_backward_work(struct builder *b, const struct event *event)
{
	int64_t residual, widest, all = backward_work_bytes(b, &residual, &widest);
	if (b->plan->gradient_sums == SUMS_EXACT)
		all += gradient_scratch_bytes(b->model);
	if (b->backward_work < 0)
		b->backward_work = backward_work_new(b, is_ours(b) ? all : residual);
	else
		op_use(b, b->backward_work);
	if (!is_ours(b) && event->layer >= 0)
		op_give(b, backward_work_new(b, widest));
}

/* Our own recomputation stops at the last saved tensor: the block's output is not needed again. */
static int recompute_end(const struct builder *b, const struct event *event)
{
	int last = event->end_module - 1;
	return is_ours(b) && b->model->modules[last].kind == MODULE_DOWN ? last : event->end_module;
}

static void recompute_range(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	int end = recompute_end(b, event);
	int buffer = saved_new(b, BUFFER_RECOMPUTED, index);
	b->saved[index] = buffer;
	if (checkpointing_of(b, event) == CHECKPOINTING_SELECTIVE) {
		selective_recompute(b, index, buffer);
		return;
	}
	if (end == event->first_module || (is_ours(b) && buffer < 0))
		return;
	op_begin(b, OP_RECOMPUTE, STREAM_COMPUTE, event->unit);
	op_set_range(b, event);
	b->op.end_module = end;
	op_use_weights(b, index);
	op_use(b, b->residuals[event->slot]);
	op_take(b, buffer);
	op_use_slot(b, index);
	op_use(b, b->kernel_workspace);
	op_end(b);
}

/* PyTorch's hooks run again: a unit inside of the block is gathered when it is computed and, its
 * own backward still to come, resharded as after its forward. */
static void recompute_by_unit(struct builder *b, int first, int last)
{
	int end = last;
	while (end + 1 < b->n_events && b->events[end + 1].kind == EVENT_EXIT)
		end++;
	for (int i = first; i <= end; i++) {
		const struct event *event = &b->events[i];
		if (event->kind == EVENT_RANGE) {
			gather_for_recompute(b, event->unit);
			recompute_range(b, i);
		} else if (event->kind == EVENT_EXIT) {
			gather_post_recompute(b, event->unit);
		}
	}
}

/* A whole block again, before the backward of its last range. */
static void recompute_block(struct builder *b, int last)
{
	int first = slot_begin(b, last);
	if (b->runtime->recomputes_by_unit) {
		recompute_by_unit(b, first, last);
		return;
	}
	for (int i = first; i <= last; i++)
		if (b->events[i].kind == EVENT_RANGE && !is_ddp(b))
			gather_for_recompute(b, b->events[i].unit);
	for (int i = first; i <= last; i++)
		if (b->events[i].kind == EVENT_RANGE)
			recompute_range(b, i);
}

static void backward_range(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	if (checkpointing_of(b, event) != CHECKPOINTING_NONE && event->last_of_slot)
		recompute_block(b, index);
	op_begin(b, OP_BACKWARD, STREAM_COMPUTE, event->unit);
	op_set_range(b, event);
	op_use_weights(b, index);
	if (event->slot < 0)
		op_use(b, b->tokens);
	else
		op_use(b, b->residuals[event->slot]);
	op_use_slot(b, index);
	if (is_ddp(b))
		ddp_gradients(b, index);
	else
		gradient_take(b, event->unit, event);
	take_backward_work(b, event);
	if (b->model->modules[event->end_module - 1].kind == MODULE_HEAD)
		op_use(b, b->logits);
	op_use(b, b->kernel_workspace);
	op_give(b, b->copies[index]);
	b->copies[index] = -1;
	give_range(b, index);
	if (event->slot < 0 && event->first_of_slot) {
		op_give(b, b->tokens);
		op_give(b, b->backward_work);
		b->tokens = b->backward_work = -1;
	}
	op_end(b);
}

static void post_backward(struct builder *b, int unit)
{
	if (b->schedule->units[unit].parameters == 0)
		return;
	gradient_flatten(b, unit);
	gather_post_backward(b, unit);
	gradient_reduce(b, unit);
}

static void flush_delayed(struct builder *b)
{
	int unit = b->delayed_post_backward;
	b->delayed_post_backward = -1;
	if (unit >= 0)
		post_backward(b, unit);
}

void backward_event(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	bool delays = b->runtime->delays_post_backward && b->plan->forward_prefetch;
	switch (event->kind) {
	case EVENT_EXIT:
		gather_pre_backward(b, event->unit);
		break;
	case EVENT_RANGE:
		backward_range(b, index);
		flush_delayed(b);
		if (is_ddp(b))
			ddp_post_range(b, index);
		break;
	case EVENT_ENTER:
		if (delays && event->unit != 0) {
			flush_delayed(b);
			b->delayed_post_backward = event->unit;
		} else {
			flush_delayed(b);
			post_backward(b, event->unit);
		}
		break;
	}
}
