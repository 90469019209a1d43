/* An allocator that reaches its limit. A request for which there is neither a cached block nor room
 * makes it wait for all events of blocks that other streams still use, give all segments that are
 * wholly free back to the driver, and ask again (CUDACachingAllocator.cpp, release_cached_blocks).
 * The issuing thread waits meanwhile, the device runs out of work, and what was given back is asked
 * for again in the next step.
 *
 * What the driver takes for a call [published averages over calls of all sizes]: cudaMalloc 0.32,
 * 0.72 and 2.5 ms (nvprof outputs in pytorch/torchdynamo issue 107, JuliaGPU/CuArrays.jl pull 149
 * and ryujaehun/pytorch-gpu-benchmark issue 6 without its first call), of which this is the
 * geometric mean; cudaFree 1.64 ms (the last of the three), after the device is idle: it waits for
 * all of it (NVIDIA's blog on RMM). Expandable segments create, map and open a physical page, or
 * unmap and release one: 0.07 and 0.06 ms [U: the sums of a table of the vAttention paper, recalled
 * and not looked up]; the cost grows with the number of pages (pytorch pull 96995), and they wait
 * for the device too.
 *
 * The kernel driver holds one lock for all devices of a host while it allocates or frees
 * (g_RmApiLock in rmapi.c of NVIDIA/open-gpu-kernel-modules, taken to write), so processes take
 * turns: eight on eight GPUs wait eight times as long as one alone for such calls (dmlc/xgboost
 * issue 2938; issue 4194 has cudaMalloc linear in the GPUs, as a lower bound). The figures above
 * are of one process. All ranks of a host reach the limit in the same step; where they do not reach
 * it at the same time, each waits in its collectives for the one that does, and it comes to the
 * same. */
#include "simulator/memory/memory.h"
#include "simulator/memory/pools.h"

/* Seconds. */
static const struct driver_times {
	double take, give_back;
} of_segments = {0.83e-3, 1.64e-3}, of_pages = {0.07e-3, 0.06e-3};

struct shortage {
	struct engine *engine;
	struct supply supply;
	struct pools pools;
	int n_ended;    /* instances of record->ended whose frees are effective */
	int n_issued;   /* instances */
	int n_drained;  /* instances that had finished at the last retry */
	bool *finished; /* [instances] its frees are effective */
	int retries[SHORT_STEPS];
	uint64_t layouts[SHORT_STEPS]; /* of segments, when the step began */
};

static void finish(struct shortage *s, int instance)
{
	struct cursor at = engine_instance(s->engine, instance);
	if (!s->finished[instance])
		pools_give(&s->pools, &at, false);
	s->finished[instance] = true;
}

static void finish_ended(struct shortage *s)
{
	const struct record *record = s->engine->record;
	for (; s->n_ended < record->n_ended; s->n_ended++)
		finish(s, record->ended[s->n_ended]);
}

/* The issuing thread waits until all that it issued has finished: then all their frees are
 * effective for the request that waits. */
static void synchronise(void *self)
{
	struct shortage *s = self;
	for (; s->n_drained < s->n_issued; s->n_drained++)
		finish(s, s->n_drained);
}

/* A step that begins with the segments of an earlier one goes on as that one did. The first has no
 * optimizer state; a host that runs ahead leaves more than segments behind, and of several classes
 * each has its own. */
static bool has_settled(struct shortage *s, const struct cursor *at)
{
	struct engine *engine = s->engine;
	if (at->at > 0 || at->round[0] > 0 || engine->runs_ahead || engine->batch_interval > 0 ||
		engine->together != NULL)
		return false;
	s->layouts[at->step] = allocator_layout(&s->pools.allocator);
	for (int step = at->step - 1; step > 0; step--) {
		if (s->layouts[step] != s->layouts[at->step])
			continue;
		engine->n_steps = at->step;
		engine->n_counted = at->step - step;
		return true;
	}
	return false;
}

static int64_t processes_of_host(const struct topology *topology)
{
	int64_t host = topology->fabric.host_devices;
	return min_i64(host > 0 ? host : topology->devices_per_node, topology_devices(topology));
}

/* The driver's time for one process, and for the others that hold the lock before it. */
static double driver_seconds(const struct shortage *s, int64_t taken, int64_t given_back)
{
	const struct driver_times *times = s->pools.allocator.expandable ? &of_pages : &of_segments;
	double alone = times->take * (double)taken + times->give_back * (double)given_back;
	return alone * (double)processes_of_host(s->engine->topology);
}

static bool take(void *self, const struct cursor *at, struct stall *stall)
{
	struct shortage *s = self;
	struct allocator *a = &s->pools.allocator;
	int64_t taken = a->n_taken, given_back = a->n_given_back;
	int retries = a->retries;
	finish_ended(s);
	*stall = (struct stall){0};
	if (has_settled(s, at))
		return true;
	pools_issue(&s->pools, at);
	s->n_issued++;
	s->retries[at->step] += a->retries - retries;
	*stall = (struct stall){.drains = a->retries > retries,
		.seconds = driver_seconds(s, a->n_taken - taken, a->n_given_back - given_back)};
	return !a->failed;
}

struct shortage *memory_shortage(struct engine *engine, int64_t limit, struct arena *arena)
{
	struct shortage *s = ARENA_NEW(arena, struct shortage);
	s->engine = engine;
	s->supply = (struct supply){s, take};
	engine_supply(engine, &s->supply);
	s->finished = ARENA_ARRAY(arena, bool, engine->n_steps * engine->n_carried_out);
	pools_init(&s->pools, engine, limit, arena);
	s->pools.allocator.synchronise = synchronise;
	s->pools.allocator.self = s;
	return s;
}

struct reserved memory_held(const struct shortage *shortage)
{
	const struct allocator *a = &shortage->pools.allocator;
	return (struct reserved){
		.bytes = a->peak_reserved, .active = a->peak_active, .within = true};
}

double memory_retries(const struct shortage *shortage)
{
	const struct engine *engine = shortage->engine;
	int n = 0;
	for (int i = engine->n_steps - engine->n_counted; i < engine->n_steps; i++)
		n += shortage->retries[i];
	return (double)n / engine->n_counted;
}
