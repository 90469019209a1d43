/* Backward: the forward events in reverse; recomputation; post-backward hooks. */
#include "schedule/builder.h"

static void give_range(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	op_give(b, b->saved[index]);
	b->saved[index] = -1;
	if (event->slot >= 0 && event->first_of_slot) {
		op_give(b, b->residuals[event->slot]);
		b->residuals[event->slot] = -1;
	}
	if (b->model->modules[event->end_module - 1].kind == MODULE_HEAD) {
		op_give(b, b->logits);
		b->logits = -1;
	}
}

/* Ours keeps all gradients of a block's tensors side by side. Autograd frees a saved tensor as soon
 * as its gradient is made, so that beside the saved ones only the residual stream's gradient and
 * the widest one on its way are extra. */
static int64_t backward_work_bytes(const struct builder *b)
{
	struct tensor tensors[BACKWARD_TENSORS_MAX];
	int64_t bytes, residual = 0, widest = 0;
	int n = model_backward_tensors(
		b->model, &b->rules, b->plan->micro_batch, b->plan->seq_len, tensors, &bytes);
	if (b->plan->runtime == RUNTIME_SHARDPLAN)
		return bytes;
	for (int i = 0; i < n; i++) {
		if (tensors[i].role == TENSOR_D_RESIDUAL)
			residual = tensors[i].bytes;
		else if (tensors[i].role == TENSOR_D_PRODUCT ||
			 tensors[i].role == TENSOR_D_ATTENTION_OUT)
			widest = max_i64(widest, tensors[i].bytes);
	}
	return residual + widest;
}

static void take_backward_work(struct builder *b)
{
	if (b->backward_work >= 0)
		return;
	b->backward_work = buffer_new(b, BUFFER_BACKWARD_WORK, STREAM_COMPUTE, -1,
		backward_work_bytes(b), b->plan->param_dtype);
	op_take(b, b->backward_work);
}

/* Our own recomputation stops at the last saved tensor: the block's output is not needed again. */
static int recompute_end(const struct builder *b, const struct event *event)
{
	int last = event->end_module - 1;
	bool ours = b->plan->runtime == RUNTIME_SHARDPLAN;
	return ours && b->model->modules[last].kind == MODULE_DOWN ? last : event->end_module;
}

static void recompute_range(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	int end = recompute_end(b, event);
	int buffer = saved_new(b, BUFFER_RECOMPUTED, event);
	b->saved[index] = buffer;
	if (buffer < 0 || end == event->first_module)
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

/* A whole block again, before the backward of its last range. */
static void recompute_block(struct builder *b, int last)
{
	int first = slot_begin(b, last);
	for (int i = first; i <= last; i++)
		if (b->events[i].kind == EVENT_RANGE && !is_ddp(b))
			gather_for_recompute(b, b->events[i].unit);
	for (int i = first; i <= last; i++)
		if (b->events[i].kind == EVENT_RANGE)
			recompute_range(b, i);
}

/* Selective checkpointing with eager attention: the probabilities again. -1 when it saves nothing.
 */
static int recompute_attention(struct builder *b, const struct event *event)
{
	struct activation_rules all = b->rules;
	all.drop_attention = false;
	int64_t kept = model_saved_bytes(b->model, event->first_module, event->end_module,
		&b->rules, b->plan->micro_batch, b->plan->seq_len);
	int64_t full = model_saved_bytes(b->model, event->first_module, event->end_module, &all,
		b->plan->micro_batch, b->plan->seq_len);
	if (full == kept)
		return -1;
	int core = event->first_module;
	while (b->model->modules[core].kind != MODULE_ATTENTION_CORE)
		core++;
	op_begin(b, OP_RECOMPUTE, STREAM_COMPUTE, event->unit);
	op_set_range(b, event);
	b->op.first_module = core;
	b->op.end_module = core + 1;
	int buffer = buffer_new(b, BUFFER_RECOMPUTED, STREAM_COMPUTE, event->unit, full - kept,
		b->plan->param_dtype);
	b->buffers[buffer].layer = event->layer;
	op_take(b, buffer);
	op_use(b, buffer);
	op_end(b);
	return buffer;
}

static void backward_range(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	int attention = -1;
	if (b->plan->activation_checkpointing == CHECKPOINTING_FULL && event->layer >= 0 &&
		event->last_of_slot)
		recompute_block(b, index);
	if (b->rules.drop_attention)
		attention = recompute_attention(b, event);
	op_begin(b, OP_BACKWARD, STREAM_COMPUTE, event->unit);
	op_set_range(b, event);
	op_use_weights(b, index);
	if (event->slot < 0)
		op_use(b, b->tokens);
	else
		op_use(b, b->residuals[event->slot]);
	op_use_slot(b, index);
	op_use(b, attention);
	if (is_ddp(b))
		ddp_gradients(b, index);
	else
		gradient_take(b, event->unit, event);
	take_backward_work(b);
	op_use(b, b->backward_work);
	if (b->model->modules[event->end_module - 1].kind == MODULE_HEAD)
		op_use(b, b->logits);
	op_use(b, b->kernel_workspace);
	op_give(b, attention);
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
