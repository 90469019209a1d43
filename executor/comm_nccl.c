/* The `nccl` transport: every rank has a GPU, and collectives are NCCL's, on the stream of the
 * operation.
 *
 * Communicators are split from one over the world: for each group of the schedule one that gathers
 * and one that reduces, because operations of one communicator run one after the other. Reductions
 * are sums (the division is in the loss gradient). Nothing blocks: what NCCL reports later is
 * looked for while the host waits, and a fault of any rank aborts all communicators, which ends
 * what waits on the GPUs. What lies in host memory goes on through the transport below, which also
 * carries the identifier that ranks meet by. */
#include <time.h>

#include "executor/comm_node.h"
#include "executor/gpu.h"
#include "executor/nccl_buffers.h"

enum { GATHERS, REDUCES, PURPOSES };

struct nccl {
	struct arena arena;
	const struct nccl_api *api;
	struct comm host; /* the transport below */
	struct segment *segment;
	struct device_cuda *device;
	const struct schedule *schedule;
	void *world, *(*comms)[PURPOSES]; /* [n_groups] */
	struct nccl_buffers buffers;
	bool aborted;
};

static bool failed(
	const struct nccl *n, void *comm, int result, const char *what, struct error *error)
{
	return !error_set(error, EXIT_CODE_FAULT, "rank %d: nccl: %s: %s (%s)", n->host.rank, what,
		n->api->ncclGetErrorString(result), n->api->ncclGetLastError(comm));
}

/* Calls of a communicator that does not block may go on behind our back; the next one must wait. */
static bool settle(struct nccl *n, void *comm, int result, const char *what, struct error *error)
{
	double since = clock_now(), patience = n->device->patience.timeout;

	while (result == NCCL_IN_PROGRESS) {
		if (segment_aborted(n->segment))
			return false;
		if (patience > 0 && clock_now() - since > patience)
			return error_set(error, EXIT_CODE_FAULT,
				"rank %d: nccl: %s has not ended for %.0f s: a rank that does not "
				"come, or a network that does not answer",
				n->host.rank, what, patience);
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
		if (n->api->ncclCommGetAsyncError(comm, &result) != 0)
			return !failed(n, comm, result, what, error);
	}
	return result == 0 || !failed(n, comm, result, what, error);
}

/* --- communicators --- */

/* The first rank's identifier reaches all; `mine` lies where the transport below can read it. */
static bool agree_on_id(struct nccl *n, struct nccl_id *mine, struct nccl_id *id,
	struct arena *arena, struct error *error)
{
	struct nccl_id *all = ARENA_ARRAY(arena, struct nccl_id, n->host.ranks);

	*mine = (struct nccl_id){{0}};
	if (n->host.rank == 0) {
		int result = n->api->ncclGetUniqueId(mine);

		if (result != 0)
			return !failed(n, NULL, result, "ncclGetUniqueId", error);
	}
	if (!comm_exchange(&n->host, mine, all, sizeof(*all)))
		return false;
	*id = all[0];
	return true;
}

static bool meet(struct nccl *n, struct heap *heap, struct error *error)
{
	struct nccl_config config = nccl_config_of_all();
	int block = heap_take(heap, sizeof(struct nccl_id), error);
	struct nccl_id id;

	if (block < 0)
		return false;
	bool ok = agree_on_id(n, heap_address(heap, block), &id, &n->arena, error);
	heap_give(heap, block);
	if (!ok)
		return false;
	int result =
		n->api->ncclCommInitRankConfig(&n->world, n->host.ranks, id, n->host.rank, &config);
	return settle(n, n->world, result, "ncclCommInitRankConfig", error);
}

/* All ranks split for all groups in one order. Members of a group have the colour of its first
 * rank; a group of one needs no communicator. */
static bool split(struct nccl *n, struct error *error)
{
	n->comms = arena_alloc(&n->arena, (size_t)n->schedule->n_groups + 1, sizeof(n->comms[0]));
	for (int g = 0; g < n->schedule->n_groups; g++) {
		struct comm_group group = comm_group_of(&n->schedule->groups[g], n->host.rank);

		for (int p = 0; p < PURPOSES && group.size > 1; p++) {
			struct nccl_config config = nccl_config_of_all();
			int result = n->api->ncclCommSplit(
				n->world, group.first, group.index, &n->comms[g][p], &config);

			if (!settle(n, n->world, result, "ncclCommSplit", error) ||
				(n->comms[g][p] != NULL &&
					!settle(n, n->comms[g][p], NCCL_IN_PROGRESS,
						"ncclCommSplit", error)))
				return false;
		}
	}
	return true;
}

static bool settle_any(void *nccl, void *comm, int result, const char *what, struct error *error)
{
	return settle(nccl, comm, result, what, error);
}

/* With all communicators, in one order on all ranks. */
static bool register_buffers(struct nccl *n, struct heap *heap, struct error *error)
{
	int room = n->schedule->n_groups * PURPOSES;

	if (!nccl_buffers_open(
		    &n->buffers, n->api, n->device, room, &n->host, heap, &n->arena, error))
		return false;
	for (int i = 0; i < room && nccl_buffers_wanted(&n->buffers); i++) {
		void *comm = n->comms[i / PURPOSES][i % PURPOSES];

		if (comm != NULL && !nccl_buffers_register(&n->buffers, comm, settle_any, n, error))
			return false;
	}
	return true;
}

/* --- failure --- */

static void abort_all(struct nccl *n)
{
	if (n->aborted)
		return;
	n->aborted = true;
	for (int g = 0; n->comms != NULL && g < n->schedule->n_groups; g++)
		for (int p = 0; p < PURPOSES; p++)
			if (n->comms[g][p] != NULL)
				n->api->ncclCommAbort(n->comms[g][p]);
	if (n->world != NULL)
		n->api->ncclCommAbort(n->world);
}

/* While the host waits for the GPU. */
static bool healthy(void *data, struct error *error)
{
	struct nccl *n = data;

	for (int g = 0; g < n->schedule->n_groups; g++)
		for (int p = 0; p < PURPOSES; p++) {
			void *comm = n->comms[g][p];
			int result = 0;

			if (comm == NULL || n->api->ncclCommGetAsyncError(comm, &result) != 0)
				continue;
			if (result != 0 && result != NCCL_IN_PROGRESS) {
				failed(n, comm, result, "a collective failed", error);
				abort_all(n);
				return false;
			}
		}
	return true;
}

/* --- collectives --- */

static int type_of(enum comm_element element)
{
	static const int types[] = {[COMM_FP32] = NCCL_FLOAT32,
		[COMM_INT64] = NCCL_INT64,
		[COMM_BYTE] = NCCL_UINT8,
		[COMM_BF16] = NCCL_BFLOAT16};

	return types[element];
}

static void *comm_for(const struct nccl *n, const struct collective *c)
{
	int purpose = c->kind == COLLECTIVE_ALL_GATHER ? GATHERS : REDUCES;

	for (int g = 0; g < n->schedule->n_groups; g++)
		if (n->schedule->groups[g].size == c->group.size &&
			n->schedule->groups[g].stride == c->group.stride)
			return n->comms[g][purpose];
	return NULL;
}

static int issue(const struct nccl *n, const struct collective *c, void *comm)
{
	size_t count = (size_t)c->count;
	int type = type_of(c->element);

	switch (c->kind) {
	case COLLECTIVE_ALL_GATHER:
		return n->api->ncclAllGather(c->input, c->output, count, type, comm, c->stream);
	case COLLECTIVE_REDUCE_SCATTER:
		return n->api->ncclReduceScatter(
			c->input, c->output, count, type, NCCL_SUM, comm, c->stream);
	case COLLECTIVE_ALL_REDUCE:
		return n->api->ncclAllReduce(
			c->output, c->output, count, type, NCCL_SUM, comm, c->stream);
	}
	return 0;
}

/* As the ordered transports count it: what a rank gets from others. */
static int64_t fetched(const struct collective *c)
{
	int64_t others = c->group.size - 1, own = node_slice(c, c->group.index).count;
	int64_t elements = c->kind == COLLECTIVE_ALL_REDUCE ? others * own + c->count - own
							    : others * c->count;

	return elements * comm_element_bytes(c->element);
}

static bool alone(struct nccl *n, const struct collective *c, struct error *error)
{
	if (c->input == c->output || c->kind == COLLECTIVE_ALL_REDUCE)
		return true;
	return cuda_check(n->device->api,
		n->device->api->cuMemcpyAsync((uint64_t)(uintptr_t)c->output,
			(uint64_t)(uintptr_t)c->input,
			(size_t)(c->count * comm_element_bytes(c->element)), c->stream),
		"cuMemcpyAsync", error);
}

static bool nccl_run(struct comm *comm, const struct collective *c)
{
	struct nccl *n = comm->state;
	struct error error = {0};
	bool ok;

	if (c->stream == NULL) {
		n->host.fault = comm->fault;
		return n->host.transport->run(&n->host, c);
	}
	if (c->group.size == 1) {
		ok = alone(n, c, &error);
	} else {
		void *of = comm_for(n, c);

		ok = of != NULL ? settle(n, of, issue(n, c, of), "a collective", &error)
				: error_set(&error, EXIT_CODE_INTERNAL,
					  "nccl: no communicator for operation %d", c->op);
		comm->counters.wire_bytes += fetched(c);
	}
	return ok || (error.message[0] != '\0' && segment_fault_error(n->segment, &error));
}

/* Not `settle`: nobody is left to tell. */
static void leave(struct nccl *n, void *comm)
{
	int result = n->api->ncclCommFinalize(comm);

	while (result == NCCL_IN_PROGRESS && !segment_aborted(n->segment))
		if (n->api->ncclCommGetAsyncError(comm, &result) != 0)
			break;
	n->api->ncclCommDestroy(comm);
}

static void nccl_finish(struct comm *comm)
{
	struct nccl *n = comm->state;
	struct arena arena = n->arena;

	if (segment_aborted(n->segment))
		abort_all(n);
	if (!n->aborted)
		nccl_buffers_close(&n->buffers);
	for (int g = 0; n->comms != NULL && g < n->schedule->n_groups && !n->aborted; g++)
		for (int p = 0; p < PURPOSES; p++)
			if (n->comms[g][p] != NULL)
				leave(n, n->comms[g][p]);
	if (n->world != NULL && !n->aborted)
		leave(n, n->world);
	n->device->healthy = NULL;
	comm_close(&n->host);
	arena_finish(&arena);
}

static const struct transport transport_nccl = {
	.name = "nccl", .run = nccl_run, .finish = nccl_finish};

bool comm_open_nccl(struct comm *comm, struct segment *segment, struct gpu *gpu,
	const struct schedule *schedule, struct error *error)
{
	const struct nccl_api *api = nccl_api(error);
	struct arena arena = {0};

	if (api == NULL)
		return false;
	struct nccl *n = ARENA_NEW(&arena, struct nccl);
	*n = (struct nccl){.arena = arena,
		.api = api,
		.host = *comm,
		.segment = segment,
		.device = &gpu->device,
		.schedule = schedule};
	comm->transport = &transport_nccl;
	comm->state = n;
	if (!meet(n, &gpu->mirror.heap, error) || !split(n, error) ||
		!register_buffers(n, &gpu->mirror.heap, error))
		return false;
	gpu->nccl_buffers = n->buffers.how;
	gpu->device.healthy = healthy;
	gpu->device.health_data = n;
	return true;
}
