/* What the caching allocator reserves where memory suffices: the list is replayed after the run
 * (pools.h), lane by lane where lanes do not affect one another (lanes.h). Where memory does not
 * suffice the allocator changes the run itself: retries.c. */
#include "simulator/memory/lanes.h"
#include "simulator/memory/memory.h"
#include "simulator/memory/pools.h"

/* The ends of operations in the order in which they happened, over all steps. */
struct ends {
	const struct engine *engine;
	int step, at; /* of the record */
};

/* The instance that ends next; -1: none. If one step was simulated, it stands for all. */
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

/* Has `end` happened when the host issues `instance` of `step`? If one step is recorded, the host
 * has waited for the end of each step. */
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
		pools_give(pools, &at, false);
		ends->at++;
	}
}

/* The layout of segments when the step, or the micro-batch, before began. If it is the same now,
 * the rest repeats. */
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
	/* Blocks of operations that have finished are reusable for those issued then. */
	while (at.step < SIMULATED_STEPS_MAX && pools->allocator.retries == 0) {
		give_ended(pools, &ends, instance, at.step);
		if (is_settled(pools, &seen, &at))
			break;
		pass_over(pools, &seen, &at);
		pools_issue(pools, &at);
		list_advance(&engine->host.list, engine->program, &at);
		if (++instance == engine->n_steps * engine->n_carried_out)
			instance = 0; /* with one step on record, the next one is the same */
	}
}

struct reserved memory_replay(const struct engine *engine, int64_t limit, struct arena *arena)
{
	struct pools pools;
	pools_init(&pools, engine, limit, arena);
	replay(&pools);
	return (struct reserved){.bytes = pools.allocator.peak_reserved,
		.active = pools.allocator.peak_active,
		.within = pools.allocator.retries == 0};
}

static struct reserved reserved_by(const struct engine *engine, int64_t limit, struct arena *arena)
{
	struct reserved reserved;
	if (!memory_defers_frees(engine->schedule) &&
		lanes_reserved(engine, limit, arena, &reserved))
		return reserved;
	return memory_replay(engine, limit, arena);
}

/* With several classes one after the other is replayed, each with the memory that the ones before
 * leave. */
struct reserved memory_reserved(const struct engine *engine, int64_t limit, struct arena *arena)
{
	struct arena own = {0};
	bool is_alone = engine->schedule->n_classes == 1;
	struct reserved reserved = reserved_by(engine, limit, is_alone ? arena : &own);
	arena_finish(&own);
	return reserved;
}
