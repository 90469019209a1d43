/* What a caching allocator reserves: free lists are per stream, and the host takes blocks when it
 * issues, ahead of the device. A block counts from its issue until it is reusable: for a give on
 * the stream of the block's own pool that is the give's issue (stream-ordered reuse), on another
 * stream it is when that stream has passed (rule 5 of docs/schedule.md). FSDP2 lets its streams
 * wait instead, so that its blocks are reusable at once (docs/runtimes.md). */
#include "simulator/engine.h"

struct pools {
	const struct engine *engine;
	bool at_once; /* gives to other streams need not wait for them */
	int *held;    /* by buffer: takes minus gives */
	int64_t live[STREAM_COUNT], peak[STREAM_COUNT];
};

static void change(struct pools *pools, int index, int sign)
{
	const struct buffer *buffer = &pools->engine->program->buffers[index];
	int64_t *live = &pools->live[buffer->pool];

	*live += sign * buffer->bytes;
	pools->peak[buffer->pool] = max_i64(pools->peak[buffer->pool], *live);
	pools->held[index] += sign;
}

/* The gives of `op` that become effective when it is issued, or when it has finished. */
static void give(struct pools *pools, const struct op *op, bool issued)
{
	const struct program *program = pools->engine->program;
	const int *gives = slice_of(program, op->gives);

	for (int i = 0; i < op->gives.count; i++) {
		bool own = program->buffers[gives[i]].pool == op->stream || pools->at_once;

		if (own == issued && pools->held[gives[i]] > 0)
			change(pools, gives[i], -1);
	}
}

static void on_issue(struct pools *pools, int instance)
{
	const struct program *program = pools->engine->program;
	const struct op *op = &program->ops[instance % pools->engine->n_ops];
	const int *takes = slice_of(program, op->takes);

	for (int i = 0; i < op->takes.count; i++)
		change(pools, takes[i], 1);
	give(pools, op, true);
}

static void on_finish(struct pools *pools, int instance)
{
	give(pools, &pools->engine->program->ops[instance % pools->engine->n_ops], false);
}

static int next_finished(const struct engine *engine, int *position)
{
	while (*position < engine->n_log && engine->log[*position] >= 0)
		++*position;
	return *position < engine->n_log ? ~engine->log[*position] : -1;
}

int64_t memory_reserved(const struct engine *engine, struct arena *arena)
{
	const struct program *program = engine->program;
	struct pools pools = {.engine = engine,
		.at_once = !runtime_of(engine->schedule->plan.runtime)->defers_frees,
		.held = ARENA_ARRAY(arena, int, program->n_buffers)};
	int64_t sum = 0;
	int position = 0;

	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident)
			change(&pools, i, 1);
	/* What has finished is reusable for whoever is issued then. */
	for (int issued = 0; issued < engine->n_instances; issued++) {
		int done = next_finished(engine, &position);

		while (done >= 0 && done < issued && engine->end[done] <= engine->issued[issued]) {
			on_finish(&pools, done);
			position++;
			done = next_finished(engine, &position);
		}
		on_issue(&pools, issued);
	}
	for (int s = 0; s < STREAM_COUNT; s++)
		if (s != STREAM_HOST) /* not the device's memory */
			sum += pools.peak[s];
	return sum;
}
