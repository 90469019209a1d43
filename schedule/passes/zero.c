/* ZeRO with whole parameters: every rank holds the model in the compute dtype and an fp32 shard of
 * it, reduces all gradients over all ranks, updates its shard and gathers the rest. DeepSpeed's
 * stages 1 and 2, nanotron's ZeRO-1 and DDP, InternEvo's ZeRO-1 (docs/runtimes.md). Units are the
 * reduction's buckets; the master copies are cut per bucket, which adds up to the same. */
#include "schedule/passes/passes.h"

static const struct zero_rules *rules_of(const struct builder *b)
{
	return b->runtime->zero;
}

static bool stage_has(const struct builder *b, unsigned mask)
{
	return mask >> strategy_stage(b->plan->strategy) & 1;
}

/* Beside nanotron's hook the DDP wrapper copies gradients into buckets of its own. */
static bool copies_to_buckets(const struct builder *b)
{
	return rules_of(b)->fp32_gradients && !b->shards;
}

/* --- resident ------------------------------------------------------------------------------------
 */

void zero_build_resident(struct builder *b)
{
	int64_t elements = 0, compute = dtype_bytes(b->plan->param_dtype);
	for (int u = 0; u < b->n_units; u++) {
		int64_t n = b->schedule->units[u].gathered;
		elements += n;
		if (rules_of(b)->fp32_gradients)
			b->units[u].kept_gradient = buffer_resident(b, BUFFER_GRADIENT, u,
				n * dtype_bytes(b->plan->reduce_dtype), b->plan->reduce_dtype);
		if (copies_to_buckets(b))
			b->units[u].reduce_input = buffer_resident(
				b, BUFFER_REDUCE_INPUT, u, n * compute, b->plan->param_dtype);
	}
	b->whole = buffer_resident(
		b, BUFFER_COMPUTE_COPY, -1, elements * compute, b->plan->param_dtype);
}

/* --- gradients -----------------------------------------------------------------------------------
 */

/* DeepSpeed collects gradients in one buffer, taken when backward makes the first one. */
static void take_collector(struct builder *b)
{
	int64_t elements = rules_of(b)->buffer_elements;
	if (elements == 0 || b->collector >= 0)
		return;
	b->collector = buffer_new(b, BUFFER_BUCKET, STREAM_COMPUTE, -1,
		elements * dtype_bytes(b->plan->param_dtype), b->plan->param_dtype);
	op_take(b, b->collector);
	op_use(b, b->collector);
}

void zero_gradients(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	enum dtype dtype = b->plan->param_dtype;
	int64_t elements = gradient_elements(b, event, dtype);
	if (elements > 0 && b->range_gradients[index] < 0) {
		int buffer = buffer_new(b, BUFFER_GRADIENT, STREAM_COMPUTE, -1,
			elements * dtype_bytes(dtype), dtype);
		b->buffers[buffer].layer = event->layer;
		b->buffers[buffer].first_module = event->first_module;
		b->buffers[buffer].end_module = event->end_module;
		b->range_gradients[index] = buffer;
		op_take(b, buffer);
	}
	op_use(b, b->range_gradients[index]);
	take_collector(b);
}

static void release_range(struct builder *b, int index)
{
	op_use(b, b->range_gradients[index]);
	op_give(b, b->range_gradients[index]);
	b->range_gradients[index] = -1;
}

static void release_gradients(struct builder *b)
{
	for (int i = 0; i < b->n_events; i++)
		if (b->range_gradients[i] >= 0)
			release_range(b, i);
}

/* A range's gradients are complete after its own backward, but those of the head with a tied weight
 * only after the embedding's. */
static bool completes(const struct builder *b, int range, int index)
{
	int tied = b->model->modules[b->model->n_modules - 1].tied_parameter;
	bool head = b->events[range].end_module == b->model->n_modules;
	return head && tied >= 0 ? b->owner_events[tied] == index : range == index;
}

/* Into the collecting buffer; what was there is free. */
static void collect(struct builder *b, int index)
{
	for (int range = b->n_events - 1; range >= index; range--) {
		if (b->range_gradients[range] < 0 || !completes(b, range, index))
			continue;
		op_begin(b, OP_CAST_GRADIENTS, STREAM_COMPUTE, -1);
		b->op.bytes = 2 * b->buffers[b->range_gradients[range]].bytes;
		release_range(b, range);
		op_use(b, b->collector);
		op_end(b);
	}
}

/* --- reductions ----------------------------------------------------------------------------------
 */

/* A flat copy of the bucket in the dtype that is reduced; DeepSpeed has divided it before. */
static int flatten(struct builder *b, int unit)
{
	int64_t n = b->schedule->units[unit].gathered;
	int64_t compute = dtype_bytes(b->plan->param_dtype);
	int64_t reduce = dtype_bytes(b->plan->reduce_dtype);
	int buffer = buffer_new(
		b, BUFFER_REDUCE_INPUT, STREAM_COMPUTE, unit, n * reduce, b->plan->reduce_dtype);
	op_begin(b, OP_CAST_GRADIENTS, STREAM_COMPUTE, unit);
	if (stage_has(b, rules_of(b)->overlaps))
		op_wait_stream(b, STREAM_REDUCE); /* one reduction under way */
	b->op.dtype = b->plan->reduce_dtype;
	b->op.bytes = n * (compute + reduce);
	if (b->collector >= 0)
		b->op.bytes += 2 * n * compute;
	if (b->collector >= 0 && stage_has(b, rules_of(b)->reduces_late))
		b->op.bytes += 2 * n * compute;
	op_use(b, b->collector);
	if (b->collector < 0 || stage_has(b, rules_of(b)->reduces_late))
		ddp_use_bucket_gradients(b, unit);
	op_take(b, buffer);
	op_use(b, buffer);
	op_end(b);
	return buffer;
}

/* nanotron's hook: DDP's bucket, then added to the fp32 copy. */
static void add_in_hook(struct builder *b, int unit)
{
	int64_t n = b->schedule->units[unit].gathered;
	int64_t compute = dtype_bytes(b->plan->param_dtype);
	op_begin(b, OP_CAST_GRADIENTS, STREAM_COMPUTE, unit);
	b->op.bytes = n * (3 * compute + 2 * dtype_bytes(b->plan->reduce_dtype));
	ddp_use_bucket_gradients(b, unit);
	op_use(b, b->units[unit].reduce_input);
	op_use(b, b->units[unit].kept_gradient);
	op_end(b);
}

static void all_reduce(struct builder *b, int unit, int buffer)
{
	struct unit_state *state = &b->units[unit];
	if (b->group_replicate < 0)
		return;
	op_begin(b, OP_ALL_REDUCE, STREAM_REDUCE, unit);
	op_wait_stream(b, STREAM_COMPUTE);
	b->op.dtype = b->plan->reduce_dtype;
	b->op.bytes = b->schedule->units[unit].gathered * dtype_bytes(b->plan->reduce_dtype);
	b->op.group = b->group_replicate;
	op_use(b, buffer);
	state->reduced = op_end(b);
}

/* The owner's slice is copied out of the reduced bucket, or added to that of earlier micro-batches.
 */
static void keep_slice(struct builder *b, int unit, int reduced)
{
	struct unit_state *state = &b->units[unit];
	bool overlaps = stage_has(b, rules_of(b)->overlaps);
	int64_t chunk = b->schedule->units[unit].chunk;
	int64_t copied = rules_of(b)->copies_back ? b->schedule->units[unit].gathered : chunk;
	/* cast before it leaves for the host */
	enum dtype dtype = offloads(b, unit) ? b->plan->master_dtype : b->plan->param_dtype;
	int64_t width = dtype_bytes(dtype);
	op_begin(b, OP_ACCUMULATE_GRADIENTS, overlaps ? STREAM_REDUCE : STREAM_COMPUTE, unit);
	op_wait(b, state->reduced);
	op_wait_stream(b, STREAM_COMPUTE);
	b->op.dtype = dtype;
	b->op.bytes = copied * (dtype_bytes(b->plan->reduce_dtype) + width);
	op_use(b, reduced);
	if (state->gradient_shard < 0) {
		state->gradient_shard = buffer_new(
			b, BUFFER_GRADIENT_SHARD, b->op.stream, unit, chunk * width, dtype);
		op_take(b, state->gradient_shard);
	} else {
		b->op.bytes += chunk * width;
	}
	op_use(b, state->gradient_shard);
	op_give(b, reduced);
	state->reduced = op_end(b);
	if (offloads(b, unit))
		offload_gradient(b, unit, b->op.stream);
}

static void reduce_bucket(struct builder *b, int unit)
{
	if (rules_of(b)->fp32_gradients) {
		if (!b->shards)
			add_in_hook(b, unit);
		all_reduce(b, unit, b->units[unit].kept_gradient);
		return;
	}
	int buffer = flatten(b, unit);
	all_reduce(b, unit, buffer);
	keep_slice(b, unit, buffer);
}

void zero_post_range(struct builder *b, int index)
{
	if (!b->synchronise || stage_has(b, rules_of(b)->reduces_late))
		return;
	if (b->collector >= 0)
		collect(b, index);
	for (int u = 0; u < b->n_units; u++)
		if (b->units[u].pre_forward_index == index)
			reduce_bucket(b, u);
}

/* --- the end of backward -------------------------------------------------------------------------
 */

/* nanotron adds to the fp32 copy when backward is through. */
static void add_to_copies(struct builder *b)
{
	op_begin(b, OP_ACCUMULATE_GRADIENTS, STREAM_COMPUTE, -1);
	for (int u = 0; u < b->n_units; u++) {
		b->op.bytes += b->schedule->units[u].parameters *
			       (dtype_bytes(b->plan->param_dtype) +
				       2 * dtype_bytes(b->plan->reduce_dtype));
		list_add(&b->uses, b->units[u].kept_gradient);
	}
	release_gradients(b);
	op_end(b);
}

/* Compute has waited for the reductions; what only they needed is free. */
static void release(struct builder *b)
{
	op_begin(b, OP_END_BACKWARD, STREAM_COMPUTE, -1);
	op_wait_stream(b, STREAM_REDUCE);
	release_gradients(b);
	op_use(b, b->collector);
	op_give(b, b->collector);
	b->collector = -1;
	op_end(b);
}

void zero_finish_backward(struct builder *b)
{
	bool late = stage_has(b, rules_of(b)->reduces_late);
	bool hooked = b->synchronise && !late;
	if (rules_of(b)->fp32_gradients && !hooked)
		add_to_copies(b);
	for (int u = 0; u < b->n_units && b->synchronise && late; u++)
		reduce_bucket(b, u);
	if (b->synchronise)
		release(b);
}

/* --- the step ------------------------------------------------------------------------------------
 */

int64_t zero_optimizer_work(struct builder *b, int64_t elements)
{
	if (strategy_stage(b->plan->strategy) == 3) /* group by group */
		elements = min_i64(elements, rules_of(b)->group_elements);
	return rules_of(b)->fp32_gradients ? 0 : elements * dtype_bytes(b->plan->master_dtype);
}

void zero_use_gradients(struct builder *b, int unit)
{
	if (rules_of(b)->fp32_gradients)
		list_add(&b->uses, b->units[unit].kept_gradient);
}

/* Updated shards go into the rank's part of the whole parameters, which are gathered in place. */
void zero_gather(struct builder *b)
{
	int64_t compute = dtype_bytes(b->plan->param_dtype), chunks = 0;
	for (int u = 0; u < b->n_units; u++)
		if (offloads(b, u))
			b->units[u].staged = offload_stage_master(b, u);
	op_begin(b, OP_CAST_PARAMETERS, STREAM_COMPUTE, -1);
	for (int u = 0; u < b->n_units; u++) {
		struct unit_state *state = &b->units[u];
		list_add(&b->uses, state->staged >= 0 ? state->staged : state->parameter_shard);
		op_give(b, state->staged);
		state->staged = -1;
		chunks += b->schedule->units[u].chunk;
	}
	b->op.bytes = chunks * (dtype_bytes(b->plan->master_dtype) + compute);
	op_use(b, b->whole);
	op_end(b);
	if (b->group_gather < 0)
		return;
	op_begin(b, OP_ALL_GATHER, STREAM_GATHER, -1);
	op_wait_stream(b, STREAM_COMPUTE);
	b->op.bytes = b->buffers[b->whole].bytes;
	b->op.group = b->group_gather;
	op_use(b, b->whole);
	b->whole_ready = op_end(b);
}
