/* DistributedDataParallel: whole parameters, gradient buckets reduced while backward runs
 * (docs/runtimes.md). Under autocast the low-precision weights are cached per range until its
 * backward. */
#include <string.h>

#include "schedule/passes/passes.h"

/* The range whose backward completes a parameter: where its owner computes. Ranges and parameters
 * are both in module order. */
static void find_owners(struct builder *b)
{
	int event = 0;
	b->owner_events = ARENA_ARRAY(b->arena, int, b->model->n_parameters);
	for (int p = 0; p < b->model->n_parameters; p++) {
		while (b->events[event].end_module <= b->model->parameters[p].module)
			event++;
		b->owner_events[p] = event;
	}
}

/* Backward visits events in descending order, so a bucket is complete at its least event. */
void ddp_prepare(struct builder *b)
{
	find_owners(b);
	for (int u = 0; u < b->n_units; u++) {
		const struct unit *bucket = &b->schedule->units[u];
		struct unit_state *state = &b->units[u];
		state->pre_forward_index = b->n_events;
		for (int i = 0; i < bucket->n_slices; i++) {
			int event = b->owner_events[bucket->slices[i].parameter];
			if (event < state->pre_forward_index)
				state->pre_forward_index = event;
		}
	}
}

static int cast_weights(struct builder *b, const struct event *event)
{
	int64_t elements = range_parameters(b, event);
	if (!b->casts || elements == 0 || event->slot < 0) /* autocast leaves embeddings alone */
		return -1;
	op_begin(b, OP_CAST_PARAMETERS, STREAM_COMPUTE, -1);
	op_set_range(b, event);
	int64_t compute = dtype_bytes(b->plan->param_dtype);
	b->op.bytes = elements * (dtype_bytes(b->plan->master_dtype) + compute);
	int copy = buffer_new(b, BUFFER_COMPUTE_COPY, STREAM_COMPUTE, -1, elements * compute,
		b->plan->param_dtype);
	b->buffers[copy].layer = event->layer;
	op_take(b, copy);
	use_bucket_weights(b, event, -1);
	op_use(b, copy);
	op_end(b);
	return copy;
}

void ddp_pre_range(struct builder *b, int index)
{
	b->copies[index] = is_zero(b) ? -1 : cast_weights(b, &b->events[index]);
}

/* Gradients appear in the parameters' dtype, range by range, and stay until the optimizer has read
 * them; later micro-batches add to them. */
void ddp_gradients(struct builder *b, int index)
{
	if (is_zero(b)) {
		zero_gradients(b, index);
		return;
	}
	enum dtype master = b->plan->master_dtype;
	int64_t elements = gradient_elements(b, &b->events[index], master);
	if (elements > 0 && b->range_gradients[index] < 0) {
		int buffer = buffer_new(b, BUFFER_GRADIENT_SHARD, STREAM_COMPUTE, -1,
			elements * dtype_bytes(master), master);
		b->buffers[buffer].layer = b->events[index].layer;
		b->range_gradients[index] = buffer;
		op_take(b, buffer);
	}
	op_use(b, b->range_gradients[index]);
}

static void reduce_bucket(struct builder *b, int bucket)
{
	struct unit_state *state = &b->units[bucket];
	int64_t bytes = b->schedule->units[bucket].elements * dtype_bytes(b->plan->master_dtype);
	op_begin(b, OP_CAST_GRADIENTS, STREAM_COMPUTE, bucket);
	b->op.dtype = b->plan->master_dtype;
	b->op.bytes = 2 * bytes;
	ddp_use_bucket_gradients(b, bucket);
	op_use(b, state->reduce_input);
	op_wait(b, state->reduced);
	op_end(b);
	if (b->group_replicate < 0)
		return;
	op_begin(b, OP_ALL_REDUCE, STREAM_REDUCE, bucket);
	op_wait_stream(b, STREAM_COMPUTE);
	b->op.dtype = b->plan->master_dtype;
	b->op.bytes = bytes;
	b->op.group = b->group_replicate;
	op_use(b, state->reduce_input);
	state->reduced = op_end(b);
}

void ddp_post_range(struct builder *b, int index)
{
	if (is_zero(b)) {
		zero_post_range(b, index);
		return;
	}
	for (int u = 0; b->synchronise && u < b->n_units; u++)
		if (b->units[u].pre_forward_index == index)
			reduce_bucket(b, u);
}

/* When the last bucket is through, the buckets are copied back into the gradients. */
void ddp_finish_backward(struct builder *b)
{
	if (is_zero(b)) {
		zero_finish_backward(b);
		return;
	}
	for (int u = 0; b->synchronise && b->group_replicate >= 0 && u < b->n_units; u++) {
		struct unit_state *state = &b->units[u];
		op_begin(b, OP_ACCUMULATE_GRADIENTS, STREAM_COMPUTE, u);
		op_wait(b, state->reduced);
		b->op.dtype = b->plan->master_dtype;
		b->op.bytes =
			2 * b->schedule->units[u].elements * dtype_bytes(b->plan->master_dtype);
		op_use(b, state->reduce_input);
		ddp_use_bucket_gradients(b, u);
		state->reduced = op_end(b);
	}
}

void ddp_give_gradients(struct builder *b)
{
	for (int i = 0; i < b->n_events; i++) {
		op_use(b, b->range_gradients[i]);
		op_give(b, b->range_gradients[i]);
		b->range_gradients[i] = -1;
	}
}

void ddp_use_gradients(struct builder *b)
{
	for (int i = 0; i < b->n_events; i++)
		op_use(b, b->range_gradients[i]);
}
