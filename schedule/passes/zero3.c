/* DeepSpeed's ZeRO-3 (docs/runtimes.md): leaves are units. The first step records in which order
 * they are used; later ones gather a leaf when it is used, prefetch those that follow, and release
 * one unless it is used again soon. Small parameters stay on every rank. Gradients are collected in
 * one buffer and reduce-scattered when it is full, beside backward. */
#include <stdlib.h>

#include "schedule/passes/passes.h"

enum { REDUCTIONS_AHEAD = 2 };

static const struct zero_rules *rules_of(const struct builder *b)
{
	return b->runtime->zero;
}

static const struct unit *unit_of(const struct builder *b, int unit)
{
	return &b->schedule->units[unit];
}

static int64_t compute_bytes(const struct builder *b)
{
	return dtype_bytes(b->plan->param_dtype);
}

static bool is_partitioned(const struct builder *b, int unit)
{
	return unit_of(b, unit)->parameters > 0 && b->units[unit].kept < 0;
}

/* --- resident ------------------------------------------------------------------------------------
 */

static bool is_persistent(const struct builder *b, int unit)
{
	const struct unit *u = unit_of(b, unit);
	for (int i = 0; i < u->n_slices; i++)
		if (u->slices[i].elements > rules_of(b)->persistent_elements)
			return false;
	return u->parameters > 0;
}

void zero3_build_resident(struct builder *b)
{
	enum dtype dtype = b->plan->param_dtype;
	for (int u = 0; u < b->n_units; u++) {
		struct unit_state *state = &b->units[u];
		int64_t part = unit_of(b, u)->chunk * compute_bytes(b);
		state->low_precision = -1;
		if (unit_of(b, u)->parameters == 0)
			continue;
		state->low_precision =
			buffer_resident(b, BUFFER_LOW_PRECISION_SHARD, u, part, dtype);
		state->kept_gradient_shard =
			buffer_resident(b, BUFFER_GRADIENT_SHARD, u, part, dtype);
		if (is_persistent(b, u))
			state->kept = buffer_resident(b, BUFFER_UNSHARDED, u,
				unit_of(b, u)->gathered * compute_bytes(b), dtype);
	}
	b->collector = buffer_resident(
		b, BUFFER_BUCKET, -1, rules_of(b)->buffer_elements * compute_bytes(b), dtype);
}

/* --- gathers -------------------------------------------------------------------------------------
 */

/* The first on a stream waits for the end of the step before. */
static void wait_for_step(struct builder *b)
{
	struct ref last = b->last_on_stream[b->op.stream];
	if (last.op < 0 || last.step < b->step || b->micro_batch < 0)
		op_wait(b, b->optimizer);
}

static void gather_one(struct builder *b, int unit, int cause)
{
	struct unit_state *state = &b->units[unit];
	int64_t bytes = unit_of(b, unit)->gathered * compute_bytes(b);
	int output =
		buffer_new(b, BUFFER_UNSHARDED, STREAM_GATHER, unit, bytes, b->plan->param_dtype);
	op_begin(b, OP_ALL_GATHER, STREAM_GATHER, unit);
	wait_for_step(b);
	b->op.cause = cause;
	b->op.bytes = bytes;
	b->op.group = b->group_gather;
	op_use(b, state->low_precision);
	op_take(b, output);
	op_use(b, output);
	state->unsharded = output;
	state->ready = op_end(b);
}

/* Several at once: their shards side by side, one gather in place, then a copy each. */
static int gather_flat(struct builder *b, const int *units, int n, int cause)
{
	int64_t elements = 0;
	for (int i = 0; i < n; i++)
		elements += unit_of(b, units[i])->gathered;
	int64_t bytes = elements * compute_bytes(b);
	int flat = buffer_new(b, BUFFER_GATHERED, STREAM_GATHER, -1, bytes, b->plan->param_dtype);
	op_begin(b, OP_CAST_PARAMETERS, STREAM_GATHER, -1);
	wait_for_step(b);
	b->op.cause = cause;
	b->op.bytes = 2 * bytes / b->plan->mesh.shard;
	for (int i = 0; i < n; i++)
		op_use(b, b->units[units[i]].low_precision);
	op_take(b, flat);
	op_use(b, flat);
	op_end(b);
	op_begin(b, OP_ALL_GATHER, STREAM_GATHER, -1);
	b->op.cause = cause;
	b->op.bytes = bytes;
	b->op.group = b->group_gather;
	op_use(b, flat);
	op_end(b);
	return flat;
}

static void copy_out(struct builder *b, int unit, int flat, bool last)
{
	struct unit_state *state = &b->units[unit];
	int64_t bytes = unit_of(b, unit)->gathered * compute_bytes(b);
	op_begin(b, OP_COPY_OUT, STREAM_GATHER, unit);
	b->op.bytes = 2 * bytes;
	op_use(b, flat);
	if (state->kept >= 0) {
		op_wait_stream(b, STREAM_COMPUTE);
		state->unsharded = state->kept;
	} else {
		state->unsharded = buffer_new(
			b, BUFFER_UNSHARDED, STREAM_GATHER, unit, bytes, b->plan->param_dtype);
		op_take(b, state->unsharded);
	}
	op_use(b, state->unsharded);
	if (last)
		op_give(b, flat);
	state->ready = op_end(b);
}

static void gather(struct builder *b, const int *units, int n, int cause)
{
	for (int i = 0; i < n; i++)
		b->zero3.live += unit_of(b, units[i])->gathered;
	if (n == 1 && b->units[units[0]].kept < 0) {
		gather_one(b, units[0], cause);
	} else if (n > 0) {
		int flat = gather_flat(b, units, n, cause);
		for (int i = 0; i < n; i++)
			b->units[units[i]].gathered = flat;
	}
}

/* What was gathered with others is copied out when the first of them is used. */
static void copy_out_all(struct builder *b, int flat)
{
	int last = -1;
	for (int u = 0; u < b->n_units; u++)
		last = b->units[u].gathered == flat ? u : last;
	for (int u = 0; u < b->n_units; u++)
		if (b->units[u].gathered == flat) {
			b->units[u].gathered = -1;
			copy_out(b, u, flat, u == last);
		}
}

/* --- the trace -----------------------------------------------------------------------------------
 */

static bool is_recorded(const struct builder *b)
{
	return b->step > 0 || b->micro_batch > 0;
}

static bool is_there(const struct builder *b, int unit)
{
	return b->units[unit].unsharded >= 0 || b->units[unit].gathered >= 0;
}

/* Leaves that follow, until the bucket is full: the last one may exceed it. */
static void prefetch(struct builder *b, int cause)
{
	struct zero3 *z = &b->zero3;
	int64_t room =
		min_i64(rules_of(b)->prefetch_elements, rules_of(b)->live_elements - z->live);
	int64_t elements = 0;
	struct list units = {0};
	if (z->queue < z->position)
		z->queue = z->position;
	while (z->queue < z->trace.n && elements < room) {
		int unit = z->trace.items[z->queue++];
		bool chosen = false;
		for (int i = 0; i < units.n; i++)
			chosen = chosen || units.items[i] == unit;
		if (chosen || is_there(b, unit))
			continue;
		list_add(&units, unit);
		elements += unit_of(b, unit)->gathered;
	}
	gather(b, units.items, units.n, cause);
	free(units.items);
}

void zero3_fetch(struct builder *b, int unit)
{
	struct zero3 *z = &b->zero3;
	if (!is_partitioned(b, unit))
		return;
	z->position++;
	if (!is_recorded(b))
		list_add(&z->trace, unit);
	if (!is_there(b, unit))
		gather(b, &unit, 1, -1);
	if (b->units[unit].gathered >= 0)
		copy_out_all(b, b->units[unit].gathered);
	if (is_recorded(b))
		prefetch(b, unit);
}

static bool is_used_soon(const struct builder *b, int unit)
{
	const struct zero3 *z = &b->zero3;
	int64_t passed = 0;
	if (!is_recorded(b))
		return false;
	for (int i = z->position; i < z->trace.n && passed < rules_of(b)->reuse_elements; i++) {
		if (z->trace.items[i] == unit)
			return true;
		passed += unit_of(b, z->trace.items[i])->gathered;
	}
	return false;
}

void zero3_release(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	if (!is_partitioned(b, unit) || state->unsharded < 0 || is_used_soon(b, unit))
		return;
	op_begin(b, OP_RESHARD, STREAM_COMPUTE, unit);
	op_wait(b, state->ready);
	op_use(b, state->unsharded);
	op_give(b, state->unsharded);
	op_end(b);
	b->zero3.live -= unit_of(b, unit)->gathered;
	state->unsharded = -1;
	state->ready = no_ref();
}

void zero3_begin(struct builder *b)
{
	b->zero3.position = b->zero3.queue = 0;
}

/* --- gradients -----------------------------------------------------------------------------------
 */

/* Two reductions may be under way before the host waits. */
static void limit_reductions(struct builder *b, struct ref reduced)
{
	struct zero3 *z = &b->zero3;
	if (z->n_reductions > REDUCTIONS_AHEAD) {
		list_add(&b->pending_host_waits, z->reductions[0].op);
		z->n_reductions--;
		for (int i = 0; i < z->n_reductions; i++)
			z->reductions[i] = z->reductions[i + 1];
	}
	z->reductions[z->n_reductions++] = reduced;
}

static int copy_bucket(struct builder *b, int64_t elements)
{
	int64_t reduce = dtype_bytes(b->plan->reduce_dtype);
	int input = buffer_new(b, BUFFER_REDUCE_INPUT, STREAM_REDUCE, -1, elements * reduce,
		b->plan->reduce_dtype);
	op_begin(b, OP_CAST_GRADIENTS, STREAM_REDUCE, -1);
	b->op.dtype = b->plan->reduce_dtype;
	b->op.bytes = elements * (compute_bytes(b) + 3 * reduce); /* and the division */
	op_use(b, b->collector);
	op_take(b, input);
	op_use(b, input);
	op_end(b);
	return input;
}

static void scatter_bucket(struct builder *b, int input)
{
	struct zero3 *z = &b->zero3;
	int64_t reduce = dtype_bytes(b->plan->reduce_dtype);
	op_begin(b, OP_REDUCE_SCATTER, STREAM_REDUCE, -1);
	b->op.dtype = b->plan->reduce_dtype;
	b->op.bytes = b->buffers[input].bytes;
	b->op.group = b->group_reduce;
	op_use(b, input);
	for (int i = 0; i < z->bucket.n; i++) {
		int unit = z->bucket.items[i];
		int output = buffer_new(b, BUFFER_REDUCE_OUTPUT, STREAM_REDUCE, unit,
			unit_of(b, unit)->chunk * reduce, b->plan->reduce_dtype);
		op_take(b, output);
		list_add(&b->uses, output);
		b->units[unit].reduce_input = output;
	}
	op_give(b, input);
	limit_reductions(b, op_end(b));
}

static void add_partitions(struct builder *b)
{
	struct zero3 *z = &b->zero3;
	op_begin(b, OP_ACCUMULATE_GRADIENTS, STREAM_REDUCE, -1);
	b->op.dtype = b->plan->param_dtype;
	for (int i = 0; i < z->bucket.n; i++) {
		struct unit_state *state = &b->units[z->bucket.items[i]];
		int64_t partition = b->buffers[state->kept_gradient_shard].bytes;
		b->op.bytes += b->buffers[state->reduce_input].bytes +
			       (b->micro_batch > 0 ? 2 : 1) * partition;
		list_add(&b->uses, state->reduce_input);
		list_add(&b->uses, state->kept_gradient_shard);
		op_give(b, state->reduce_input);
		state->reduce_input = -1;
	}
	op_end(b);
}

static void flush(struct builder *b)
{
	int64_t elements = 0;
	for (int i = 0; i < b->zero3.bucket.n; i++)
		elements += unit_of(b, b->zero3.bucket.items[i])->gathered;
	if (elements == 0)
		return;
	scatter_bucket(b, copy_bucket(b, elements));
	add_partitions(b);
	b->zero3.bucket.n = 0;
	b->zero3.bucket_elements = 0;
}

/* The gradients of a leaf go into the buffer; what is in it leaves first when they do not fit. */
void zero3_reduce(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	struct zero3 *z = &b->zero3;
	int64_t elements = unit_of(b, unit)->gathered;
	if (z->bucket_elements + elements > rules_of(b)->bucket_elements)
		flush(b);
	op_begin(b, OP_CAST_GRADIENTS, STREAM_REDUCE, -1);
	op_wait_stream(b, STREAM_COMPUTE);
	b->op.bytes = 2 * elements * compute_bytes(b);
	for (int i = 0; i < state->n_range_gradients; i++) {
		op_use(b, state->range_gradients[i]);
		op_give(b, state->range_gradients[i]);
	}
	state->n_range_gradients = 0;
	op_use(b, b->collector);
	op_end(b);
	list_add(&z->bucket, unit);
	z->bucket_elements += elements;
}

/* The rest; the host waits for it. */
void zero3_end_backward(struct builder *b)
{
	flush(b);
	list_add(&b->pending_host_waits, b->last_on_stream[STREAM_REDUCE].op);
	op_begin(b, OP_END_BACKWARD, STREAM_COMPUTE, -1);
	op_wait_stream(b, STREAM_REDUCE);
	op_end(b);
	b->zero3.n_reductions = 0;
}

/* --- the step ------------------------------------------------------------------------------------
 */

/* Updated shards in the compute dtype, and the small parameters on every rank again. */
void zero3_finish_step(struct builder *b)
{
	struct list kept = {0};
	int64_t chunks = 0;
	op_begin(b, OP_CAST_PARAMETERS, STREAM_COMPUTE, -1);
	for (int u = 0; u < b->n_units; u++) {
		if (unit_of(b, u)->parameters == 0)
			continue;
		list_add(&b->uses, b->units[u].parameter_shard);
		list_add(&b->uses, b->units[u].low_precision);
		chunks += unit_of(b, u)->chunk;
		if (b->units[u].kept >= 0)
			list_add(&kept, u);
	}
	b->op.bytes = chunks * (dtype_bytes(b->plan->master_dtype) + compute_bytes(b));
	b->optimizer = op_end(b);
	if (kept.n > 0 && b->group_gather >= 0) {
		int flat = gather_flat(b, kept.items, kept.n, -1);
		for (int i = 0; i < kept.n; i++)
			copy_out(b, kept.items[i], flat, i == kept.n - 1);
	}
	free(kept.items);
}
