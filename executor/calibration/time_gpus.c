/* Times NCCL's collectives on the ranks' GPUs by their own events. They run in rows, whose first
 * collective lets all ranks come. A row is one graph, as a step of training is, so it does not have
 * what a call costs the host: tens of microseconds for a communicator that does not block. NCCL
 * knows the memory as it knows that of training. */

#include "executor/calibration/timer.h"
#include "executor/devices/devices.h"
#include "executor/training/training.h"
#include "executor/transports/transports.h"

/* The thread looks so often at an event before it sleeps between looks. */
enum { SPINS = 2000, PAGE = 4096 };
/* These are the collectives of a row, and the rows of each size. */
enum { REPEATS = 20, LARGE_REPEATS = 5, QUICK_REPEATS = 5, TRIES = 5, QUICK_TRIES = 3 };

#define LARGE (INT64_C(128) << 20)
/* Seconds of the largest collective that is timed. */
#define LONGEST 0.2

static const int64_t sizes[] = {
	64 << 10, 512 << 10, 4 << 20, 16 << 20, 64 << 20, 256 << 20, INT64_C(1) << 30};
static const int64_t quick_sizes[] = {64 << 10, 4 << 20, 64 << 20, 256 << 20};

struct gpu_timer {
	const struct cuda_api *api;
	int ordinal;
	void *context;
	struct gpu_stopwatch watch;
	void *done; /* the event behind a row */
	/* The row that was captured last, or NULL, and what it is of. */
	void *row;
	struct collective rowed;
	struct nccl_world world;
	struct patience patience;
	struct nccl_memory memory;
	struct nccl_buffers buffers;
};

static bool check(const struct gpu_timer *g, int result, const char *what, struct error *error)
{
	return cuda_check(g->api, result, what, error);
}

/* --- one row --- */

static bool record_done(struct gpu_timer *g, struct error *error)
{
	return check(g, g->api->cuEventRecord(g->done, g->watch.stream), "cuEventRecord", error);
}

/* cuEventSynchronize will not do, because a collective that a rank does not join never ends. */
static bool await(const struct timer *t, struct gpu_timer *g, struct error *error)
{
	double since = clock_now(), patience = g->patience.timeout;
	int result, looks = 0;

	while ((result = g->api->cuEventQuery(g->done)) == CUDA_ERROR_NOT_READY) {
		if (segment_aborted(t->segment))
			return false;
		if (looks++ < SPINS)
			continue;
		if (!nccl_world_healthy(&g->world, error))
			return false;
		double waited = clock_now() - since;

		if (waited > patience)
			return error_set(error, EXIT_CODE_FAULT,
				"rank %d: nccl: a collective has not ended for %.0f s: "
				"a rank that does not come, or a network that does not answer",
				t->segment->rank, patience);
		clock_nap(waited);
	}
	return check(g, result, "a collective", error);
}

static int repeats_of(const struct timer *t, const struct collective *c)
{
	int64_t bytes = c->count * comm_element_bytes(c->element);

	if (t->segment->header->job.quick)
		return QUICK_REPEATS;
	if (c->kind != COLLECTIVE_ALL_REDUCE)
		bytes *= c->group.size;
	return bytes > LARGE ? LARGE_REPEATS : REPEATS;
}

/* The event is recorded whenever the graph runs. */
static bool mark(struct gpu_timer *g, void *event, struct error *error)
{
	return check(g,
		g->api->cuEventRecordWithFlags(event, g->watch.stream, CUDA_EVENT_RECORD_EXTERNAL),
		"cuEventRecordWithFlags", error);
}

static bool run_many(
	struct gpu_timer *g, const struct collective *c, int times, struct error *error)
{
	for (int i = 0; i < times; i++)
		if (!nccl_world_run(&g->world, c, error))
			return false;
	return true;
}

static void forget_row(struct gpu_timer *g)
{
	if (g->row != NULL)
		g->api->cuGraphExecDestroy(g->row);
	g->row = NULL;
}

static bool capture_row(
	struct gpu_timer *g, const struct collective *c, int repeats, struct error *error)
{
	void *graph = NULL;

	if (!check(g, g->api->cuStreamBeginCapture(g->watch.stream, CUDA_CAPTURE_THREAD_LOCAL),
		    "cuStreamBeginCapture", error))
		return false;
	bool ok = run_many(g, c, 1, error) && mark(g, g->watch.start, error) &&
		  run_many(g, c, repeats, error) && mark(g, g->watch.end, error);
	int ended = g->api->cuStreamEndCapture(g->watch.stream, &graph);
	ok = ok && check(g, ended, "cuStreamEndCapture", error) &&
	     check(g, g->api->cuGraphInstantiateWithFlags(&g->row, graph, 0), "cuGraphInstantiate",
		     error) &&
	     check(g, g->api->cuGraphUpload(g->row, g->watch.stream), "cuGraphUpload", error);
	if (graph != NULL)
		g->api->cuGraphDestroy(graph);
	return ok;
}

static bool is_rowed(const struct gpu_timer *g, const struct collective *c)
{
	const struct collective *r = &g->rowed;

	return g->row != NULL && r->kind == c->kind && r->group_index == c->group_index &&
	       r->count == c->count;
}

/* The first collective is walked: it connects what it needs, and has ended before a graph uses the
 * communicator. */
static bool make_row(
	struct timer *t, struct gpu_timer *g, const struct collective *c, struct error *error)
{
	forget_row(g);
	g->rowed = *c;
	return run_many(g, c, 1, error) && record_done(g, error) && await(t, g, error) &&
	       capture_row(g, c, repeats_of(t, c), error);
}

static bool run_on_gpu(
	struct timer *t, const struct collective *wanted, double *seconds, struct error *error)
{
	struct gpu_timer *g = t->device;
	struct collective c = *wanted;

	c.stream = g->watch.stream;
	if (!is_rowed(g, &c) && !make_row(t, g, &c, error))
		return false;
	if (!check(g, g->api->cuGraphLaunch(g->row, g->watch.stream), "cuGraphLaunch", error) ||
		!record_done(g, error) || !await(t, g, error) ||
		!gpu_stopwatch_seconds(&g->watch, seconds, error))
		return false;
	*seconds /= repeats_of(t, &c);
	return true;
}

/* --- opening --- */

static bool open_device(struct gpu_timer *g, struct error *error)
{
	const struct cuda_api *api = g->api;
	int device = 0;

	return check(g, api->cuDeviceGet(&device, g->ordinal), "cuDeviceGet", error) &&
	       check(g, api->cuDevicePrimaryCtxRetain(&g->context, device),
		       "cuDevicePrimaryCtxRetain", error) &&
	       check(g, api->cuCtxSetCurrent(g->context), "cuCtxSetCurrent", error) &&
	       gpu_stopwatch_open(&g->watch, api, error) &&
	       check(g, api->cuEventCreate(&g->done, CUDA_EVENT_DISABLE_TIMING), "cuEventCreate",
		       error);
}

/* Takes memory for the largest size: the whole, and behind it a rank's part. */
static bool take_memory(struct timer *t, struct gpu_timer *g, struct error *error)
{
	const struct nccl_api *nccl = g->world.api;
	int64_t largest = t->sizes.bytes[t->sizes.n - 1];
	uint64_t address = 0;
	void *given = NULL;

	g->memory.bytes = round_up(2 * largest, PAGE);
	g->memory.of_nccl = nccl->ncclMemAlloc != NULL && nccl->ncclMemFree != NULL &&
			    nccl->ncclMemAlloc(&given, (size_t)g->memory.bytes) == 0;
	if (!g->memory.of_nccl && !check(g, g->api->cuMemAlloc(&address, (size_t)g->memory.bytes),
					  "memory for collectives (cuMemAlloc)", error))
		return false;
	g->memory.start = g->memory.of_nccl ? given : (char *)(uintptr_t)address;
	t->whole = g->memory.start;
	t->chunk = g->memory.start + largest;
	return true;
}

static bool open_nccl(
	struct timer *t, struct gpu_timer *g, struct arena *arena, struct error *error)
{
	const struct cluster *cluster = &t->cluster;

	return gpu_check_apart(g->api, g->ordinal, &t->comm, &t->heap, cluster->layout.per_node,
		       arena, error) &&
	       nccl_world_open(&g->world, t->segment, &t->comm, &t->heap, t->groups, t->n_groups,
		       &g->patience, arena, error) &&
	       take_memory(t, g, error) &&
	       nccl_buffers_open(
		       &g->buffers, &g->world, g->memory, &t->comm, &t->heap, arena, error);
}

static bool open_gpu(struct timer *t, struct gpu_timer *g, struct arena *arena, struct error *error)
{
	bool quick = t->segment->header->job.quick;
	const struct gpu_transport *transport;
	int gpus;

	t->sizes = quick ? (struct timer_sizes){quick_sizes, COUNT_OF(quick_sizes), QUICK_TRIES,
				   LONGEST}
			 : (struct timer_sizes){sizes, COUNT_OF(sizes), TRIES, LONGEST};
	t->run = run_on_gpu;
	t->device = g;
	g->patience.timeout = t->segment->header->job.collective_timeout;
	if (!timer_open(t, timer_window_bytes(quick, true), error) ||
		!gpu_choose("nccl", t->cluster.layout.per_node,
			t->segment->header->job.meets != MEETS_HERE, &transport, &gpus, error))
		return false;
	g->api = cuda_api(error);
	g->ordinal = gpu_of_rank(t->segment, &t->cluster, gpus);
	timer_choose_groups(t, true, arena);
	return open_device(g, error) && open_nccl(t, g, arena, error);
}

static void close_gpu(struct gpu_timer *g, bool sound)
{
	const struct nccl_api *nccl = g->world.api;

	forget_row(g);
	if (sound)
		nccl_buffers_close(&g->buffers, &g->world);
	nccl_world_close(&g->world);
	if (g->memory.start != NULL && g->memory.of_nccl)
		nccl->ncclMemFree(g->memory.start);
	else if (g->memory.start != NULL)
		g->api->cuMemFree((uint64_t)(uintptr_t)g->memory.start);
	if (g->done != NULL)
		g->api->cuEventDestroy(g->done);
	gpu_stopwatch_close(&g->watch);
	if (g->context != NULL)
		g->api->cuDevicePrimaryCtxRelease(g->ordinal);
}

bool rank_time_gpu_collectives(struct segment *segment, struct error *error)
{
	struct timer timer = {.segment = segment};
	struct gpu_timer gpu = {0};
	struct arena arena = {0};
	bool ok = open_gpu(&timer, &gpu, &arena, error) && timer_run(&timer, error);

	/* The others must know before communicators are freed. */
	if (!ok && error->code != EXIT_CODE_OK)
		segment_fault_error(segment, error);
	close_gpu(&gpu, ok);
	timer_close(&timer, ok);
	arena_finish(&arena);
	return ok;
}
