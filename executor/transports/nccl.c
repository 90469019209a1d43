/* The `nccl` transport: every rank has a GPU, and collectives are NCCL's, on the stream of the
 * operation.
 *
 * Communicators are split from one over the world, one for each group of the schedule: gathers and
 * reductions have groups of their own there, because operations of one communicator run one after
 * the other. Reductions are sums (the division is in the loss gradient). Nothing blocks: what NCCL
 * reports later is looked for while the host waits, and a fault of any rank aborts all
 * communicators, which ends what waits on the GPUs. What lies in host memory goes on through the
 * transport below, which also carries the identifier that ranks meet by. */
#include "executor/transports/transports.h"

struct nccl {
	struct arena arena;
	struct comm host; /* the transport below */
	struct device_cuda *device;
	struct nccl_world world;
	struct nccl_buffers buffers;
};

/* Checks, while the host waits for the GPU, that no rank has failed. */
static bool healthy(void *data, struct error *error)
{
	struct nccl *n = data;

	return !segment_aborted(n->world.segment) && nccl_world_healthy(&n->world, error);
}

/* --- collectives --- */

/* Counts the bytes that a rank gets from others, as the ordered transports count them. */
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
		ok = nccl_world_run(&n->world, c, &error);
		comm->counters.wire_bytes += fetched(c);
	}
	return ok || (error.message[0] != '\0' && segment_fault_error(n->world.segment, &error));
}

static void nccl_finish(struct comm *comm)
{
	struct nccl *n = comm->state;
	struct arena arena = n->arena;

	if (!n->world.aborted && !segment_aborted(n->world.segment))
		nccl_buffers_close(&n->buffers, &n->world);
	nccl_world_close(&n->world);
	n->device->healthy = NULL;
	comm_close(&n->host);
	arena_finish(&arena);
}

static const struct transport over_nccl = {.name = "nccl", .run = nccl_run, .finish = nccl_finish};

/* Says with which NCCL and settings the run is made: in the measurement, and as a note when it
 * begins. */
static void tell(struct nccl *n, struct gpu *gpu)
{
	struct text line = {0};

	gpu->nccl = nccl_config_say(
		n->world.api, &n->world.segment->header->job.nccl, &gpu->device.arena);
	if (n->world.rank == 0) {
		text_printf(&line, "NCCL %s\n", gpu->nccl);
		segment_leave_notes(n->world.segment, &line);
	}
	text_finish(&line);
}

static bool open_nccl(struct comm *comm, struct segment *segment, struct gpu *gpu,
	const struct schedule *schedule, struct error *error)
{
	struct heap *heap = &gpu->mirror.heap;
	struct arena arena = {0};
	struct nccl *n = ARENA_NEW(&arena, struct nccl);

	*n = (struct nccl){.arena = arena,
		.host = *comm,
		.device = &gpu->device,
		.world = {.segment = segment}};
	comm->transport = &over_nccl;
	comm->state = n;
	if (!gpu_check_apart(gpu->device.api, gpu->device.ordinal, &n->host, heap, gpu->per_node,
		    &n->arena, error) ||
		!nccl_world_open(&n->world, segment, &n->host, heap, schedule->groups,
			schedule->n_groups, &gpu->device.patience, &n->arena, error) ||
		!nccl_buffers_open(&n->buffers, &n->world, nccl_buffers_of(n->device), &n->host,
			heap, &n->arena, error))
		return false;
	gpu->nccl_buffers = n->buffers.how;
	tell(n, gpu);
	gpu->device.healthy = healthy;
	gpu->device.health_data = n;
	return true;
}

static bool offer_memory(struct device_cuda *device, struct error *error)
{
	const struct nccl_api *api = nccl_api(error);
	int version = 0;

	if (api == NULL)
		return false;
	nccl_buffers_prepare(device, api);
	/* Older versions ignore NCCL_LAUNCH_ORDER_IMPLICIT, so their collectives run one at a
	 * time. */
	device->one_at_a_time = api->ncclGetVersion(&version) != 0 || version < NCCL_ORDERS;
	return true;
}

extern const struct gpu_transport transport_nccl;
const struct gpu_transport transport_nccl = {
	.name = "nccl", .apart = true, .prepare = offer_memory, .open = open_nccl};
