/* The end of a step: gradient norm, clipping, the update. */
#include "schedule/passes/passes.h"

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

/* Who updates a unit: the device's compute stream, or the host. */
static enum stream updater(const struct builder *b, int unit)
{
	return offloads(b, unit) ? STREAM_HOST : STREAM_COMPUTE;
}

static int64_t local_elements(const struct builder *b, enum stream stream)
{
	int64_t total = 0;
	for (int u = 0; u < b->n_units; u++)
		if (updater(b, u) == stream)
			total += b->schedule->units[u].chunk;
	return total;
}

/* Nothing at all is left to the device, whoever it is. */
static bool has_work(const struct builder *b, enum stream stream)
{
	return local_elements(b, stream) > 0 ||
	       (stream == STREAM_COMPUTE && local_elements(b, STREAM_HOST) == 0);
}

/* Compute has to see every reduction before it touches the gradients. */
static void wait_for_reductions(struct builder *b)
{
	op_wait_stream(b, STREAM_REDUCE);
	op_wait_stream(b, STREAM_REPLICATE);
	if (b->op.stream != STREAM_HOST)
		return;
	op_wait_stream(b, STREAM_COPY_OUT);
	op_wait_stream(b, STREAM_COMPUTE); /* DeepSpeed copies out there */
}

/* The host writes what copies have read, and reads what they have written. */
static void wait_for_copies(struct builder *b)
{
	if (b->op.stream != STREAM_HOST)
		return;
	op_wait_stream(b, STREAM_COMPUTE);
	op_wait_stream(b, STREAM_COPY_IN);
	op_wait_stream(b, STREAM_GATHER_COPY_IN);
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

/* Those that the operation's stream updates from. */
static void use_gradient_shards(struct builder *b)
{
	for (int u = 0; u < b->n_units; u++)
		if (updater(b, u) == b->op.stream)
			use_another(b, offloads(b, u) ? b->units[u].host_gradient
						      : b->units[u].gradient_shard);
	if (is_zero(b))
		for (int u = 0; u < b->n_units; u++)
			zero_use_gradients(b, u);
	else if (is_ddp(b))
		ddp_use_gradients(b);
}

static int64_t gradient_bytes(const struct builder *b)
{
	return dtype_bytes(plan_optimizer_gradient_dtype(b->plan));
}

static bool reduces_norm(const struct builder *b)
{
	return b->shards && b->plan->mesh.shard > 1;
}

/* Of the units that one stream updates; the second part adds to the scalars of the first. */
static int norm_part(struct builder *b, enum stream stream, int scalars)
{
	bool exact = b->plan->runtime == RUNTIME_SHARDPLAN;
	op_begin(b, OP_GRADIENT_NORM, stream, -1);
	wait_for_reductions(b);
	b->op.bytes = gradient_bytes(b) * local_elements(b, stream);
	if (b->plan->gradient_sums == SUMS_EXACT) /* they become fp32 in place first */
		b->op.bytes +=
			(dtype_bytes(DTYPE_INT64) + gradient_bytes(b)) * local_elements(b, stream);
	if (scalars < 0) {
		scalars = buffer_new(b, BUFFER_NORM_SCALARS, STREAM_COMPUTE, -1,
			exact ? NORM_SCALAR_BYTES_EXACT : NORM_SCALAR_BYTES, DTYPE_FP32);
		op_take(b, scalars);
	} else {
		op_wait_stream(b, STREAM_COMPUTE);
	}
	use_gradient_shards(b);
	op_use(b, scalars);
	op_end(b);
	return scalars;
}

/* Returns the buffer of the scalars. Ours sums exactly (a superaccumulator), PyTorch in fp32. */
static int norm(struct builder *b)
{
	int scalars = -1;
	if (has_work(b, STREAM_COMPUTE))
		scalars = norm_part(b, STREAM_COMPUTE, scalars);
	if (has_work(b, STREAM_HOST))
		scalars = norm_part(b, STREAM_HOST, scalars);
	if (!reduces_norm(b))
		return scalars;
	op_begin(b, OP_ALL_REDUCE, STREAM_REDUCE, -1);
	op_wait_stream(b, STREAM_COMPUTE);
	op_wait_stream(b, STREAM_HOST);
	b->op.dtype = DTYPE_FP32;
	b->op.bytes = b->buffers[scalars].bytes;
	b->op.group = b->group_reduce;
	op_use(b, scalars);
	op_end(b);
	return scalars;
}

static void clip(struct builder *b, enum stream stream, int scalars)
{
	if (!has_work(b, stream))
		return;
	op_begin(b, OP_CLIP_GRADIENTS, stream, -1);
	op_wait_stream(b, STREAM_REDUCE);
	if (stream == STREAM_HOST)
		op_wait_stream(b, STREAM_COMPUTE);
	b->op.bytes = 2 * gradient_bytes(b) * local_elements(b, stream);
	op_use(b, scalars);
	use_gradient_shards(b);
	op_end(b);
}

/* A host gradient that is resident lives on, with what the next step writes over it. */
static void use_host_states(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	use_another(b, offloads_parameters(b, unit) ? state->parameter_shard : state->master_shard);
	use_another(b, state->optimizer_state);
	use_another(b, state->host_gradient);
	use_another(b, state->host_low_precision);
	if (state->host_gradient != state->kept_host_gradient)
		op_give(b, state->host_gradient);
	state->host_gradient = -1;
}

static void use_states(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	if (offloads(b, unit)) {
		use_host_states(b, unit);
		return;
	}
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

/* DeepSpeed updates on the host with an Adam of its own, which is fused. */
static enum optimizer optimizer_of(const struct builder *b, enum stream stream)
{
	bool own = stream == STREAM_HOST && b->runtime->zero != NULL &&
		   b->plan->optimizer != OPTIMIZER_SGD;
	return own ? OPTIMIZER_ADAMW_FUSED : b->plan->optimizer;
}

/* Passes over what is in the master dtype; the gradient is read once where it is in another. */
static int64_t update_bytes(const struct builder *b, enum stream stream, int64_t elements)
{
	double traffic = optimizer_traffic(optimizer_of(b, stream));
	int64_t master = dtype_bytes(b->plan->master_dtype);

	return (int64_t)(traffic * (double)elements * master / 4) +
	       elements * (gradient_bytes(b) - master);
}

/* One unit's update, or (unit < 0) that of all units of the stream. The last one of all ends the
 * scalars. */
static void update(
	struct builder *b, enum stream stream, int unit, int64_t elements, bool last, int scalars)
{
	op_begin(b, OP_OPTIMIZER, stream, unit);
	wait_for_reductions(b);
	wait_for_copies(b);
	b->op.dtype = b->plan->master_dtype;
	b->op.bytes = update_bytes(b, stream, elements);
	for (int u = 0; u < b->n_units; u++)
		if (u == unit || (unit < 0 && updater(b, u) == stream))
			use_states(b, u);
	if (is_ddp(b) && !is_zero(b))
		ddp_give_gradients(b);
	if (stream == STREAM_COMPUTE)
		take_work(b, elements);
	if (last && scalars >= 0) {
		op_use(b, scalars);
		op_give(b, scalars);
	}
	struct ref done = op_end(b);
	if (stream == STREAM_COMPUTE)
		b->optimizer = done;
	for (int u = 0; u < b->n_units && stream == STREAM_HOST; u++)
		if (u == unit || (unit < 0 && offloads(b, u)))
			offload_return(b, u);
}

/* The last unit with parameters that the stream updates; -1. */
static int last_unit(const struct builder *b, enum stream stream)
{
	int last = b->n_units - 1;
	while (last >= 0 &&
		(b->schedule->units[last].parameters == 0 || updater(b, last) != stream))
		last--;
	return last;
}

/* What the stream updates, in one operation or in one per unit. */
static void update_units(struct builder *b, enum stream stream, bool last, int scalars)
{
	int end = last_unit(b, stream);
	if (!b->runtime->optimizer_per_unit) {
		update(b, stream, -1, local_elements(b, stream), last, scalars);
		return;
	}
	for (int u = 0; u <= end; u++)
		if (b->schedule->units[u].parameters > 0 && updater(b, u) == stream) {
			update(b, stream, u, b->schedule->units[u].chunk, last && u == end,
				scalars);
			gather_updated(b, u);
		}
}

/* The device's updates are issued first: the host's keep the issuing thread busy. */
void optimizer_step(struct builder *b)
{
	bool on_host = has_work(b, STREAM_HOST);
	int scalars = -1;
	b->micro_batch = -1;
	if (b->plan->clip > 0 || b->runtime->measures_norm)
		scalars = norm(b);
	if (b->plan->clip > 0) {
		clip(b, STREAM_COMPUTE, scalars);
		clip(b, STREAM_HOST, scalars);
	}
	if (has_work(b, STREAM_COMPUTE))
		update_units(b, STREAM_COMPUTE, !on_host, scalars);
	if (on_host)
		update_units(b, STREAM_HOST, true, scalars);
	if (is_zero(b))
		zero_gather(b);
	if (is_zero3(b))
		zero3_finish_step(b);
}
