/* Gradients from the backward of a range to the sharded gradient that the optimizer reads. */
#include "schedule/passes/passes.h"

static const struct unit *unit_of(const struct builder *b, int unit)
{
	return &b->schedule->units[unit];
}

static bool per_range(const struct builder *b)
{
	return b->runtime->flattens_gradients || b->runtime->copies_out || is_zero3(b);
}

static int64_t compute_bytes(const struct builder *b)
{
	return dtype_bytes(b->plan->param_dtype);
}

static int64_t reduce_bytes(const struct builder *b)
{
	return dtype_bytes(plan_gradient_dtype(b->plan));
}

static int64_t master_bytes(const struct builder *b)
{
	return dtype_bytes(plan_gradient_shard_dtype(b->plan));
}

static bool direct_output(const struct builder *b, int unit)
{
	return plan_gradient_dtype(b->plan) == plan_gradient_shard_dtype(b->plan) &&
	       b->units[unit].gradient_shard < 0;
}

/* --- backward writes -----------------------------------------------------------------------------
 */

/* PyTorch: autograd makes a gradient per parameter, in the compute dtype. */
static void take_range_gradient(struct builder *b, int unit, const struct event *range)
{
	struct unit_state *state = &b->units[unit];
	int64_t elements = gradient_elements(b, range, b->plan->param_dtype);
	if (elements == 0)
		return;
	int buffer = buffer_new(b, BUFFER_GRADIENT, STREAM_COMPUTE, unit,
		elements * compute_bytes(b), b->plan->param_dtype);
	b->buffers[buffer].layer = range->layer;
	b->buffers[buffer].first_module = range->first_module;
	b->buffers[buffer].end_module = range->end_module;
	op_take(b, buffer);
	op_use(b, buffer);
	state->range_gradients = array_grow(state->range_gradients, &state->range_capacity,
		state->n_range_gradients + 1, sizeof(int));
	state->range_gradients[state->n_range_gradients++] = buffer;
}

/* Ours: one gradient for the whole unit, added to in place. Under NO_SHARD the first one is the
 * gradient shard itself, unless it is reduced in another dtype than the optimizer reads. */
static void take_unit_gradient(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	bool is_shard = !b->shards && direct_output(b, unit);
	if (state->gradient >= 0) {
		op_use(b, state->gradient);
		return;
	}
	state->gradient = buffer_new(b, is_shard ? BUFFER_GRADIENT_SHARD : BUFFER_GRADIENT,
		STREAM_COMPUTE, unit, unit_of(b, unit)->gathered * reduce_bytes(b),
		plan_gradient_dtype(b->plan));
	if (is_shard)
		state->gradient_shard = state->gradient;
	op_take(b, state->gradient);
	op_use(b, state->gradient);
}

void gradient_take(struct builder *b, int unit, const struct event *range)
{
	if (unit_of(b, unit)->parameters == 0)
		return;
	if (per_range(b))
		take_range_gradient(b, unit, range);
	else
		take_unit_gradient(b, unit);
}

static void use_range_gradients(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	for (int i = 0; i < state->n_range_gradients; i++) {
		op_use(b, state->range_gradients[i]);
		op_give(b, state->range_gradients[i]);
	}
	state->n_range_gradients = 0;
}

/* FSDP1: the split node of autograd concatenates: twice the unit's gradient for a moment. Under
 * no_sync it is added to the flat gradient that is there. */
void gradient_flatten(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	int64_t bytes = unit_of(b, unit)->elements * compute_bytes(b);
	if (!b->runtime->flattens_gradients)
		return;
	op_begin(b, OP_FLATTEN_GRADIENTS, STREAM_COMPUTE, unit);
	b->op.bytes = 2 * bytes;
	use_range_gradients(b, unit);
	int flat = buffer_new(
		b, BUFFER_FLAT_GRADIENT, STREAM_COMPUTE, unit, bytes, b->plan->param_dtype);
	op_take(b, flat);
	op_use(b, flat);
	if (state->gradient >= 0) {
		op_use(b, state->gradient);
		op_give(b, flat);
		b->op.bytes += 3 * bytes;
	} else {
		state->gradient = flat;
	}
	op_end(b);
}

/* --- reductions ----------------------------------------------------------------------------------
 */

/* FSDP2 without synchronisation: unsharded gradients are kept in the reduce dtype. */
static void keep_unsharded(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	int64_t elements = unit_of(b, unit)->parameters;
	op_begin(b, OP_ACCUMULATE_GRADIENTS, STREAM_COMPUTE, unit);
	b->op.bytes = elements * (compute_bytes(b) + reduce_bytes(b));
	use_range_gradients(b, unit);
	if (state->gradient < 0) {
		state->gradient = buffer_new(b, BUFFER_GRADIENT, STREAM_COMPUTE, unit,
			elements * reduce_bytes(b), plan_gradient_dtype(b->plan));
		op_take(b, state->gradient);
	} else {
		b->op.bytes += elements * reduce_bytes(b);
	}
	op_use(b, state->gradient);
	op_end(b);
}

/* A single rank under NO_SHARD has nobody to reduce with. */
static bool reduces(const struct builder *b)
{
	return b->shards || b->group_replicate >= 0;
}

/* FSDP1, on the reduce stream: cast to the reduce dtype, and the first part of the division. */
static int cast_flat(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	int64_t n = unit_of(b, unit)->elements;
	bool casts = plan_gradient_dtype(b->plan) != b->plan->param_dtype;
	int input = state->gradient;
	op_begin(b, OP_CAST_GRADIENTS, STREAM_REDUCE, unit);
	op_wait_stream(b, STREAM_COMPUTE);
	b->op.dtype = plan_gradient_dtype(b->plan);
	b->op.bytes = 2 * n * reduce_bytes(b); /* the division */
	op_use(b, state->gradient);
	if (casts) {
		bool is_shard = !b->shards && direct_output(b, unit);
		b->op.bytes += n * (compute_bytes(b) + reduce_bytes(b));
		input = buffer_new(b, is_shard ? BUFFER_GRADIENT_SHARD : BUFFER_REDUCE_INPUT,
			STREAM_REDUCE, unit, n * reduce_bytes(b), plan_gradient_dtype(b->plan));
		if (is_shard)
			state->gradient_shard = input;
		op_take(b, input);
		op_use(b, input);
		if (!reduces(b)) {
			op_give(b, state->gradient);
			state->gradient = -1;
		}
	}
	op_end(b);
	return input;
}

/* FSDP2, on the compute stream: gradients are copied, rank by rank, into the reduction's input. */
static int copy_in(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	int64_t gathered = unit_of(b, unit)->gathered;
	op_begin(b, OP_CAST_GRADIENTS, STREAM_COMPUTE, unit);
	b->op.dtype = plan_gradient_dtype(b->plan);
	b->op.bytes = gathered * (compute_bytes(b) + reduce_bytes(b));
	if (state->gradient >= 0) /* first added to what earlier micro-batches left, in its dtype */
		b->op.bytes += 3 * gathered * reduce_bytes(b);
	use_range_gradients(b, unit);
	int input = buffer_new(b, BUFFER_REDUCE_INPUT, STREAM_COMPUTE, unit,
		gathered * reduce_bytes(b), plan_gradient_dtype(b->plan));
	op_take(b, input);
	op_use(b, state->gradient);
	op_give(b, state->gradient);
	op_use(b, input);
	op_end(b);
	state->gradient = -1;
	return input;
}

/* Who lives on after the reduce-scatter: FSDP1 and we give the input when it is through, FSDP2 when
 * compute has waited for it. */
static int reduce_scatter(struct builder *b, int unit, int input)
{
	struct unit_state *state = &b->units[unit];
	const struct unit *u = unit_of(b, unit);
	bool direct = direct_output(b, unit);
	op_begin(b, OP_REDUCE_SCATTER, STREAM_REDUCE, unit);
	op_wait_stream(b, STREAM_COMPUTE);
	b->op.dtype = plan_gradient_dtype(b->plan);
	b->op.bytes = u->gathered * reduce_bytes(b);
	b->op.group = b->group_reduce;
	int output = buffer_new(b, direct ? BUFFER_GRADIENT_SHARD : BUFFER_REDUCE_OUTPUT,
		STREAM_REDUCE, unit, u->chunk * reduce_bytes(b), plan_gradient_dtype(b->plan));
	if (direct)
		state->gradient_shard = output;
	op_take(b, output);
	op_use(b, input);
	op_use(b, output);
	if (!b->runtime->copies_out) {
		op_give(b, input);
		if (state->gradient != input)
			op_give(b, state->gradient);
		state->gradient = -1;
	}
	state->reduced = op_end(b);
	if (b->runtime->copies_out) {
		b->reduce_in_flight = state->reduced;
		b->reduce_input_in_flight = input;
	}
	return output;
}

static void all_reduce(
	struct builder *b, int unit, int buffer, enum stream stream, int64_t elements)
{
	struct unit_state *state = &b->units[unit];
	op_begin(b, OP_ALL_REDUCE, stream, unit);
	op_wait_stream(b, STREAM_COMPUTE);
	op_wait_stream(b, STREAM_REDUCE);
	b->op.dtype = plan_gradient_dtype(b->plan);
	b->op.bytes = elements * reduce_bytes(b);
	b->op.group = b->group_replicate;
	op_use(b, buffer);
	/* NO_SHARD, FSDP1: the flat gradient in the compute dtype has been cast */
	if (!b->shards && state->gradient >= 0 && state->gradient != buffer) {
		op_give(b, state->gradient);
		state->gradient = -1;
	}
	state->reduced = op_end(b);
}

/* The rest of the division, the cast to the master dtype, the sum over micro-batches. */
static void accumulate(struct builder *b, int unit, int reduced, enum stream stream)
{
	struct unit_state *state = &b->units[unit];
	bool in_place = reduced == state->gradient_shard;
	int64_t chunk = unit_of(b, unit)->chunk;
	if (in_place && !b->runtime->divides_separately)
		return;
	op_begin(b, OP_ACCUMULATE_GRADIENTS, stream, unit);
	op_wait(b, state->reduced);
	b->op.dtype = plan_gradient_shard_dtype(b->plan);
	op_use(b, reduced);
	if (in_place) {
		b->op.bytes = 2 * chunk * reduce_bytes(b);
	} else {
		b->op.bytes = chunk * (reduce_bytes(b) + master_bytes(b));
		if (state->gradient_shard < 0) {
			state->gradient_shard = buffer_new(b, BUFFER_GRADIENT_SHARD, stream, unit,
				chunk * master_bytes(b), plan_gradient_shard_dtype(b->plan));
			op_take(b, state->gradient_shard);
		} else {
			b->op.bytes += chunk * master_bytes(b);
		}
		op_use(b, state->gradient_shard);
		op_give(b, reduced);
		if (state->gradient == reduced)
			state->gradient = -1;
	}
	state->reduced = op_end(b);
}

void gradient_reduce(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	bool replicates = b->group_replicate >= 0;
	enum stream stream = STREAM_REDUCE;
	int buffer;
	if (is_zero3(b)) {
		zero3_reduce(b, unit);
		return;
	}
	if (!b->synchronise) {
		if (b->runtime->copies_out)
			keep_unsharded(b, unit);
		return;
	}
	if (b->runtime->copies_out)
		buffer = copy_in(b, unit);
	else if (b->runtime->flattens_gradients)
		buffer = cast_flat(b, unit);
	else
		buffer = state->gradient;
	if (b->shards)
		buffer = reduce_scatter(b, unit, buffer);
	if (replicates) {
		stream = b->shards ? STREAM_REPLICATE : STREAM_REDUCE;
		all_reduce(b, unit, buffer, stream, unit_of(b, unit)->chunk);
	}
	if (!reduces(b))
		state->reduced = b->last_on_stream[STREAM_COMPUTE];
	accumulate(b, unit, buffer, stream);
	if (!b->shards && state->gradient == state->gradient_shard)
		state->gradient = -1;
	if (offloads(b, unit))
		offload_gradient(b, unit, stream);
}
