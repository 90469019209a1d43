/* What the caching allocator reserves: the schedule's buffers, as the tensors that they are, go
 * through PyTorch's rules (allocator.h). The host takes blocks when it issues, ahead of the device,
 * in list order; a give on the stream of the block's own pool is effective at once (stream-ordered
 * reuse), on another stream it is when that stream has passed (rule 5 of docs/schedule.md). FSDP2
 * lets its streams wait instead, so that its blocks are reusable at once (docs/runtimes.md). The
 * optimizer's state comes into being at the end of the first step, in the holes of that step. */
#include <string.h>

#include "simulator/memory/lanes.h"
#include "simulator/memory/memory.h"
#include "simulator/memory/pieces.h"

/* What an operation has taken and not given back, in one iteration: the blocks of all its buffers.
 */
struct taken {
	int *blocks, capacity;
	int left; /* of them, to be given back; 0: it serves another operation */
	int next; /* of those that serve again */
};

struct pools {
	const struct engine *engine;
	struct cutter cutter;
	bool at_once; /* gives to other streams need not wait for them */
	/* Of even and odd steps, by position in the list: which of `all`; [0] is nothing. */
	int *taken[2];
	struct taken *all;
	int n, capacity, unused;
	int *first; /* by buffer: where the operation that takes it has its blocks */
	struct arena *arena;
	struct allocator allocator;
};

/* --- takes and gives -------------------------------------------------------------------------- */

static bool is_pooled(const struct pools *pools, int buffer)
{
	return pools->engine->program->buffers[buffer].pool != STREAM_HOST;
}

/* For good. */
static void take_to_keep(struct pools *pools, int index)
{
	const struct cut *c = cutter_cut(&pools->cutter, index);
	for (int i = 0; i < c->n && is_pooled(pools, index); i++)
		allocator_take(&pools->allocator, (int)pools->engine->program->buffers[index].pool,
			c->bytes[i]);
}

static void take_one(struct pools *pools, int index, struct taken *taken)
{
	const struct cut *c = cutter_cut(&pools->cutter, index);
	int pool = (int)pools->engine->program->buffers[index].pool;
	pools->first[index] = taken->left;
	for (int i = 0; i < c->n; i++)
		taken->blocks[taken->left++] = allocator_take(&pools->allocator, pool, c->bytes[i]);
}

static int new_taken(struct pools *pools)
{
	int index = pools->unused;
	if (index > 0) {
		pools->unused = pools->all[index].next;
		return index;
	}
	if (pools->n == pools->capacity) {
		const struct taken *old = pools->all;
		pools->capacity = pools->n > 0 ? 2 * pools->n : 64;
		pools->all = ARENA_ARRAY(pools->arena, struct taken, pools->capacity);
		for (int i = 0; i < pools->n; i++)
			pools->all[i] = old[i];
		pools->n += pools->n == 0;
	}
	return pools->n++;
}

static void make_room(struct pools *pools, struct taken *taken, int n)
{
	if (n <= taken->capacity)
		return;
	taken->capacity = n;
	taken->blocks = ARENA_ARRAY(pools->arena, int, n);
}

/* Which of all it has; 0: it takes nothing that is given back. */
static int take(struct pools *pools, const struct op *op)
{
	const int *takes = slice_of(pools->engine->program, op->takes);
	int n = 0;
	for (int t = 0; t < op->takes.count; t++)
		if (is_pooled(pools, takes[t]))
			n += cutter_cut(&pools->cutter, takes[t])->n;
	if (n == 0)
		return 0;
	int index = new_taken(pools);
	struct taken *taken = &pools->all[index];
	make_room(pools, taken, n);
	taken->left = 0;
	for (int t = 0; t < op->takes.count; t++)
		if (is_pooled(pools, takes[t]))
			take_one(pools, takes[t], taken);
	return index;
}

/* What the step before the first would have taken cannot be given. */
static void release(struct pools *pools, int buffer, int *index)
{
	const struct cut *c = &pools->cutter.cuts[buffer];
	int first = pools->first[buffer];
	if (*index == 0 || !is_pooled(pools, buffer))
		return;
	struct taken *taken = &pools->all[*index];
	for (int i = first; i < first + c->n; i++) {
		taken->left -= taken->blocks[i] >= 0;
		allocator_give(&pools->allocator, taken->blocks[i]);
		taken->blocks[i] = -1;
	}
	if (taken->left > 0)
		return;
	taken->next = pools->unused;
	pools->unused = *index;
	*index = 0;
}

/* What the operation at a position took: of this step, or, below 0, of the one before. */
static int *taken_at(const struct pools *pools, int step, int64_t position)
{
	if (position >= 0)
		return &pools->taken[step & 1][position];
	return &pools->taken[(step + 1) & 1][position + pools->engine->n_carried_out];
}

static void give_one(
	struct pools *pools, int op, const struct cursor *at, bool issued, int index, int block)
{
	const struct engine *engine = pools->engine;
	int buffer = engine->program->indices[index], taker = pools->cutter.takers[buffer];
	bool own = engine->program->buffers[buffer].pool == engine->program->ops[op].stream ||
		   pools->at_once;
	if (own != issued || taker < 0)
		return;
	int64_t position = cutter_taken_at(&pools->cutter, op, at, index, block);
	release(pools, buffer, taken_at(pools, at->step, position));
}

/* The gives of an operation that become effective when it is issued, or when it has finished: block
 * by block. */
static void give(struct pools *pools, int index, const struct cursor *at, bool issued)
{
	const struct schedule *schedule = pools->engine->schedule;
	const struct program *program = pools->engine->program;
	const struct op *op = &program->ops[index];
	int end = op->gives.first + op->gives.count;
	for (int first = op->gives.first, next; first < end; first = next) {
		int n = buffers_at_once(schedule, op, program->indices[first]);
		next = cutter_end_of_block(&pools->cutter, op, first, end);
		for (int block = 0; block < n; block++)
			for (int i = first; i < next; i++)
				give_one(pools, index, at, issued, i, block);
	}
}

/* Of a unit, or of all, block by block. */
static void take_state(struct pools *pools, int index)
{
	const struct schedule *schedule = pools->engine->schedule;
	const struct program *program = pools->engine->program;
	const struct op *op = &program->ops[index];
	int end = op->uses.first + op->uses.count;
	for (int first = op->uses.first, next; first < end && op->kind == OP_OPTIMIZER;
		first = next) {
		int n = buffers_at_once(schedule, op, program->indices[first]);
		next = cutter_end_of_block(&pools->cutter, op, first, end);
		for (int block = 0; block < n; block++)
			for (int i = first; i < next; i++)
				if (program->buffers[program->indices[i]].role ==
					BUFFER_OPTIMIZER_STATE)
					take_to_keep(pools, program->indices[i]);
	}
}

static void on_issue(struct pools *pools, const struct cursor *at)
{
	const struct engine *engine = pools->engine;
	const struct task *task = &engine->tasks[at->at];
	struct cursor here = *at;
	here.step = 0;
	int64_t position = position_of(engine, task, &task->place, &here);
	pools->taken[at->step & 1][position] = take(pools, &engine->program->ops[at->at]);
	if (at->step == 0)
		take_state(pools, at->at);
	give(pools, at->at, at, true);
}

static void take_resident(void *self, int buffer)
{
	take_to_keep(self, buffer);
}

/* The ends of operations in the order in which they happened, over all steps. */
struct ends {
	const struct engine *engine;
	int step, at; /* of the record */
};

/* The instance that ends next; -1. A step that was simulated once is as it was. */
static int next_end(struct ends *ends)
{
	const struct record *record = ends->engine->record;
	if (record == NULL)
		return -1;
	if (ends->at < record->n_ended)
		return record->ended[ends->at];
	if (ends->engine->n_steps > 1 || ends->step == SIMULATED_STEPS_MAX - 1)
		return -1;
	ends->step++;
	ends->at = 0;
	return next_end(ends);
}

/* Whether `end` has happened when the host issues `instance` of `step`: with one step on record,
 * the host has waited for all of the steps before. */
static bool is_before(const struct ends *ends, int end, int instance, int step)
{
	const struct record *record = ends->engine->record;
	if (ends->step < step && ends->engine->n_steps == 1)
		return true;
	return ends->step <= step && end < instance && record->end[end] <= record->issued[instance];
}

static void give_ended(struct pools *pools, struct ends *ends, int instance, int step)
{
	const struct engine *engine = pools->engine;
	for (int end = next_end(ends); end >= 0 && is_before(ends, end, instance, step);
		end = next_end(ends)) {
		struct cursor at = engine_instance(engine, end);
		if (engine->n_steps == 1)
			at.step = ends->step;
		give(pools, at.at, &at, false);
		ends->at++;
	}
}

/* Segments as they were when the step, or the micro-batch, before began: the rest goes on alike. */
struct seen {
	uint64_t of_step, of_iteration;
	struct cursor at; /* the iteration */
};

static bool is_settled(struct pools *pools, struct seen *seen, const struct cursor *at)
{
	uint64_t before = seen->of_step;
	if (at->at > 0 || at->round[0] > 0 || pools->engine->n_steps > 1)
		return false;
	seen->of_step = allocator_layout(&pools->allocator);
	return at->step > 1 && seen->of_step == before;
}

/* The last iteration is carried out. */
static void pass_over(struct pools *pools, struct seen *seen, struct cursor *at)
{
	const struct program *program = pools->engine->program;
	int loop = program_loop(program, at->at, -1);
	if (loop < 0 || program->loops[loop].layers != 0 || at->round[1] > 0 || !pools->at_once)
		return;
	bool follows = seen->at.step == at->step && seen->at.at == at->at &&
		       seen->at.round[0] + 1 == at->round[0];
	uint64_t layout = allocator_layout(&pools->allocator);
	if (follows && layout == seen->of_iteration)
		at->round[0] = program->loops[loop].times - 1;
	seen->of_iteration = layout;
	seen->at = *at;
}

static void replay(struct pools *pools)
{
	const struct engine *engine = pools->engine;
	struct ends ends = {.engine = engine};
	struct seen seen = {0};
	struct cursor at = {0};
	int instance = 0;
	cutter_each_resident(&pools->cutter, take_resident, pools);
	/* What has finished is reusable for operations issued then. */
	while (at.step < SIMULATED_STEPS_MAX && !pools->allocator.failed) {
		give_ended(pools, &ends, instance, at.step);
		if (is_settled(pools, &seen, &at))
			break;
		pass_over(pools, &seen, &at);
		on_issue(pools, &at);
		list_advance(&engine->host.list, engine->program, &at);
		if (++instance == engine->n_steps * engine->n_carried_out)
			instance = 0; /* with one step on record, the next one is the same */
	}
}

bool memory_defers_frees(const struct schedule *schedule)
{
	return runtime_of(schedule->plan.runtime)->defers_frees;
}

struct reserved memory_replay(const struct engine *engine, int64_t limit, struct arena *arena)
{
	int n = engine->program->n_buffers;
	struct pools pools = {.engine = engine,
		.at_once = !memory_defers_frees(engine->schedule),
		.first = ARENA_ARRAY(arena, int, n),
		.arena = arena};
	for (int step = 0; step < 2; step++)
		pools.taken[step] = ARENA_ARRAY(arena, int, engine->n_carried_out);
	cutter_init(&pools.cutter, engine, arena);
	allocator_init(&pools.allocator, limit,
		engine->schedule->plan.allocator == ALLOCATOR_EXPANDABLE, arena);
	replay(&pools);
	struct reserved reserved = {.bytes = pools.allocator.peak_reserved,
		.active = pools.allocator.peak_active,
		.retries = pools.allocator.retries,
		.fits = !pools.allocator.failed};
	return reserved;
}

struct reserved memory_reserved(const struct engine *engine, int64_t limit, struct arena *arena)
{
	bool at_once = !memory_defers_frees(engine->schedule);
	struct reserved reserved = {0};
	if (at_once && lanes_reserved(engine, limit, arena, &reserved) &&
		(limit == 0 || reserved.bytes <= limit))
		return reserved;
	return memory_replay(engine, limit, arena);
}
