/* Parts of the memory bound: which buffers are there, and what an allocator holds for them. The
 * proof that uses them is in bound.c. */
#include "planner/bounds/bounds.h"

/* --- roles ------------------------------------------------------------------------------------ */

bool bound_is_load(const struct buffer *buffer)
{
	static const bool load[BUFFER_ROLE_COUNT] = {[BUFFER_RESIDUAL] = true,
		[BUFFER_ACTIVATIONS] = true,
		[BUFFER_LOGITS] = true,
		[BUFFER_LOSS_WORK] = true,
		[BUFFER_TOKENS] = true};
	return load[buffer->role];
}

/* What is there at the loss whatever is prefetched: gather buffers come and go. */
bool bound_is_kept(const struct buffer *buffer)
{
	static const bool kept[BUFFER_ROLE_COUNT] = {[BUFFER_UNSHARDED] = true,
		[BUFFER_RESHARDED] = true,
		[BUFFER_COMPUTE_COPY] = true,
		[BUFFER_GRADIENT] = true,
		[BUFFER_FLAT_GRADIENT] = true,
		[BUFFER_GRADIENT_SHARD] = true};
	return buffer->resident || kept[buffer->role];
}

/* --- touches ---------------------------------------------------------------------------------- */

static void touch(
	struct touches *touches, const struct program *program, struct slice slice, int op)
{
	const int *buffers = slice_of(program, slice);
	for (int i = 0; i < slice.count; i++) {
		struct touches *t = &touches[buffers[i]];
		t->first = t->first < op ? t->first : op;
		t->last = t->last > op ? t->last : op;
	}
}

struct touches *bound_touches(const struct program *program, struct arena *arena)
{
	struct touches *touches = ARENA_ARRAY(arena, struct touches, program->n_buffers);
	for (int i = 0; i < program->n_buffers; i++) {
		bool resident = program->buffers[i].resident;
		touches[i] = (struct touches){
			resident ? 0 : program->n_ops, resident ? program->n_ops - 1 : -1};
	}
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		if (op->stream != STREAM_COMPUTE)
			continue;
		touch(touches, program, op->takes, i);
		touch(touches, program, op->uses, i);
		touch(touches, program, op->gives, i);
	}
	return touches;
}

int64_t *bound_surely_live(const struct program *program,
	bool (*filter)(const struct buffer *buffer), struct arena *arena)
{
	struct touches *touches = bound_touches(program, arena);
	int64_t *live = ARENA_ARRAY(arena, int64_t, program->n_ops + 1);
	for (int i = 0; i < program->n_buffers; i++) {
		const struct buffer *buffer = &program->buffers[i];
		if (touches[i].first > touches[i].last || buffer_in_host(buffer) ||
			(filter != NULL && !filter(buffer)))
			continue;
		live[touches[i].first] += buffer->bytes;
		live[touches[i].last + 1] -= buffer->bytes;
	}
	for (int i = 0; i < program->n_ops; i++)
		live[i + 1] += live[i];
	return live;
}

/* --- pools ------------------------------------------------------------------------------------ */

static void change(const struct program *program, struct slice slice, int sign,
	struct bound_pools *pools, int64_t live[STREAM_COUNT])
{
	const int *buffers = slice_of(program, slice);
	for (int i = 0; i < slice.count; i++) {
		const struct buffer *buffer = &program->buffers[buffers[i]];
		live[buffer->pool] += sign * buffer->bytes;
		pools->peaks[buffer->pool] =
			max_i64(pools->peaks[buffer->pool], live[buffer->pool]);
	}
}

struct bound_pools bound_pools(const struct program *program)
{
	struct bound_pools pools = {{0}, {0}};
	int64_t live[STREAM_COUNT] = {0};
	for (int i = 0; i < program->n_buffers; i++) {
		const struct buffer *buffer = &program->buffers[i];
		pools.largest[buffer->pool] = max_i64(pools.largest[buffer->pool], buffer->bytes);
		if (buffer->resident)
			live[buffer->pool] += buffer->bytes;
	}
	for (int s = 0; s < STREAM_COUNT; s++)
		pools.peaks[s] = live[s];
	for (int i = 0; i < program->n_ops; i++) {
		change(program, program->ops[i].takes, 1, &pools, live);
		change(program, program->ops[i].gives, -1, &pools, live);
	}
	return pools;
}

int64_t bound_pools_total(const struct bound_pools *pools)
{
	int64_t total = 0;
	for (int s = 0; s < STREAM_COUNT; s++)
		total += s == STREAM_HOST ? 0 : pools->peaks[s];
	return total;
}

bool bound_has_pools(const struct topology *topology, const struct plan *plan)
{
	return topology->device.kind == DEVICE_GPU && runtime_of(plan->runtime)->caching_allocator;
}
