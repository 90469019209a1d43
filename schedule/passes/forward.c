/* Forward ranges and the loss. */
#include "schedule/passes/passes.h"

static int64_t tokens_of(const struct builder *b)
{
	return b->plan->micro_batch * b->plan->seq_len;
}

static bool checkpoints(const struct builder *b, const struct event *event)
{
	return checkpointing_of(b, event) != CHECKPOINTING_NONE;
}

static bool has_head(const struct builder *b, const struct event *event)
{
	return b->model->modules[event->end_module - 1].kind == MODULE_HEAD;
}

static int64_t range_saved_bytes(const struct builder *b, const struct event *event)
{
	return model_saved_bytes(b->model, event->first_module, event->end_module, &b->rules,
		b->plan->micro_batch, b->plan->seq_len);
}

/* Blocks repeat: whether `index` saves what `other` does. */
static bool saves_alike(const struct builder *b, int index, int other)
{
	const struct event *one = &b->events[index], *two = &b->events[other];
	const struct module *first = &b->model->modules[one->first_module];
	const struct module *second = &b->model->modules[two->first_module];
	int n = one->end_module - one->first_module;
	if (two->end_module - two->first_module != n || b->saved_bytes[other] < 0 ||
		checkpointing_of(b, one) != checkpointing_of(b, two))
		return false;
	for (int i = 0; i < n; i++)
		if (first[i].kind != second[i].kind ||
			first[i].n_parameters != second[i].n_parameters)
			return false;
	return true;
}

/* Asked for in every micro-batch of every step. */
static int64_t saved_bytes(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	int64_t *bytes = &b->saved_bytes[index];
	int before = index - 1;
	if (*bytes >= 0)
		return *bytes;
	while (before >= 0 && (b->events[before].kind != EVENT_RANGE || b->saved_bytes[before] < 0))
		before--;
	if (before >= 0 && saves_alike(b, index, before))
		*bytes = b->saved_bytes[before];
	else if (checkpointing_of(b, event) == CHECKPOINTING_SELECTIVE)
		*bytes = selective_dropped_bytes(b, index);
	else
		*bytes = range_saved_bytes(b, event);
	return *bytes;
}

int saved_new(struct builder *b, enum buffer_role role, int index)
{
	const struct event *event = &b->events[index];
	int64_t bytes = saved_bytes(b, index);
	if (bytes == 0)
		return -1;
	int buffer = buffer_new(b, role, STREAM_COMPUTE, event->unit, bytes, b->plan->param_dtype);
	b->buffers[buffer].layer = event->layer;
	b->buffers[buffer].first_module = event->first_module;
	b->buffers[buffer].end_module = event->end_module;
	return buffer;
}

static int residual_take(struct builder *b, int slot)
{
	int64_t bytes =
		model_residual_bytes(b->model, &b->rules, b->plan->micro_batch, b->plan->seq_len);
	int buffer =
		buffer_new(b, BUFFER_RESIDUAL, STREAM_COMPUTE, -1, bytes, b->plan->param_dtype);
	b->buffers[buffer].layer = slot;
	b->residuals[slot] = buffer;
	op_take(b, buffer);
	return buffer;
}

/* Inputs and targets: windows of seq_len + 1 tokens. */
static void tokens_take(struct builder *b)
{
	if (b->tokens >= 0)
		return;
	int64_t bytes = b->plan->micro_batch * (b->plan->seq_len + 1) * dtype_bytes(DTYPE_INT32);
	b->tokens = buffer_new(b, BUFFER_TOKENS, STREAM_COMPUTE, -1, bytes, DTYPE_INT32);
	op_take(b, b->tokens);
}

/* Logits that are there at a time. Computed together with the head they come in pieces of as many
 * elements as the residual stream has (Liger's chunks). */
static int64_t logits_of(const struct builder *b)
{
	const struct architecture *a = &b->model->architecture;
	int64_t row = plan_logits_stride(b->plan, a->vocab);
	bool pieces = b->plan->loss == LOSS_FUSED_LINEAR;
	return tokens_of(b) * (pieces ? min_i64(row, a->hidden) : row);
}

static void logits_take(struct builder *b)
{
	int64_t bytes = logits_of(b) * dtype_bytes(b->plan->param_dtype);
	b->logits = buffer_new(b, BUFFER_LOGITS, STREAM_COMPUTE, -1, bytes, b->plan->param_dtype);
	op_take(b, b->logits);
	op_use(b, b->logits);
}

/* What checkpointing drops lives until the block is through. */
static void give_forward_work(struct builder *b, int event)
{
	for (int i = slot_begin(b, event); i <= event; i++)
		if (b->events[i].kind == EVENT_RANGE) {
			op_give(b, b->saved[i]);
			b->saved[i] = -1;
		}
}

void forward_range(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	if (is_ddp(b))
		ddp_pre_range(b, index);
	op_begin(b, OP_FORWARD, STREAM_COMPUTE, event->unit);
	op_set_range(b, event);
	op_use_weights(b, index);
	if (event->slot < 0) {
		tokens_take(b);
		op_use(b, b->tokens);
	} else {
		op_use(b, b->residuals[event->slot]);
	}
	b->saved[index] = saved_new(
		b, checkpoints(b, event) ? BUFFER_FORWARD_WORK : BUFFER_ACTIVATIONS, index);
	op_take(b, b->saved[index]);
	if (checkpointing_of(b, event) == CHECKPOINTING_SELECTIVE)
		b->results[index] = selective_keep(b, index);
	op_take(b, b->results[index]);
	op_use_slot(b, index);
	if (event->slot < 0 && event->first_of_slot)
		op_use(b, residual_take(b, 0));
	else if (event->slot < 0)
		op_use(b, b->residuals[0]);
	else if (event->layer >= 0 && event->last_of_slot)
		op_use(b, residual_take(b, event->slot + 1));
	if (has_head(b, event)) {
		logits_take(b);
		/* FSDP2: the root's post-forward releases the last gathered buffer */
		op_give(b, b->implicit_gathered);
		b->implicit_gathered = -1;
	}
	op_use(b, b->kernel_workspace);
	if (checkpoints(b, event) && event->last_of_slot)
		give_forward_work(b, index);
	op_end(b);
}

/* Beyond the logits: what the kind of loss makes beside them; ours keeps one loss a token. */
static int64_t loss_work_bytes(const struct builder *b)
{
	int64_t logits = logits_of(b);
	int64_t losses = b->plan->runtime == RUNTIME_SHARDPLAN ? tokens_of(b) : 0;
	return logits * plan_loss_bytes(b->plan) + losses * dtype_bytes(DTYPE_FP32);
}

void loss(struct builder *b)
{
	op_begin(b, OP_LOSS, STREAM_COMPUTE, -1);
	b->op.first_module = b->model->n_modules - 1;
	b->op.end_module = b->model->n_modules;
	op_use(b, b->logits);
	op_use(b, b->tokens);
	int work =
		buffer_new(b, BUFFER_LOSS_WORK, STREAM_COMPUTE, -1, loss_work_bytes(b), DTYPE_FP32);
	op_take(b, work);
	op_use(b, work);
	op_give(b, work);
	op_end(b);
}
