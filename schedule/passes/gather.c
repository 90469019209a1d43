/* Unsharding and resharding: FSDP1's hooks, FSDP2's, ours (docs/runtimes.md). */
#include "schedule/passes/passes.h"

/* --- the rate limiter (docs/runtimes.md)
 * ------------------------------------------------------------
 */

/* At most one free is waited for, and only when two or more are pending. It happens even when
 * nothing is to be gathered. */
static void limiter_wait(struct builder *b)
{
	if (!b->plan->limit_all_gathers || b->n_limiter < 2)
		return;
	struct ref oldest = b->limiter[0];
	for (int i = 1; i < b->n_limiter; i++)
		b->limiter[i - 1] = b->limiter[i];
	b->n_limiter--;
	if (oldest.step == b->step)
		list_add(&b->pending_host_waits, oldest.op);
	else if (oldest.step == b->step - 1)
		list_add(&b->pending_host_waits, oldest.op - (1 << 30));
}

static void limiter_push(struct builder *b, struct ref freed)
{
	if (!b->plan->limit_all_gathers)
		return;
	b->limiter =
		array_grow(b->limiter, &b->limiter_capacity, b->n_limiter + 1, sizeof(struct ref));
	b->limiter[b->n_limiter++] = freed;
}

/* --- unshard -------------------------------------------------------------------------------------
 */

static bool has_parameters(const struct builder *b, int unit)
{
	return b->schedule->units[unit].parameters > 0;
}

/* shard in the master dtype -> shard in the compute dtype: the gather's input. */
static struct ref cast_shard(struct builder *b, int unit, int cause, struct ref staged, bool drop)
{
	const struct unit *u = &b->schedule->units[unit];
	struct unit_state *state = &b->units[unit];
	int64_t compute = dtype_bytes(b->plan->param_dtype);
	int64_t master = dtype_bytes(b->plan->master_dtype);
	op_begin(b, OP_CAST_PARAMETERS, STREAM_GATHER_COPY_IN, unit);
	op_wait_gathering(b);
	op_wait(b, staged);
	b->op.cause = cause;
	if (state->kept >= 0)
		op_wait_stream(b, STREAM_COMPUTE);
	b->op.bytes = (master + compute) * u->chunk;
	op_use(b, state->staged >= 0 ? state->staged : state->parameter_shard);
	op_give(b, state->staged);
	state->staged = -1;
	state->low_precision = buffer_new(b, BUFFER_LOW_PRECISION_SHARD, b->op.stream, unit,
		compute * u->chunk, b->plan->param_dtype);
	op_take(b, state->low_precision);
	op_use(b, state->low_precision);
	if (drop) {
		op_give(b, state->low_precision);
		state->low_precision = -1;
	}
	return op_end(b);
}

/* What the gather reads: the shard, a copy of it from the host, a low-precision copy, or one by way
 * of the other. Optimizer offload keeps the shard in the compute dtype already. */
static struct ref prepare_shard(struct builder *b, int unit, int cause, bool drop)
{
	struct ref ready = no_ref();
	bool staged = offloads_parameters(b, unit);
	bool casts = b->runtime->casts_shard && b->casts && (staged || !offloads(b, unit));
	if (staged)
		ready = offload_stage(b, unit, cause, drop && !casts);
	return casts ? cast_shard(b, unit, cause, ready, drop) : ready;
}

/* The gather's input; what was made for it ends with it. FSDP2 frees the part when it has been
 * copied out. */
static void use_shard(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	int *made = state->low_precision >= 0 ? &state->low_precision : &state->staged;
	if (state->resharded >= 0) {
		op_wait(b, state->ready); /* the part was cloned there */
		op_use(b, state->resharded);
		if (b->runtime->copies_out)
			return;
		made = &state->resharded;
	} else {
		op_use(b, *made >= 0 ? *made : state->parameter_shard);
	}
	op_give(b, *made);
	*made = -1;
}

static void gather(struct builder *b, int unit, int cause, struct ref cast)
{
	const struct unit *u = &b->schedule->units[unit];
	struct unit_state *state = &b->units[unit];
	int64_t bytes = dtype_bytes(b->plan->param_dtype) * u->gathered;
	bool copies = b->runtime->copies_out;
	int output = state->kept;
	if (output < 0)
		output = buffer_new(b, copies ? BUFFER_GATHERED : BUFFER_UNSHARDED, STREAM_GATHER,
			unit, bytes, b->plan->param_dtype);
	op_begin(b, OP_ALL_GATHER, STREAM_GATHER, unit);
	if (cast.op >= 0) {
		op_wait(b, cast);
		op_wait(b, b->gathers_after);
	} else {
		op_wait_gathering(b);
	}
	op_wait(b, state->returned);
	b->op.cause = cause;
	b->op.bytes = bytes;
	b->op.group = state->resharded >= 0 ? state->group_reshard : b->group_gather;
	if (state->kept < 0)
		op_take(b, output);
	else
		op_wait_stream(b, STREAM_COMPUTE);
	use_shard(b, unit);
	op_use(b, output);
	state->ready = op_end(b);
	*(copies ? &state->gathered : &state->unsharded) = output;
}

/* NO_SHARD under mixed precision: a whole low-precision copy. */
static void copy_whole(struct builder *b, int unit, int cause)
{
	const struct unit *u = &b->schedule->units[unit];
	struct unit_state *state = &b->units[unit];
	int64_t compute = dtype_bytes(b->plan->param_dtype);
	op_begin(b, OP_CAST_PARAMETERS, STREAM_GATHER_COPY_IN, unit);
	op_wait_gathering(b);
	b->op.cause = cause;
	b->op.bytes = (dtype_bytes(b->plan->master_dtype) + compute) * u->gathered;
	state->unsharded = buffer_new(b, BUFFER_COMPUTE_COPY, b->op.stream, unit,
		compute * u->gathered, b->plan->param_dtype);
	op_take(b, state->unsharded);
	op_use(b, state->parameter_shard);
	op_use(b, state->unsharded);
	state->ready = op_end(b);
}

static void unshard(struct builder *b, int unit, int cause)
{
	struct unit_state *state = &b->units[unit];
	bool present = state->unsharded >= 0 || state->gathered >= 0;
	struct ref cast = no_ref();
	if (!has_parameters(b, unit))
		return;
	if (!b->shards) {
		if (b->casts && !present && !offloads(b, unit))
			copy_whole(b, unit, cause);
		return;
	}
	if (!present && state->resharded < 0)
		cast = prepare_shard(b, unit, cause, false);
	else if (b->runtime->stages_again && offloads_parameters(b, unit))
		prepare_shard(b, unit, cause, true);
	limiter_wait(b);
	if (!present)
		gather(b, unit, cause, cast);
}

/* Ours, ZeRO-1 and -2: what the optimizer has updated is gathered into what all ranks keep. */
void gather_updated(struct builder *b, int unit)
{
	if (b->units[unit].kept >= 0 && !is_zero3(b))
		gather(b, unit, -1, prepare_shard(b, unit, -1, false));
}

/* FSDP2: parameters are copied out of the gathered buffer on the compute stream. In implicit
 * forward mode the buffer of the previous unit is released only here (docs/runtimes.md). */
static void copy_out(struct builder *b, int unit)
{
	const struct unit *u = &b->schedule->units[unit];
	struct unit_state *state = &b->units[unit];
	if (state->gathered < 0)
		return;
	int64_t bytes = dtype_bytes(b->plan->param_dtype) * u->gathered;
	bool implicit = !b->in_backward && !b->plan->forward_prefetch;
	op_begin(b, OP_COPY_OUT, STREAM_COMPUTE, unit);
	op_wait(b, state->ready);
	b->op.bytes = 2 * bytes;
	state->unsharded =
		buffer_new(b, BUFFER_UNSHARDED, STREAM_COMPUTE, unit, bytes, b->plan->param_dtype);
	op_take(b, state->unsharded);
	op_use(b, state->gathered);
	op_use(b, state->unsharded);
	op_give(b, b->implicit_gathered);
	b->implicit_gathered = implicit ? state->gathered : -1;
	if (!implicit)
		op_give(b, state->gathered);
	op_give(b, state->resharded);
	state->gathered = state->resharded = -1;
	state->ready = op_end(b);
	b->gathers_after = implicit ? b->copied_out : state->ready;
	b->copied_out = state->ready;
}

/* --- reshard -------------------------------------------------------------------------------------
 */

/* FSDP2 with a group size: each rank keeps 1/k of the unit (docs/runtimes.md). */
static void keep_part(struct builder *b, int unit)
{
	int64_t bytes = dtype_bytes(b->plan->param_dtype) * b->schedule->units[unit].gathered;
	struct unit_state *state = &b->units[unit];
	state->resharded = buffer_new(b, BUFFER_RESHARDED, STREAM_COMPUTE, unit,
		bytes / b->schedule->units[unit].reshard_group, b->plan->param_dtype);
	op_take(b, state->resharded);
	op_use(b, state->unsharded);
	op_use(b, state->resharded);
}

static void reshard(struct builder *b, int unit, bool keeps_part)
{
	struct unit_state *state = &b->units[unit];
	if (state->unsharded < 0 || state->kept >= 0)
		return;
	op_begin(b, OP_RESHARD, STREAM_COMPUTE, unit);
	op_wait(b, state->ready);
	if (keeps_part)
		keep_part(b, unit);
	op_use(b, state->unsharded);
	op_give(b, state->unsharded);
	if (b->in_backward && b->reduce_input_in_flight >= 0) {
		/* FSDP2: compute waits for the reduction before, whose input is released here */
		op_wait(b, b->reduce_in_flight);
		op_give(b, b->reduce_input_in_flight);
		b->reduce_input_in_flight = -1;
	}
	struct ref freed = op_end(b);
	state->unsharded = -1;
	state->ready = keeps_part ? freed : no_ref();
	if (b->shards)
		limiter_push(b, freed);
}

/* --- hooks ---------------------------------------------------------------------------------------
 */

static void prefetch(struct builder *b, int unit, int cause)
{
	const struct unit_state *state = &b->units[unit];
	if (!has_parameters(b, unit) || state->prefetched ||
		(b->in_backward && state->backward_began))
		return;
	unshard(b, unit, cause);
	b->units[unit].prefetched = true;
}

void gather_for_recompute(struct builder *b, int unit)
{
	if (is_zero3(b)) {
		zero3_fetch(b, unit);
		return;
	}
	struct unit_state *state = &b->units[unit];
	if (!has_parameters(b, unit) || state->unsharded >= 0)
		return;
	if (!state->prefetched)
		unshard(b, unit, -1);
	state->prefetched = true; /* its own hook finds it there */
	copy_out(b, unit);
}

void gather_post_recompute(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	if (!has_parameters(b, unit) || state->backward_began)
		return;
	gather_post_forward(b, unit);
	state->prefetched = false;
}

static int neighbour(const int *order, int n, int index, int step)
{
	int i = index + step;
	return i >= 0 && i < n ? order[i] : -1;
}

void gather_pre_forward(struct builder *b, int unit)
{
	if (is_zero3(b)) {
		zero3_fetch(b, unit);
		return;
	}
	struct unit_state *state = &b->units[unit];
	if (!has_parameters(b, unit))
		return;
	if (!state->prefetched)
		unshard(b, unit, -1);
	state->prefetched = false;
	copy_out(b, unit);
	int next = neighbour(b->pre_order, b->n_order, state->pre_forward_index, 1);
	if (b->plan->forward_prefetch && next >= 0)
		prefetch(b, next, unit);
}

void gather_post_forward(struct builder *b, int unit)
{
	if (is_zero3(b)) {
		zero3_release(b, unit);
		return;
	}
	bool free_copy = !b->shards && b->casts;
	int64_t group = b->schedule->units[unit].reshard_group;
	if (free_copy || (b->shards && group != 0))
		reshard(b, unit, group > 0);
}

void gather_pre_backward(struct builder *b, int unit)
{
	if (is_zero3(b)) {
		zero3_fetch(b, unit);
		return;
	}
	struct unit_state *state = &b->units[unit];
	if (!has_parameters(b, unit))
		return;
	if (!state->prefetched)
		unshard(b, unit, -1);
	state->prefetched = false;
	state->backward_began = true;
	copy_out(b, unit);
	int next = neighbour(b->post_order, b->n_order, state->post_forward_index, -1);
	if (b->plan->prefetch == PREFETCH_PRE && next >= 0)
		prefetch(b, next, unit);
}

void gather_post_backward(struct builder *b, int unit)
{
	if (is_zero3(b)) {
		zero3_release(b, unit);
		return;
	}
	if (!has_parameters(b, unit))
		return;
	/* FSDP1 under no_sync keeps what it would not have resharded after forward; FSDP2 reshards
	 * after every backward (docs/runtimes.md). */
	bool reshards = unit == 0 ? strategy_reshards(b->plan->strategy)
				  : b->schedule->units[unit].reshard_group != 0;
	if (!b->shards || b->synchronise || reshards || b->runtime->copies_out)
		reshard(b, unit, false);
	int next = neighbour(b->post_order, b->n_order, b->units[unit].post_forward_index, -1);
	if (b->plan->prefetch == PREFETCH_POST && next >= 0)
		prefetch(b, next, unit);
}
