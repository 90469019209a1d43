/* CPU offload (docs/schedule.md): shards come in before they are gathered, reduced gradients go
 * out, and where the host has updated a shard that the device keeps, it comes back. */
#include "schedule/passes/passes.h"

static int host_resident(
	struct builder *b, enum buffer_role role, int unit, int64_t element_bytes, enum dtype dtype)
{
	int64_t bytes = b->schedule->units[unit].chunk * element_bytes;
	int buffer = buffer_resident(b, role, unit, bytes, dtype);
	b->buffers[buffer].pool = STREAM_HOST;
	return buffer;
}

/* Parameters: the master shard itself lives on the host. Optimizer: the host updates a master copy,
 * and the device keeps the shard that is gathered, in the compute dtype. */
void offload_resident(struct builder *b, int unit, int64_t state_bytes)
{
	struct unit_state *state = &b->units[unit];
	enum dtype master = b->plan->master_dtype, compute = b->plan->param_dtype;
	int64_t chunk = b->schedule->units[unit].chunk;
	if (is_zero(b)) { /* all parameters are on the device anyway */
		state->master_shard =
			host_resident(b, BUFFER_MASTER_SHARD, unit, dtype_bytes(master), master);
	} else if (offloads_parameters(b, unit)) {
		state->parameter_shard =
			host_resident(b, BUFFER_PARAMETER_SHARD, unit, dtype_bytes(master), master);
	} else {
		state->parameter_shard = buffer_resident(
			b, BUFFER_PARAMETER_SHARD, unit, chunk * dtype_bytes(compute), compute);
		state->master_shard =
			host_resident(b, BUFFER_MASTER_SHARD, unit, dtype_bytes(master), master);
		if (b->casts)
			state->host_low_precision = host_resident(
				b, BUFFER_LOW_PRECISION_SHARD, unit, dtype_bytes(compute), compute);
	}
	if (state_bytes > 0)
		state->optimizer_state =
			host_resident(b, BUFFER_OPTIMIZER_STATE, unit, state_bytes, master);
	if (b->runtime->keeps_host_gradient)
		state->kept_host_gradient =
			host_resident(b, BUFFER_GRADIENT_SHARD, unit, dtype_bytes(master), master);
}

struct ref offload_stage(struct builder *b, int unit, int cause, bool drop)
{
	struct unit_state *state = &b->units[unit];
	bool own = b->runtime->own_copy_streams;
	op_begin(b, OP_COPY_H2D, own ? STREAM_COPY_IN : STREAM_GATHER_COPY_IN, unit);
	op_wait_gathering(b);
	b->op.cause = cause;
	b->op.dtype = b->plan->master_dtype;
	b->op.bytes = b->buffers[state->parameter_shard].bytes;
	op_use(b, state->parameter_shard);
	state->staged = buffer_new(
		b, BUFFER_STAGED_SHARD, b->op.stream, unit, b->op.bytes, b->plan->master_dtype);
	op_take(b, state->staged);
	op_use(b, state->staged);
	if (drop) {
		op_give(b, state->staged);
		state->staged = -1;
	}
	return op_end(b);
}

/* Later micro-batches' gradients are added on the host. */
static void add_on_host(struct builder *b, int unit, int landed)
{
	struct unit_state *state = &b->units[unit];
	op_begin(b, OP_ACCUMULATE_GRADIENTS, STREAM_HOST, unit);
	op_wait(b, state->reduced);
	b->op.dtype = b->buffers[landed].dtype;
	b->op.bytes = 3 * b->buffers[landed].bytes;
	op_use(b, landed);
	op_use(b, state->host_gradient);
	op_give(b, landed);
	state->reduced = op_end(b);
}

/* A new buffer of the host's pool, taken. */
static int take_landing(struct builder *b, int unit, bool again)
{
	const struct unit_state *state = &b->units[unit];
	int landing = buffer_new(b, again ? BUFFER_REDUCE_OUTPUT : BUFFER_GRADIENT_SHARD,
		STREAM_HOST, unit, b->buffers[state->gradient_shard].bytes,
		b->buffers[state->gradient_shard].dtype);
	op_take(b, landing);
	return landing;
}

void offload_gradient(struct builder *b, int unit, enum stream stream)
{
	struct unit_state *state = &b->units[unit];
	bool again = state->host_gradient >= 0;
	op_begin(b, OP_COPY_D2H, b->runtime->own_copy_streams ? STREAM_COPY_OUT : stream, unit);
	op_wait(b, state->reduced);
	b->op.dtype = b->buffers[state->gradient_shard].dtype;
	b->op.bytes = b->buffers[state->gradient_shard].bytes;
	op_use(b, state->gradient_shard);
	int landing = state->kept_host_gradient;
	if (landing < 0 || again)
		landing = take_landing(b, unit, again);
	op_use(b, landing);
	op_give(b, state->gradient_shard);
	state->gradient_shard = -1;
	state->reduced = op_end(b);
	if (again)
		add_on_host(b, unit, landing);
	else
		state->host_gradient = landing;
}

void offload_return(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	bool own = b->runtime->own_copy_streams;
	if (state->master_shard < 0 || is_zero(b))
		return;
	op_begin(b, OP_COPY_H2D, own ? STREAM_COPY_IN : STREAM_GATHER_COPY_IN, unit);
	op_wait_stream(b, STREAM_HOST);
	op_wait_stream(b, STREAM_GATHER);
	op_wait_stream(b, STREAM_COMPUTE);
	b->op.bytes = b->buffers[state->parameter_shard].bytes;
	op_use(b, state->host_low_precision >= 0 ? state->host_low_precision : state->master_shard);
	op_use(b, state->parameter_shard);
	state->returned = op_end(b);
}

/* ZeRO with whole parameters: the updated master comes in on compute's stream, to be cast there. */
int offload_stage_master(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	op_begin(b, OP_COPY_H2D, STREAM_COMPUTE, unit);
	op_wait_stream(b, STREAM_HOST);
	b->op.dtype = b->plan->master_dtype;
	b->op.bytes = b->buffers[state->master_shard].bytes;
	int staged = buffer_new(
		b, BUFFER_STAGED_SHARD, STREAM_COMPUTE, unit, b->op.bytes, b->plan->master_dtype);
	op_take(b, staged);
	op_use(b, state->master_shard);
	op_use(b, staged);
	op_end(b);
	return staged;
}
