/* Selective checkpointing as torchtitan's per-operator policy has it: of the matrix products of a
 * block every second one's result is kept, and flash attention's; everything else is computed
 * again. A projection with a bias is another operator (addmm) that the policy does not keep
 * (docs/runtimes.md). */
#include "schedule/passes/passes.h"

static bool keeps(const struct builder *b, int module)
{
	return plan_selective_keeps(b->plan, b->model, module);
}

/* Bytes that a leaf saves without checkpointing. */
static int64_t saved_bytes(const struct builder *b, int module)
{
	return model_saved_bytes(
		b->model, module, module + 1, &b->rules, b->plan->micro_batch, b->plan->seq_len);
}

/* Eager PyTorch keeps the result of DOWN though backward does not read it. torch.compile drops what
 * the backward graph has no use for; ours is the next block's input. */
static int64_t result_bytes(const struct builder *b, int module)
{
	bool needed_only = b->plan->runtime == RUNTIME_SHARDPLAN || b->plan->compile;
	if (needed_only || b->model->modules[module].kind != MODULE_DOWN)
		return saved_bytes(b, module);
	return model_residual_bytes(b->model, &b->rules, b->plan->micro_batch, b->plan->seq_len);
}

int64_t selective_dropped_bytes(const struct builder *b, int event)
{
	const struct event *range = &b->events[event];
	int64_t dropped = 0;
	for (int m = range->first_module; m < range->end_module; m++)
		if (!keeps(b, m))
			dropped += saved_bytes(b, m);
	return dropped;
}

int selective_keep(struct builder *b, int event)
{
	const struct event *range = &b->events[event];
	int64_t kept = 0;
	for (int m = range->first_module; m < range->end_module; m++)
		if (keeps(b, m))
			kept += result_bytes(b, m);
	if (kept == 0)
		return -1;
	int buffer = buffer_new(
		b, BUFFER_ACTIVATIONS, STREAM_COMPUTE, range->unit, kept, b->plan->param_dtype);
	b->buffers[buffer].layer = range->layer;
	b->buffers[buffer].first_module = range->first_module;
	b->buffers[buffer].end_module = range->end_module;
	return buffer;
}

static bool is_again(const struct builder *b, int module)
{
	return b->model->modules[module].kind != MODULE_DOWN && !keeps(b, module);
}

/* Leaves that follow one another are one operation; the first takes what they fill. */
void selective_recompute(struct builder *b, int event, int buffer)
{
	const struct event *range = &b->events[event];
	bool taken = false;
	for (int m = range->first_module; m < range->end_module;) {
		int end = m;
		if (!module_kind_is_leaf(b->model->modules[m].kind) || !is_again(b, m)) {
			m++;
			continue;
		}
		while (end < range->end_module && is_again(b, end))
			end++;
		op_begin(b, OP_RECOMPUTE, STREAM_COMPUTE, range->unit);
		op_set_range(b, range);
		b->op.first_module = m;
		b->op.end_module = end;
		op_use_weights(b, event);
		op_use(b, b->residuals[range->slot]);
		if (!taken)
			op_take(b, buffer);
		op_use_slot(b, event);
		op_use(b, b->kernel_workspace);
		op_end(b);
		taken = true;
		m = end;
	}
}
