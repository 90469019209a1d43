/* The end of a step: gradient norm, clipping, the update. */
#include "schedule/builder.h"

double optimizer_traffic(enum optimizer optimizer)
{
	/* Bytes per fp32 parameter (docs/runtimes.md): fused reads p, g, m, v and writes p, m, v;
	 * foreach and the plain loop make nine passes; SGD without momentum reads p, g and writes
	 * p. */
	static const double bytes[] = {[OPTIMIZER_ADAMW_FUSED] = 28,
		[OPTIMIZER_ADAMW_FOREACH] = 88,
		[OPTIMIZER_ADAMW] = 88,
		[OPTIMIZER_SGD] = 12};
	return bytes[optimizer];
}

static int64_t local_elements(const struct builder *b)
{
	int64_t total = 0;
	for (int u = 0; u < b->n_units; u++)
		total += b->schedule->units[u].chunk;
	return total;
}

/* Compute has to see every reduction before it touches the gradients. */
static void wait_for_reductions(struct builder *b)
{
	op_wait_stream(b, STREAM_REDUCE);
	op_wait_stream(b, STREAM_REPLICATE);
}

/* FSDP2 releases the last reduction's input before the optimizer runs. */
void end_backward(struct builder *b)
{
	if (is_zero3(b))
		zero3_end_backward(b);
	if (b->reduce_input_in_flight < 0)
		return;
	op_begin(b, OP_END_BACKWARD, STREAM_COMPUTE, -1);
	wait_for_reductions(b);
	op_give(b, b->reduce_input_in_flight);
	b->reduce_input_in_flight = -1;
	op_end(b);
}

/* One of very many that are all different: no search for it among them. */
static void use_another(struct builder *b, int buffer)
{
	if (buffer >= 0)
		list_add(&b->uses, buffer);
}

static void use_gradient_shards(struct builder *b)
{
	for (int u = 0; u < b->n_units; u++)
		use_another(b, b->units[u].gradient_shard);
	if (is_zero(b))
		for (int u = 0; u < b->n_units; u++)
			zero_use_gradients(b, u);
	else if (is_ddp(b))
		ddp_use_gradients(b);
}

static bool reduces_norm(const struct builder *b)
{
	return b->shards && b->plan->mesh.shard > 1;
}

/* Returns the buffer of the scalars. Ours sums exactly (a superaccumulator), PyTorch in fp32. */
static int norm(struct builder *b)
{
	bool exact = b->plan->runtime == RUNTIME_SHARDPLAN;
	op_begin(b, OP_GRADIENT_NORM, STREAM_COMPUTE, -1);
	wait_for_reductions(b);
	b->op.bytes = dtype_bytes(b->plan->master_dtype) * local_elements(b);
	int scalars = buffer_new(b, BUFFER_NORM_SCALARS, STREAM_COMPUTE, -1,
		exact ? NORM_SCALAR_BYTES_EXACT : NORM_SCALAR_BYTES, DTYPE_FP32);
	op_take(b, scalars);
	use_gradient_shards(b);
	op_use(b, scalars);
	op_end(b);
	if (!reduces_norm(b))
		return scalars;
	op_begin(b, OP_ALL_REDUCE, STREAM_REDUCE, -1);
	op_wait_stream(b, STREAM_COMPUTE);
	b->op.dtype = DTYPE_FP32;
	b->op.bytes = b->buffers[scalars].bytes;
	b->op.group = b->group_reduce;
	op_use(b, scalars);
	op_end(b);
	return scalars;
}

static void clip(struct builder *b, int scalars)
{
	op_begin(b, OP_CLIP_GRADIENTS, STREAM_COMPUTE, -1);
	op_wait_stream(b, STREAM_REDUCE);
	b->op.bytes = 2 * dtype_bytes(b->plan->master_dtype) * local_elements(b);
	op_use(b, scalars);
	use_gradient_shards(b);
	op_end(b);
}

static void use_states(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	use_another(b, state->parameter_shard);
	use_another(b, state->optimizer_state);
	use_another(b, state->gradient_shard);
	if (state->kept_gradient_shard < 0)
		op_give(b, state->gradient_shard);
	state->gradient_shard = state->kept_gradient_shard;
	if (is_zero(b))
		zero_use_gradients(b, unit);
}

/* What the update works with: foreach's square roots, ZeRO's fp32 copy of the gradients. */
static void take_work(struct builder *b, int64_t elements)
{
	int64_t bytes = 0;
	if (b->plan->optimizer == OPTIMIZER_ADAMW_FOREACH)
		bytes = elements * dtype_bytes(b->plan->master_dtype);
	if (b->runtime->zero != NULL) {
		int64_t copy = zero_optimizer_work(b, elements);
		bytes += copy;
		b->op.bytes += copy + copy / 2;
	}
	if (bytes == 0)
		return;
	int work = buffer_new(
		b, BUFFER_OPTIMIZER_WORK, STREAM_COMPUTE, -1, bytes, b->plan->master_dtype);
	op_take(b, work);
	op_use(b, work);
	op_give(b, work);
}

static void update(struct builder *b, int unit, int64_t elements, bool last, int scalars)
{
	op_begin(b, OP_OPTIMIZER, STREAM_COMPUTE, unit);
	wait_for_reductions(b);
	b->op.dtype = b->plan->master_dtype;
	b->op.bytes = (int64_t)(optimizer_traffic(b->plan->optimizer) * (double)elements *
				dtype_bytes(b->plan->master_dtype) / 4);
	if (unit >= 0)
		use_states(b, unit);
	else
		for (int u = 0; u < b->n_units; u++)
			use_states(b, u);
	if (is_ddp(b) && !is_zero(b))
		ddp_give_gradients(b);
	take_work(b, elements);
	if (last && scalars >= 0) {
		op_use(b, scalars);
		op_give(b, scalars);
	}
	b->optimizer = op_end(b);
}

void optimizer_step(struct builder *b)
{
	int scalars = -1, last = b->n_units - 1;
	b->micro_batch = -1;
	if (b->plan->clip > 0 || b->runtime->measures_norm)
		scalars = norm(b);
	if (b->plan->clip > 0)
		clip(b, scalars);
	if (!b->runtime->optimizer_per_unit) {
		update(b, -1, local_elements(b), true, scalars);
		if (is_zero(b))
			zero_gather(b);
		if (is_zero3(b))
			zero3_finish_step(b);
		return;
	}
	while (last > 0 && b->schedule->units[last].parameters == 0)
		last--;
	for (int u = 0; u <= last; u++)
		if (b->schedule->units[u].parameters > 0) {
			update(b, u, b->schedule->units[u].chunk, u == last, scalars);
			gather_updated(b, u);
		}
}
