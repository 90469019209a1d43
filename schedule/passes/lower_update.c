/* Lowers the gradient norm, clipping and the optimizer. */
#include "schedule/passes/lower.h"

static bool is_of_stream(const struct lowering *l, int unit)
{
	return unit_updater(l->step, unit) == l->op.stream;
}

static int64_t local_elements(const struct lowering *l)
{
	int64_t total = 0;
	for (int u = 0; u < l->step->n_units; u++)
		if (is_of_stream(l, u))
			total += l->step->units[u].times * l->step->units[u].trained_chunk;
	return total;
}

static int64_t gradient_bytes(const struct lowering *l)
{
	return dtype_bytes(plan_optimizer_gradient_dtype(l->step->plan));
}

/* Uses the gradient shards that the operation's stream updates from. */
static void use_gradient_shards(struct lowering *l)
{
	const struct step *step = l->step;
	for (int u = 0; u < step->n_units; u++)
		if (is_of_stream(l, u))
			op_use_another(l, unit_is_offloaded(step, u) ? l->units[u].host_gradient
								     : l->units[u].gradient_shard);
	for (int u = 0; u < step->n_units; u++)
		op_use_another(l, step->resident[u].gradient);
	if (step->method.weights == WEIGHTS_OF_BUCKETS)
		op_use_all_bucket_gradients(l);
}

/* Sums over the units that one stream updates. Ours sums exactly (in a superaccumulator), PyTorch
 * in fp32. */
void lower_NORM(struct lowering *l)
{
	const struct step *step = l->step;
	int64_t elements = local_elements(l);
	l->op.bytes = gradient_bytes(l) * elements;
	if (step->plan->gradient_sums == SUMS_EXACT) /* they become fp32 in place first */
		l->op.bytes += (dtype_bytes(DTYPE_INT64) + gradient_bytes(l)) * elements;
	if (l->at->flags & FIRST) {
		l->scalars = buffer_new(l->step, BUFFER_NORM_SCALARS, STREAM_COMPUTE, -1,
			step->method.norm_is_exact ? NORM_SCALAR_BYTES_EXACT : NORM_SCALAR_BYTES,
			DTYPE_FP32);
		op_take(l, l->scalars);
	}
	use_gradient_shards(l);
	op_use(l, l->scalars);
}

/* Reduces the gradients of norms and the like all at once, because they lie in buckets. */
void lower_REDUCE_ALIKE(struct lowering *l)
{
	const struct step *step = l->step;
	l->op.group = step->group_tensor;
	l->op.dtype = plan_gradient_dtype(step->plan);
	l->op.bytes = partial_parameters(step) * dtype_bytes(l->op.dtype);
	for (int u = 0; u < step->n_units; u++)
		op_use_another(l, step->resident[u].gradient);
}

/* The gradient of the table is in a bucket, or is the shard of a unit of its own. */
void lower_REDUCE_TABLE(struct lowering *l)
{
	const struct step *step = l->step;
	const struct parameter *table = &step->model->parameters[model_shared_table(step->model)];
	int unit = 0;
	while (!unit_has_slice(&step->units[unit], model_shared_table(step->model)))
		unit++;
	int bucket = step->resident[unit].gradient, shard = l->units[unit].gradient_shard;
	l->op.group = step->group_table;
	l->op.dtype = step->buffers[bucket >= 0 ? bucket : shard].dtype;
	l->op.bytes = bucket >= 0 ? table->elements * dtype_bytes(l->op.dtype)
				  : step->buffers[shard].bytes;
	l->op.first_module = table->module;
	l->op.end_module = table->module + 1;
	op_use(l, bucket >= 0 ? bucket : shard);
}

static void reduce_norm(struct lowering *l, int group)
{
	l->op.dtype = DTYPE_FP32;
	l->op.bytes = l->step->buffers[l->scalars].bytes;
	l->op.group = group;
	op_use(l, l->scalars);
}

void lower_REDUCE_NORM(struct lowering *l)
{
	reduce_norm(l, l->step->group_reduce);
}

void lower_REDUCE_NORM_PARTS(struct lowering *l)
{
	reduce_norm(l, l->step->group_tensor >= 0 ? l->step->group_tensor : l->step->group_expert);
}

void lower_REDUCE_NORM_STAGES(struct lowering *l)
{
	reduce_norm(l, l->step->group_forward);
}

void lower_CLIP(struct lowering *l)
{
	l->op.bytes = 2 * gradient_bytes(l) * local_elements(l);
	op_use(l, l->scalars);
	use_gradient_shards(l);
}

/* --- the update ----------------------------------------------------------------------------------
 */

/* A host gradient that is resident lives on, together with what the next step writes over it. */
static void use_host_states(struct lowering *l, int unit)
{
	const struct resident *resident = &l->step->resident[unit];
	struct live *live = &l->units[unit];
	bool has_parameters = unit_parameters_are_offloaded(l->step, unit);
	op_use_another(l, has_parameters ? resident->parameter_shard : resident->master_shard);
	op_use_another(l, resident->optimizer_state);
	op_use_another(l, live->host_gradient);
	op_use_another(l, resident->host_copy);
	if (live->host_gradient != resident->host_gradient)
		op_give(l, &live->host_gradient);
	live->host_gradient = -1;
}

static void use_states(struct lowering *l, int unit)
{
	const struct resident *resident = &l->step->resident[unit];
	struct live *live = &l->units[unit];
	if (unit_is_offloaded(l->step, unit)) {
		use_host_states(l, unit);
		return;
	}
	op_use_another(l, resident->parameter_shard);
	op_use_another(l, resident->optimizer_state);
	op_use_another(l, live->gradient_shard);
	if (resident->gradient_shard < 0)
		op_give(l, &live->gradient_shard);
	op_use_another(l, resident->gradient);
}

/* Takes what the update works with: the square roots of foreach, and ZeRO's copy of the gradients,
 * which stage 3 makes group by group. */
static void take_work(struct lowering *l, int64_t elements)
{
	const struct method *method = &l->step->method;
	int64_t bytes = 0;
	if (l->step->plan->optimizer == OPTIMIZER_ADAMW_FOREACH)
		bytes = elements * master_bytes(l);
	if (method->copies_gradients) {
		int64_t copy = min_i64(elements, method->group_elements) * master_bytes(l);
		bytes += copy;
		l->op.bytes += copy + copy / 2;
	}
	if (bytes == 0)
		return;
	int work = op_take_new(l, BUFFER_OPTIMIZER_WORK, -1, bytes, l->step->plan->master_dtype);
	op_give(l, &work);
}

/* Returns the bytes per fp32 parameter (docs/runtimes.md). A fused optimizer reads p, g, m, v and
 * writes p, m, v; foreach and the plain loop make nine passes; SGD without momentum reads p, g and
 * writes p. */
static double traffic_of(enum optimizer optimizer)
{
	static const double bytes[] = {[OPTIMIZER_ADAMW_FUSED] = 28,
		[OPTIMIZER_ADAMW_FOREACH] = 88,
		[OPTIMIZER_ADAMW] = 88,
		[OPTIMIZER_SGD] = 12};
	return bytes[optimizer];
}

/* DeepSpeed updates on the host with an Adam of its own, which is fused. */
static enum optimizer optimizer_of(const struct lowering *l)
{
	bool own = l->op.stream == STREAM_HOST && l->step->method.host_update_is_fused &&
		   l->step->plan->optimizer != OPTIMIZER_SGD;
	return own ? OPTIMIZER_ADAMW_FUSED : l->step->plan->optimizer;
}

/* Counts passes over what is in the master dtype. The gradient is read once where it is in
 * another. */
static int64_t update_bytes(const struct lowering *l, int64_t elements)
{
	double traffic = traffic_of(optimizer_of(l));
	return (int64_t)(traffic * (double)elements * (double)master_bytes(l) / 4) +
	       elements * (gradient_bytes(l) - master_bytes(l));
}

/* torchao reads all shards once more, to find the scales with which they are gathered
 * (precompute_float8_dynamic_scale_for_fsdp). */
static int64_t scale_bytes(const struct lowering *l, int unit)
{
	const struct step *step = l->step;
	return step->method.casts_shard ? step->units[unit].fp8_elements * master_bytes(l) /
						  unit_shard_ranks(&step->units[unit], step->plan)
					: 0;
}

/* Makes one unit's update or, for unit -1, that of all units of the stream. The last update of all
 * ends the scalars. */
void lower_UPDATE(struct lowering *l)
{
	int unit = l->at->unit;
	int64_t elements = unit >= 0 ? l->step->units[unit].trained_chunk : local_elements(l);
	l->op.dtype = l->step->plan->master_dtype;
	l->op.bytes = update_bytes(l, elements);
	for (int u = 0; u < l->step->n_units; u++)
		if (u == unit || (unit < 0 && is_of_stream(l, u) && unit_is_trained(l->step, u))) {
			use_states(l, u);
			l->op.bytes += scale_bytes(l, u) * l->step->units[u].times;
		}
	if (l->step->method.weights == WEIGHTS_OF_BUCKETS)
		op_give_all_bucket_gradients(l);
	if (l->op.stream == STREAM_COMPUTE)
		take_work(l, elements);
	if (l->at->flags & LAST) {
		op_use(l, l->scalars);
		op_give(l, &l->scalars);
	}
}
