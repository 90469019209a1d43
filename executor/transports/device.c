/* The `device` transport: ranks are threads of one process that share a GPU.
 *
 * Each rank has streams of its own. In a collective a rank shows where its data lies, with an event
 * that says when it may be read. When all have done so, its stream waits for all those events, and
 * the copies or the sum over every rank's memory are enqueued. The rank then shows an event that
 * says when this is done, and its stream waits for those of the others too, because only then may
 * its own memory change. The threads meet on the host three times, and never wait for the GPU. Sums
 * are made in the declared tree, so bits are those of the other ordered transports. */
#include "executor/transports/transports.h"
#include <string.h>

struct shared_gpu {
	struct arena arena;
	struct node_link link;
	struct rank_threads *threads;
	struct device_cuda *device;
	const struct kernels *kernels; /* the device's, not the host's */
	struct kernel_context *context;
	const void **sources;       /* [ranks] */
	struct pack_segment *parts; /* [ranks] */
	char *digits; /* in device memory: what an exact sum gathers, [ranks] of struct exact_sum */
};

static struct shared_slot *slot_of(const struct shared_gpu *s, int rank)
{
	return &s->threads->slots[rank][s->link.sequence % SHARED_SLOTS];
}

static const char *shown(const struct shared_gpu *s, const struct collective *c, int index)
{
	return slot_of(s, comm_group_rank(&c->group, index))->address;
}

/* Reports faults of the driver as all other faults are reported. */
static bool ok(struct comm *comm, bool done, struct error *error)
{
	struct shared_gpu *s = comm->state;

	return done || (error->message[0] != '\0' && segment_fault_error(s->link.control, error));
}

static bool record(struct shared_gpu *s, void *event, void *stream, struct error *error)
{
	return cuda_check(s->device->api, s->device->api->cuEventRecord(event, stream),
		"cuEventRecord", error);
}

/* Makes the stream wait for the others' events. */
static bool wait_for_others(
	struct comm *comm, const struct collective *c, bool read, struct error *error)
{
	struct shared_gpu *s = comm->state;
	const struct cuda_api *api = s->device->api;

	for (int i = 0; i < c->group.size; i++) {
		const struct shared_slot *slot = slot_of(s, comm_group_rank(&c->group, i));

		if (i != c->group.index && !cuda_check(api,
						   api->cuStreamWaitEvent(c->stream,
							   read ? slot->read : slot->ready, 0),
						   "cuStreamWaitEvent", error))
			return false;
	}
	return true;
}

static bool fetch(struct comm *comm, const struct collective *c, void *to, const void *from,
	int64_t bytes, bool own, struct error *error)
{
	const struct cuda_api *api = ((struct shared_gpu *)comm->state)->device->api;

	if (!own)
		comm->counters.wire_bytes += bytes;
	return bytes <= 0 || to == from ||
	       cuda_check(api,
		       api->cuMemcpyAsync((uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from,
			       (size_t)bytes, c->stream),
		       "cuMemcpyAsync", error);
}

/* Notes on the clock that all have come: from here on the collective is held. */
static bool note_arrival(struct comm *comm, const struct collective *c, struct error *error)
{
	struct shared_gpu *s = comm->state;

	return c->clock == NULL || device_stamp(s->device, c->clock, c->stream, error);
}

/* --- what a round does when every rank's data may be read --- */

/* Adds one member's part to what a single kernel fetches from all: elements [offset, offset +
 * count) of the output lie `first` elements behind what that member shows. */
static void add_part(struct comm *comm, const struct collective *c, int *n, int index,
	int64_t first, int64_t offset, int64_t count)
{
	struct shared_gpu *s = comm->state;
	int64_t size = comm_element_bytes(c->element);
	char *from = (char *)(uintptr_t)shown(s, c, index) + first * size;

	if (index != c->group.index)
		comm->counters.wire_bytes += count * size;
	if (count > 0 && from != (char *)c->output + offset * size)
		s->parts[(*n)++] = (struct pack_segment){from, offset, count};
}

static void fetch_parts(struct comm *comm, const struct collective *c, int n)
{
	struct shared_gpu *s = comm->state;

	s->context->stream = c->stream;
	s->kernels->device->pack(
		s->context, comm_element_dtype(c->element), c->output, s->parts, n, false);
}

static bool pull_gather(struct comm *comm, const struct collective *c, struct error *error)
{
	const struct shared_gpu *s = comm->state;
	int64_t bytes = c->count * comm_element_bytes(c->element);
	int n = 0;

	if (comm_element_is_float(c->element)) {
		for (int i = 0; i < c->group.size; i++)
			add_part(comm, c, &n, i, 0, i * c->count, c->count);
		fetch_parts(comm, c, n);
		return true;
	}

	for (int i = 0; i < c->group.size; i++) {
		int index = (c->group.index + i) % c->group.size;

		if (!fetch(comm, c, (char *)c->output + index * bytes, shown(s, c, index), bytes,
			    i == 0, error))
			return false;
	}
	return true;
}

/* Returns a part of the workspace for each stream: the kernel's list of sources lies there until it
 * has run, and collectives of several streams may be under way. */
static char *workspace_of(const struct shared_gpu *s, const void *stream)
{
	const int64_t part = s->context->workspace_bytes / STREAM_COUNT / 256 * 256;
	int i = 0;

	while (i + 1 < STREAM_COUNT && s->device->streams[i] != stream)
		i++;
	return (char *)s->context->workspace + i * part;
}

/* Computes to[0..n) = the sum of elements [first, first + n). */
static void sum(struct comm *comm, const struct collective *c, void *to, int64_t first, int64_t n)
{
	struct shared_gpu *s = comm->state;
	int64_t size = comm_element_bytes(c->element);
	void *workspace = s->context->workspace;

	for (int i = 0; i < c->group.size; i++)
		s->sources[i] = shown(s, c, i) + first * size;
	s->context->stream = c->stream;
	s->context->workspace = workspace_of(s, c->stream);
	s->kernels->tree_reduce(
		s->context, comm_element_dtype(c->element), to, s->sources, c->group.size, n);
	s->context->workspace = workspace;
	comm->counters.wire_bytes += (c->group.size - 1) * n * size;
}

static bool pull_reduce(struct comm *comm, const struct collective *c, struct error *error)
{
	(void)error;
	sum(comm, c, c->output, c->group.index * c->count, c->count);
	return true;
}

static bool pull_own_slice(struct comm *comm, const struct collective *c, struct error *error)
{
	struct slice_range own = node_slice(c, c->group.index);

	(void)error;
	if (own.count > 0)
		sum(comm, c, (char *)c->output + own.first * comm_element_bytes(c->element),
			own.first, own.count);
	return true;
}

/* Fetches floats only; integers are gathered (pull_digits). */
static bool pull_slices(struct comm *comm, const struct collective *c, struct error *error)
{
	int n = 0;

	(void)error;
	for (int i = 0; i < c->group.size; i++) {
		struct slice_range slice = node_slice(c, i);

		add_part(comm, c, &n, i, slice.first, slice.first, slice.count);
	}
	fetch_parts(comm, c, n);
	return true;
}

static bool pull_digits(struct comm *comm, const struct collective *c, struct error *error)
{
	const struct shared_gpu *s = comm->state;
	int64_t bytes = c->count * comm_element_bytes(c->element);

	for (int i = 0; i < c->group.size; i++)
		if (!fetch(comm, c, s->digits + i * bytes, shown(s, c, i), bytes,
			    i == c->group.index, error))
			return false;
	return true;
}

/* --- rounds --- */

static bool run_round(struct comm *comm, const struct collective *c,
	bool (*pull)(struct comm *, const struct collective *, struct error *))
{
	const struct members all = {0, c->group.size};
	struct shared_gpu *s = comm->state;
	struct error error = {0};

	/* The slot is free, because all ranks were done with the last round but one. */
	struct shared_slot *mine =
		&s->threads->slots[comm->rank][(s->link.sequence + 1) % SHARED_SLOTS];
	mine->address = c->kind == COLLECTIVE_ALL_REDUCE ? c->output : c->input;
	if (!ok(comm, record(s, mine->ready, c->stream, &error), &error))
		return false;
	node_post(comm, &s->link, c);
	if (!node_await(comm, &s->link, c, all, PHASE_POSTED) ||
		!node_agree(comm, &s->link, c, all))
		return false;
	if (!ok(comm,
		    wait_for_others(comm, c, false, &error) && note_arrival(comm, c, &error) &&
			    pull(comm, c, &error) && record(s, mine->read, c->stream, &error),
		    &error))
		return false;
	node_say(comm, &s->link, PHASE_REDUCED);
	if (!node_await(comm, &s->link, c, all, PHASE_REDUCED) ||
		!ok(comm, wait_for_others(comm, c, true, &error), &error))
		return false;
	node_say(comm, &s->link, PHASE_DONE);
	return node_await(comm, &s->link, c, all, PHASE_DONE);
}

/* Integers are gathered first, then added up. */
static bool sum_digits(struct comm *comm, const struct collective *c)
{
	struct shared_gpu *s = comm->state;
	struct error error = {0};
	void *output = c->output;
	int64_t count = c->count, sources = c->group.size;
	void *arguments[] = {&output, &s->digits, &sources, &count};

	return run_round(comm, c, pull_digits) &&
	       ok(comm,
		       device_launch(
			       s->device, "sum_integers", 1, 128, arguments, c->stream, &error),
		       &error);
}

static bool device_run(struct comm *comm, const struct collective *c)
{
	struct shared_gpu *s = comm->state;
	struct collective second = *c;

	second.clock = NULL; /* the ranks have met in the first round already */
	if (c->stream == NULL)
		return comm_run_in_node(comm, &s->link, c);
	switch (c->kind) {
	case COLLECTIVE_ALL_GATHER:
		return run_round(comm, c, pull_gather);
	case COLLECTIVE_REDUCE_SCATTER:
		return run_round(comm, c, pull_reduce);
	case COLLECTIVE_ALL_REDUCE:
		if (c->element == COMM_INT64)
			return sum_digits(comm, c);
		return run_round(comm, c, pull_own_slice) && run_round(comm, &second, pull_slices);
	case COLLECTIVE_ALL_TO_ALL:
	case COLLECTIVE_SEND_RECV:
		break;
	}
	return false;
}

static void device_finish(struct comm *comm)
{
	struct shared_gpu *s = comm->state;
	struct arena arena = s->arena;

	for (int i = 0; i < SHARED_SLOTS; i++) {
		const struct shared_slot *slot = &s->threads->slots[comm->rank][i];

		if (slot->ready != NULL)
			s->device->api->cuEventDestroy(slot->ready);
		if (slot->read != NULL)
			s->device->api->cuEventDestroy(slot->read);
	}
	device_free(s->device, s->digits);
	arena_finish(&arena);
}

static const struct transport shared_device = {
	.name = "device", .run = device_run, .finish = device_finish};

static bool make_events(struct shared_gpu *s, int rank, struct error *error)
{
	const struct cuda_api *api = s->device->api;

	for (int i = 0; i < SHARED_SLOTS; i++) {
		struct shared_slot *slot = &s->threads->slots[rank][i];

		if (!cuda_check(api, api->cuEventCreate(&slot->ready, CUDA_EVENT_DISABLE_TIMING),
			    "cuEventCreate", error) ||
			!cuda_check(api, api->cuEventCreate(&slot->read, CUDA_EVENT_DISABLE_TIMING),
				"cuEventCreate", error))
			return false;
	}
	return true;
}

static bool open_shared(struct comm *comm, struct segment *segment, struct gpu *gpu,
	const struct schedule *schedule, struct error *error)
{
	struct device_cuda *device = &gpu->device;
	int ranks = segment->header->job.ranks;
	const struct comm host = *comm;
	struct arena arena = {0};
	struct shared_gpu *s = ARENA_NEW(&arena, struct shared_gpu);

	(void)schedule;
	/* The old transport must go first, because both would count collectives on one board. */
	comm_close(comm);
	*comm = host;

	node_link_open(&s->link, segment, segment, segment->rank, ranks, 0, &arena);
	s->threads = segment->threads;
	s->device = device;
	s->kernels = device->kernels;
	s->context = &gpu->background;
	s->sources = ARENA_ARRAY(&arena, const void *, ranks);
	s->parts = ARENA_ARRAY(&arena, struct pack_segment, ranks);
	s->arena = arena;
	comm->transport = &shared_device;
	comm->state = s;
	return device_allocate(device, ranks * (int64_t)sizeof(struct exact_sum),
		       "sums of the ranks", &s->digits, error) &&
	       make_events(s, segment->rank, error);
}

extern const struct gpu_transport transport_device;
const struct gpu_transport transport_device = {
	.name = "device", .ordered = true, .paced = true, .open = open_shared};
