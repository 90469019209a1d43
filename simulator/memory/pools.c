/* The schedule's buffers in PyTorch's allocator (allocator.h), tensor by tensor. The host takes
 * blocks when it issues operations: ahead of the device, in list order. A free on the stream of the
 * block's own pool is effective at once (stream-ordered reuse). On another stream it is deferred
 * until that stream has passed (rule 5 of docs/schedule.md). FSDP2 makes its streams wait instead,
 * so its blocks are reusable at once (docs/runtimes.md). The optimizer's state is made at the end
 * of the first step, in the holes of that step. */
#include "simulator/memory/pools.h"

#include "simulator/memory/memory.h"

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
	taken->blocks = ARENA_ARRAY(pools->arena, struct allocator_block *, n);
}

/* The index of the entry that the operation gets; 0: it takes nothing that is given back. */
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

/* Blocks that a step before the first would have taken do not exist, and are not given back. */
static void release(struct pools *pools, int buffer, int *index)
{
	const struct cut *c = &pools->cutter.cuts[buffer];
	int first = pools->first[buffer];
	if (*index == 0 || !is_pooled(pools, buffer))
		return;
	struct taken *taken = &pools->all[*index];
	for (int i = first; i < first + c->n; i++) {
		taken->left -= taken->blocks[i] != NULL;
		allocator_give(&pools->allocator, taken->blocks[i]);
		taken->blocks[i] = NULL;
	}
	if (taken->left > 0)
		return;
	taken->next = pools->unused;
	pools->unused = *index;
	*index = 0;
}

/* The blocks that the operation at a position took: of this step, or, below 0, of the one
 * before. */
static int *taken_at(const struct pools *pools, int step, int64_t position)
{
	if (position >= 0)
		return &pools->taken[step & 1][position];
	return &pools->taken[(step + 1) & 1][position + pools->engine->n_carried_out];
}

static void give_one(
	struct pools *pools, const struct cursor *at, bool issued, int index, int block)
{
	const struct engine *engine = pools->engine;
	int buffer = engine->program->indices[index], taker = pools->cutter.takers[buffer];
	bool own = engine->program->buffers[buffer].pool == engine->program->ops[at->at].stream ||
		   pools->at_once;
	if (own != issued || taker < 0)
		return;
	int64_t position = cutter_taken_at(&pools->cutter, at->at, at, index, block);
	release(pools, buffer, taken_at(pools, at->step, position));
}

/* Block by block. */
void pools_give(struct pools *pools, const struct cursor *at, bool issued)
{
	const struct program *program = pools->engine->program;
	const struct op *op = &program->ops[at->at];
	int end = op->gives.first + op->gives.count;
	for (int first = op->gives.first, next; first < end; first = next) {
		int n = buffers_at_once(program, op, program->indices[first]);
		next = cutter_end_of_block(&pools->cutter, op, first, end);
		for (int block = 0; block < n; block++)
			for (int i = first; i < next; i++)
				give_one(pools, at, issued, i, block);
	}
}

/* Takes the state of a unit, or of all units, block by block. */
static void take_state(struct pools *pools, int index)
{
	const struct program *program = pools->engine->program;
	const struct op *op = &program->ops[index];
	int end = op->uses.first + op->uses.count;
	for (int first = op->uses.first, next; first < end && op->kind == OP_OPTIMIZER;
		first = next) {
		int n = buffers_at_once(program, op, program->indices[first]);
		next = cutter_end_of_block(&pools->cutter, op, first, end);
		for (int block = 0; block < n; block++)
			for (int i = first; i < next; i++)
				if (program->buffers[program->indices[i]].role ==
					BUFFER_OPTIMIZER_STATE)
					take_to_keep(pools, program->indices[i]);
	}
}

void pools_issue(struct pools *pools, const struct cursor *at)
{
	const struct engine *engine = pools->engine;
	const struct task *task = &engine->tasks[at->at];
	struct cursor here = *at;
	here.step = 0;
	int64_t position = position_of(engine, task, &task->place, &here);
	pools->taken[at->step & 1][position] = take(pools, &engine->program->ops[at->at]);
	if (at->step == 0)
		take_state(pools, at->at);
	pools_give(pools, at, true);
}

static void take_resident(void *self, int buffer)
{
	take_to_keep(self, buffer);
}

void pools_init(
	struct pools *pools, const struct engine *engine, int64_t limit, struct arena *arena)
{
	int n = engine->program->n_buffers;
	*pools = (struct pools){.engine = engine,
		.at_once = !memory_defers_frees(engine->schedule),
		.first = ARENA_ARRAY(arena, int, n),
		.arena = arena};
	for (int step = 0; step < 2; step++)
		pools->taken[step] = ARENA_ARRAY(arena, int, engine->n_carried_out);
	cutter_init(&pools->cutter, engine, arena);
	allocator_init(&pools->allocator, limit,
		engine->schedule->plan.allocator == ALLOCATOR_EXPANDABLE, arena);
	cutter_each_resident(&pools->cutter, take_resident, pools);
}

bool memory_defers_frees(const struct schedule *schedule)
{
	return runtime_of(schedule->plan.runtime)->defers_frees;
}
