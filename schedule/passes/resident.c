/* Makes the buffers that live between steps: shards, optimizer states, and what a method keeps
 * beside these. */
#include "schedule/passes/sizes.h"

/* Transformer Engine has workspaces of its own (cpp_extensions/gemm.py): one, and for products of
 * several experts one on each of four streams. */
static int64_t engine_workspace_bytes(const struct step *step)
{
	enum { MIB = 1 << 20, STREAMS = 4 };
	int64_t one =
		step->topology->device.generation >= GENERATION_HOPPER ? 32 * MIB + 1024 : 4 * MIB;
	return step->model->architecture.experts > 0 ? (1 + STREAMS) * one : one;
}

/* cuBLAS has 2 x 4 MiB + 8 x 16 KiB, and 32 MiB from Hopper on (CublasHandlePool.cpp). */
static int64_t one_workspace_bytes(const struct step *step)
{
	const struct topology *topology = step->topology;
	const struct runtime *runtime = runtime_of(step->plan->runtime);
	if (topology->overheads.workspace_bytes > 0)
		return topology->overheads.workspace_bytes;
	if (runtime->workspace_bytes > 0)
		return runtime->workspace_bytes;
	if (topology->device.kind != DEVICE_GPU)
		return 0;
	return topology->device.generation >= GENERATION_HOPPER ? 33554432 : 8519680;
}

/* The backward of attention has one where our executor's GPU does it by cuDNN. */
static int64_t attention_workspace_bytes(const struct step *step)
{
	const struct architecture *a = &step->model->architecture;
	const struct plan *plan = step->plan;
	const struct calibration_attention *chosen = calibration_attention_backward(
		&step->topology->calibration, a->head_dim, plan->seq_len);
	if (chosen == NULL || plan->runtime != RUNTIME_SHARDPLAN || plan->param_dtype != DTYPE_BF16)
		return 0;
	return calibration_attention_workspace(chosen, plan->micro_batch, a->heads, a->kv_heads);
}

static int64_t workspace_bytes(const struct step *step)
{
	int64_t one = max_i64(one_workspace_bytes(step), attention_workspace_bytes(step));
	if (one == 0 || !runtime_of(step->plan->runtime)->three_workspaces)
		return one;
	return 2 * one + engine_workspace_bytes(step);
}

static int64_t optimizer_state_bytes(const struct step *step)
{
	if (step->plan->optimizer == OPTIMIZER_SGD)
		return 0;
	return 2 * dtype_bytes(step->plan->master_dtype);
}

static bool has_whole(const struct step *step)
{
	return step->method.weights == WEIGHTS_WHOLE ||
	       step->method.weights == WEIGHTS_WHOLE_BUCKETS;
}

static void add_states(struct step *step, int unit)
{
	struct resident *resident = &step->resident[unit];
	enum dtype master = step->plan->master_dtype;
	const struct unit *u = &step->units[unit];
	int64_t chunk = u->trained_chunk, state_bytes = optimizer_state_bytes(step);
	if (unit_is_frozen(u) && has_whole(step)) /* add_whole */
		return;
	resident->parameter_shard = buffer_new_resident(step, BUFFER_PARAMETER_SHARD, unit,
		unit_shard_bytes(u, step->plan),
		unit_is_frozen(u) ? step->plan->param_dtype : master);
	if (state_bytes > 0 && chunk > 0)
		resident->optimizer_state = buffer_new_resident(
			step, BUFFER_OPTIMIZER_STATE, unit, chunk * state_bytes, master);
}

/* With offloaded parameters the master shard itself lives on the host. With only the optimizer
 * offloaded the host updates a master copy, and the device keeps the shard that is gathered, in the
 * compute dtype; with whole parameters it keeps no shard at all. */
static void add_offloaded_shard(struct step *step, int unit)
{
	struct resident *resident = &step->resident[unit];
	enum dtype master = step->plan->master_dtype, compute = step->plan->param_dtype;
	int64_t chunk = step->units[unit].chunk, bytes = chunk * dtype_bytes(master);
	if (unit_parameters_are_offloaded(step, unit) && step->method.weights != WEIGHTS_WHOLE) {
		resident->parameter_shard =
			buffer_new_on_host(step, BUFFER_PARAMETER_SHARD, unit, bytes, master);
		return;
	}
	if (step->method.weights != WEIGHTS_WHOLE)
		resident->parameter_shard = buffer_new_resident(
			step, BUFFER_PARAMETER_SHARD, unit, chunk * dtype_bytes(compute), compute);
	resident->master_shard = buffer_new_on_host(step, BUFFER_MASTER_SHARD, unit, bytes, master);
	if (step->method.weights != WEIGHTS_WHOLE && step->method.casts)
		resident->host_copy = buffer_new_on_host(step, BUFFER_LOW_PRECISION_SHARD, unit,
			chunk * dtype_bytes(compute), compute);
}

static void add_offloaded_states(struct step *step, int unit)
{
	struct resident *resident = &step->resident[unit];
	enum dtype master = step->plan->master_dtype;
	int64_t chunk = step->units[unit].chunk, state_bytes = optimizer_state_bytes(step);
	add_offloaded_shard(step, unit);
	if (state_bytes > 0)
		resident->optimizer_state = buffer_new_on_host(
			step, BUFFER_OPTIMIZER_STATE, unit, chunk * state_bytes, master);
	if (step->method.keeps_host_gradient)
		resident->host_gradient = buffer_new_on_host(
			step, BUFFER_GRADIENT_SHARD, unit, chunk * dtype_bytes(master), master);
}

static void add_unit(struct step *step, int unit)
{
	struct resident *resident = &step->resident[unit];
	const struct unit *u = &step->units[unit];
	enum dtype master = step->plan->master_dtype, compute = step->plan->param_dtype;
	*resident = (struct resident){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
	if (u->parameters == 0)
		return;
	if (unit_is_offloaded(step, unit))
		add_offloaded_states(step, unit);
	else
		add_states(step, unit);
	if (step->method.keeps_units)
		resident->kept = buffer_new_resident(
			step, BUFFER_UNSHARDED, unit, u->gathered * dtype_bytes(compute), compute);
	/* A single rank is not wrapped, because there is nothing to reduce. */
	if (step->method.weights == WEIGHTS_OF_BUCKETS && plan_reduce_ranks(step->plan) > 1 &&
		!unit_is_frozen(u))
		resident->reduce_input = buffer_new_resident(
			step, BUFFER_REDUCE_INPUT, unit, u->elements * dtype_bytes(master), master);
}

/* Adds what ZeRO with whole parameters keeps; frozen ones lie apart, because nothing gathers them.
 * Beside nanotron's hook the DDP wrapper copies gradients into buckets of its own. */
static void add_whole(struct step *step)
{
	enum dtype compute = step->plan->param_dtype, reduce = step->plan->reduce_dtype;
	int64_t bytes = 0, width = dtype_bytes(compute);
	for (int u = 0; u < step->n_units; u++) {
		int64_t n = step->units[u].trained_gathered, whole = unit_whole_bytes(step, u);
		bytes += n > 0 ? whole : 0;
		if (step->method.weights == WEIGHTS_WHOLE_BUCKETS || (n == 0 && whole > 0))
			step->resident[u].whole =
				buffer_new_resident(step, BUFFER_COMPUTE_COPY, u, whole, compute);
		if (n == 0)
			continue;
		if (step->method.buckets == BUCKETS_ADDED_UP)
			step->resident[u].gradient = buffer_new_resident(
				step, BUFFER_GRADIENT, u, n * dtype_bytes(reduce), reduce);
		if (step->method.adds_in_hook)
			step->resident[u].reduce_input = buffer_new_resident(
				step, BUFFER_REDUCE_INPUT, u, n * width, compute);
	}
	if (step->method.weights == WEIGHTS_WHOLE)
		step->whole = buffer_new_resident(step, BUFFER_COMPUTE_COPY, -1, bytes, compute);
}

/* ZeRO-3 leaves small parameters on every rank. */
static bool is_persistent(const struct step *step, int unit)
{
	const struct unit *u = &step->units[unit];
	for (int i = 0; i < u->n_slices; i++)
		if (u->slices[i].elements > step->method.persistent_elements)
			return false;
	return true;
}

static void add_partitions(struct step *step)
{
	enum dtype dtype = step->plan->param_dtype;
	int64_t width = dtype_bytes(dtype);
	for (int u = 0; u < step->n_units; u++) {
		struct resident *resident = &step->resident[u];
		int64_t part = step->units[u].chunk * width;
		if (!unit_has_parameters(step, u))
			continue;
		resident->low_precision =
			buffer_new_resident(step, BUFFER_LOW_PRECISION_SHARD, u, part, dtype);
		resident->gradient_shard =
			buffer_new_resident(step, BUFFER_GRADIENT_SHARD, u, part, dtype);
		if (is_persistent(step, u))
			resident->kept = buffer_new_resident(
				step, BUFFER_UNSHARDED, u, step->units[u].gathered * width, dtype);
	}
	step->collector = buffer_new_resident(
		step, BUFFER_BUCKET, -1, step->method.collector_elements * width, dtype);
}

/* Returns the bytes that tensor ranks copy to: two chunks, of sums or of a gathered tensor, or else
 * whole tensors. */
static int64_t copied_tokens_bytes(const struct step *step)
{
	enum { GATHERS = 6, SUMS = 4 };
	int64_t whole = exchanged_tokens_bytes(step);

	if (!runtime_of(step->plan->runtime)->layers_exchange)
		return 2 * whole / step->plan->mesh.tensor;
	int64_t gathered =
		fp8_gathered_bytes(step->plan, whole / dtype_bytes(step->plan->param_dtype), true);
	return GATHERS * gathered + SUMS * whole;
}

/* Gathered inputs that are kept lie in no buffer of these. */
static void add_gather_buffers(struct step *step)
{
	int n = step->plan->sequence_parallel ? runtime_of(step->plan->runtime)->gather_buffers : 0;
	step->gather_buffers[false] = step->gather_buffers[true] = -1;
	for (int i = 0; i < n - step->rules.keeps_gathered_input; i++)
		step->gather_buffers[i] = buffer_new_resident(step, BUFFER_GATHERED_TOKENS, -1,
			exchanged_tokens_bytes(step), step->plan->param_dtype);
	if (n == 1)
		step->gather_buffers[true] = step->gather_buffers[false];
}

void pass_resident(struct step *step)
{
	int64_t workspace = workspace_bytes(step);
	step->resident = ARENA_ARRAY(step->arena, struct resident, step->n_units);
	step->whole = step->collector = step->kernel_workspace = -1;
	for (int u = 0; u < step->n_units; u++)
		add_unit(step, u);
	if (has_whole(step))
		add_whole(step);
	if (step->method.gathers == GATHERS_BY_TRACE)
		add_partitions(step);
	add_gather_buffers(step);
	if (step->plan->async_tensor)
		buffer_new_resident(step, BUFFER_GATHERED_TOKENS, -1, copied_tokens_bytes(step),
			step->plan->param_dtype);
	if (step->pipeline.ranks > 1 && runtime_of(step->plan->runtime)->keeps_messages)
		buffer_new_resident(step, BUFFER_RESIDUAL_GRADIENT, -1,
			3 * (1 + step->pipeline.chunks) * residual_bytes(step) / 2,
			step->plan->param_dtype);
	int64_t copies =
		fp8_weight_bytes(step->plan, step->model, step->topology->device.generation);
	if (copies > 0)
		buffer_new_resident(step, BUFFER_KERNEL_WORKSPACE, -1, copies, DTYPE_FP8);
	if (workspace > 0)
		step->kernel_workspace = buffer_new_resident(
			step, BUFFER_KERNEL_WORKSPACE, -1, workspace, DTYPE_INT8);
}
