/* Parts of the memory bound: which buffers are there. The proof that uses them is in bounds.c. */
#include "schedule/memory/memory.h"
#include "planner/bounds/parts.h"

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

/* --- what stands ------------------------------------------------------------------------------ */

/* Operations of the compute stream that touch a buffer (first > last: none), and how many alike
 * ones of it there are when the repeated blocks between are done: as many as were taken, and as
 * many as are given back at once or block by block. Where the block behind gives it back, that is
 * one. */
struct stand {
	int first, last, times;
};

/* How often blocks repeat an operation. */
static int block_times(const struct program *program, int index)
{
	int times = 1;
	for (int l = 0; l < program->n_loops; l++) {
		const struct loop *loop = &program->loops[l];
		if (loop->layers != 0 && index >= loop->first && index < loop->first + loop->n)
			times *= loop->times;
	}
	return times;
}

static void touch(const struct program *program, struct slice slice, int op, struct stand *stands)
{
	const int *buffers = slice_of(program, slice);
	for (int i = 0; i < slice.count; i++) {
		struct stand *stand = &stands[buffers[i]];
		stand->first = stand->first < op ? stand->first : op;
		stand->last = stand->last > op ? stand->last : op;
	}
}

static void count(const struct program *program, int index, struct slice slice, int repeated,
	struct stand *stands)
{
	const int *buffers = slice_of(program, slice);
	for (int i = 0; i < slice.count; i++) {
		struct stand *stand = &stands[buffers[i]];
		int times = repeated > 1
				    ? repeated
				    : buffers_at_once(program, &program->ops[index], buffers[i]);
		stand->times = stand->times < times ? stand->times : times;
	}
}

static struct stand *find_stands(
	const struct program *program, const int *repeated, struct arena *arena)
{
	struct stand *stands = ARENA_ARRAY(arena, struct stand, program->n_buffers);
	for (int i = 0; i < program->n_buffers; i++) {
		bool resident = program->buffers[i].resident;
		stands[i] = (struct stand){resident ? 0 : program->n_ops,
			resident ? program->n_ops - 1 : -1, buffer_times(&program->buffers[i])};
	}
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		count(program, i, op->takes, repeated[i], stands);
		count(program, i, op->gives, repeated[i], stands);
		if (op->stream != STREAM_COMPUTE)
			continue;
		touch(program, op->takes, i, stands);
		touch(program, op->uses, i, stands);
		touch(program, op->gives, i, stands);
	}
	return stands;
}

struct stands bound_stands(const struct program *program, struct arena *arena)
{
	int *repeated = ARENA_ARRAY(arena, int, program->n_ops);
	for (int i = 0; i < program->n_ops; i++)
		repeated[i] = block_times(program, i);
	return (struct stands){program, repeated, find_stands(program, repeated, arena)};
}

int64_t bound_standing(const struct stands *found, bool (*filter)(const struct buffer *buffer),
	enum op_kind kind, struct arena *arena)
{
	const struct program *program = found->program;
	const struct stand *stands = found->of;
	const int *repeated = found->repeated;
	int64_t *live = ARENA_ARRAY(arena, int64_t, program->n_ops + 1), most = 0;
	for (int i = 0; i < program->n_buffers; i++) {
		const struct buffer *buffer = &program->buffers[i];
		int64_t bytes = stands[i].times * buffer->bytes;
		if (stands[i].first > stands[i].last || buffer_in_host(buffer) ||
			(filter != NULL && !filter(buffer)))
			continue;
		live[stands[i].first] += bytes;
		live[stands[i].last + 1] -= bytes;
	}
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		bool is_asked = kind == OP_KIND_COUNT || op->kind == kind;
		if (is_asked && repeated[i] == 1 && op->stream == STREAM_COMPUTE)
			most = max_i64(most, live[i]);
		live[i + 1] += live[i];
	}
	return most;
}

int64_t bound_fixed_bytes(const struct schedule *schedule)
{
	struct fixed_memory fixed = schedule_fixed_memory(schedule);
	return fixed.context + fixed.communicators;
}
