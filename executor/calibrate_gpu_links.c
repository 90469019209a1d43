/* NCCL's collectives over the GPUs of this machine, by size: a thread for each GPU, which times
 * them on its stream. The slowest GPU's time counts. */
#include "executor/calibrate_gpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "executor/nccl_api.h"

enum {
	KINDS = 3,
	REPEATS = 20,
	QUICK_REPEATS = 5,
	TRIES = 5,
	QUICK_TRIES = 3,
	MOST_GPUS = 64,
	MOST_SIZES = 7
};
/* Looks at an event before the thread sleeps between looks. */
enum { SPINS = 2000 };

/* Gathered sizes, bytes. */
static const int64_t sizes[] = {
	64 << 10, 512 << 10, 4 << 20, 16 << 20, 64 << 20, 256 << 20, INT64_C(1) << 30};
static const int64_t quick_sizes[] = {64 << 10, 4 << 20, 64 << 20, 256 << 20};

struct links {
	struct gpu_bench *gpu;
	const struct nccl_api *nccl;
	struct nccl_id id;
	int ranks, n_sizes, repeats, tries;
	const int64_t *bytes;
	pthread_barrier_t barrier;
	double seconds[MOST_GPUS]; /* of one try */
	double times[KINDS][MOST_SIZES][TRIES];
	_Atomic bool failed;
};

struct member {
	struct links *links;
	pthread_t thread;
	int rank;
	void *context, *stream, *start, *end, *comm;
	char *memory;
	struct error error;
};

static bool check(struct member *m, int result, const char *what)
{
	return cuda_check(m->links->gpu->api, result, what, &m->error);
}

/* False when another GPU's thread has failed, without a word: that one says why. */
static bool rest(const struct member *m)
{
	nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	return !m->links->failed;
}

/* Communicators do not block; a call may go on behind our back. */
static bool settle(struct member *m, int result, const char *what)
{
	const struct nccl_api *nccl = m->links->nccl;

	while (result == NCCL_IN_PROGRESS) {
		if (!rest(m))
			return false;
		if (nccl->ncclCommGetAsyncError(m->comm, &result) != 0)
			break;
	}
	return result == 0 ||
	       error_set(&m->error, EXIT_CODE_FAULT, "nccl: %s: %s (%s)", what,
		       nccl->ncclGetErrorString(result), nccl->ncclGetLastError(m->comm));
}

static bool open_member(struct member *m)
{
	const struct links *l = m->links;
	const struct cuda_api *api = l->gpu->api;
	struct nccl_config config = nccl_config_of_all();
	int device = 0;
	uint64_t memory = 0;

	if (!check(m, api->cuDeviceGet(&device, m->rank), "cuDeviceGet") ||
		!check(m, api->cuDevicePrimaryCtxRetain(&m->context, device),
			"cuDevicePrimaryCtxRetain") ||
		!check(m, api->cuCtxSetCurrent(m->context), "cuCtxSetCurrent") ||
		!check(m, api->cuStreamCreateWithPriority(&m->stream, CUDA_STREAM_NON_BLOCKING, 0),
			"cuStreamCreate") ||
		!check(m, api->cuEventCreate(&m->start, CUDA_EVENT_DEFAULT), "cuEventCreate") ||
		!check(m, api->cuEventCreate(&m->end, CUDA_EVENT_DEFAULT), "cuEventCreate") ||
		/* What is gathered, and one GPU's part of it. */
		!check(m, api->cuMemAlloc(&memory, (size_t)(2 * l->bytes[l->n_sizes - 1])),
			"memory for collectives (cuMemAlloc)"))
		return false;
	m->memory = (char *)(uintptr_t)memory;
	return settle(m,
		l->nccl->ncclCommInitRankConfig(&m->comm, l->ranks, l->id, m->rank, &config),
		"ncclCommInitRankConfig");
}

static void close_member(struct member *m)
{
	const struct cuda_api *api = m->links->gpu->api;

	if (m->comm != NULL && m->links->failed)
		m->links->nccl->ncclCommAbort(m->comm);
	else if (m->comm != NULL &&
		 settle(m, m->links->nccl->ncclCommFinalize(m->comm), "ncclCommFinalize"))
		m->links->nccl->ncclCommDestroy(m->comm);
	if (m->memory != NULL)
		api->cuMemFree((uint64_t)(uintptr_t)m->memory);
	if (m->start != NULL)
		api->cuEventDestroy(m->start);
	if (m->end != NULL)
		api->cuEventDestroy(m->end);
	if (m->stream != NULL)
		api->cuStreamDestroy(m->stream);
	if (m->context != NULL)
		api->cuDevicePrimaryCtxRelease(m->rank);
}

static bool issue(struct member *m, enum collective_kind kind, int64_t bytes)
{
	const struct links *l = m->links;
	char *whole = m->memory, *part = whole + l->bytes[l->n_sizes - 1];
	size_t all = (size_t)bytes / sizeof(float), each = all / (size_t)l->ranks;
	int result = 0;

	switch (kind) {
	case COLLECTIVE_ALL_GATHER:
		result =
			l->nccl->ncclAllGather(part, whole, each, NCCL_FLOAT32, m->comm, m->stream);
		break;
	case COLLECTIVE_REDUCE_SCATTER:
		result = l->nccl->ncclReduceScatter(
			whole, part, each, NCCL_FLOAT32, NCCL_SUM, m->comm, m->stream);
		break;
	case COLLECTIVE_ALL_REDUCE:
		result = l->nccl->ncclAllReduce(
			whole, whole, all, NCCL_FLOAT32, NCCL_SUM, m->comm, m->stream);
		break;
	}
	return settle(m, result, collective_kind_names[kind]);
}

/* Not cuEventSynchronize: a collective that somebody does not join never ends. */
static bool await(struct member *m, void *event)
{
	int result, looks = 0;

	while ((result = m->links->gpu->api->cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
		if (looks++ >= SPINS && !rest(m))
			return false;
	return check(m, result, "a collective");
}

/* Without a barrier between them: the first of the row lets all come. */
static bool time_row(struct member *m, enum collective_kind kind, int64_t bytes, double *seconds)
{
	const struct cuda_api *api = m->links->gpu->api;
	float milliseconds = 0;

	if (!issue(m, kind, bytes) ||
		!check(m, api->cuEventRecord(m->start, m->stream), "cuEventRecord"))
		return false;
	for (int i = 0; i < m->links->repeats; i++)
		if (!issue(m, kind, bytes))
			return false;
	if (!check(m, api->cuEventRecord(m->end, m->stream), "cuEventRecord") ||
		!await(m, m->end) ||
		!check(m, api->cuEventElapsedTime(&milliseconds, m->start, m->end),
			"cuEventElapsedTime"))
		return false;
	*seconds = 1e-3 * (double)milliseconds / m->links->repeats;
	return true;
}

/* All come here as often as another, also after a failure. */
static void time_try(struct member *m, int kind, int size, int try)
{
	struct links *l = m->links;

	pthread_barrier_wait(&l->barrier);
	if (!l->failed &&
		!time_row(m, (enum collective_kind)kind, l->bytes[size], &l->seconds[m->rank]))
		l->failed = true;
	pthread_barrier_wait(&l->barrier);
	for (int r = 0; r < l->ranks && m->rank == 0; r++)
		if (l->seconds[r] > l->times[kind][size][try])
			l->times[kind][size][try] = l->seconds[r];
}

static void *run_member(void *data)
{
	struct member *m = data;
	struct links *l = m->links;

	if (!open_member(m))
		l->failed = true;
	for (int kind = 0; kind < KINDS; kind++)
		for (int size = 0; size < l->n_sizes; size++)
			for (int try = 0; try < l->tries; try++)
				time_try(m, kind, size, try);
	close_member(m);
	return NULL;
}

static void add_curves(struct links *l)
{
	for (int kind = 0; kind < KINDS; kind++) {
		struct collective_curve curve = {
			.kind = (enum collective_kind)kind, .ranks = l->ranks, .nodes = 1};

		for (int size = 0; size < l->n_sizes; size++) {
			struct spread spread = measure_spread(l->times[kind][size], l->tries);

			bench_note_spread(&l->gpu->base, &spread);
			curve.points[curve.n++] =
				(struct collective_point){l->bytes[size], spread.p50};
		}
		bench_add_curve(&l->gpu->base, &curve);
	}
}

static bool run_members(struct links *l, struct error *error)
{
	struct member members[MOST_GPUS] = {0};
	int started = 0;

	for (; started < l->ranks; started++) {
		members[started] = (struct member){.links = l, .rank = started};
		if (pthread_create(&members[started].thread, NULL, run_member, &members[started]) !=
			0)
			abort(); /* the others would wait for it */
	}
	for (int i = 0; i < l->ranks; i++)
		pthread_join(members[i].thread, NULL);
	for (int i = 0; i < l->ranks; i++)
		if (members[i].error.message[0] != '\0')
			return error_set(error, members[i].error.code, "calibrate: GPU %d: %s", i,
				members[i].error.message);
	return true;
}

static bool time_ranks(struct gpu_bench *g, int ranks, struct error *error)
{
	const struct nccl_api *nccl = nccl_api(error);
	bool quick = g->base.options->quick;
	struct links *l = ARENA_NEW(g->base.arena, struct links);

	if (nccl == NULL)
		return false;
	*l = (struct links){.gpu = g,
		.nccl = nccl,
		.ranks = ranks,
		.repeats = quick ? QUICK_REPEATS : REPEATS,
		.tries = quick ? QUICK_TRIES : TRIES,
		.bytes = quick ? quick_sizes : sizes,
		.n_sizes = quick ? COUNT_OF(quick_sizes) : COUNT_OF(sizes)};
	int result = nccl->ncclGetUniqueId(&l->id);
	if (result != 0)
		return error_set(error, EXIT_CODE_FAULT, "nccl: ncclGetUniqueId: %s",
			nccl->ncclGetErrorString(result));
	pthread_barrier_init(&l->barrier, NULL, (unsigned)ranks);
	bool ok = run_members(l, error);
	pthread_barrier_destroy(&l->barrier);
	if (ok)
		add_curves(l);
	return ok;
}

/* Groups of 2, 4, ... GPUs, and all. */
bool calibrate_gpu_links(struct gpu_bench *g, struct error *error)
{
	int gpus = (int)min_i64(g->gpus, MOST_GPUS), groups = 1;

	for (int n = 2; n < gpus; n *= 2)
		groups++;
	bench_make_room(&g->base, groups);
	for (int n = 2; n < gpus; n *= 2)
		if (!time_ranks(g, n, error))
			return false;
	if (gpus > 1 && !time_ranks(g, gpus, error))
		return false;
	bench_sort_curves(&g->base);
	return true;
}
