/* The shm transport: ranks are processes of one machine that read in each other's windows.
 *
 * In a collective each rank posts what it is about to do, waits until all members have posted, and
 * compares. Then it fetches its output from the windows of the others, or reduces its own slice
 * straight from them. It says that it is done, and waits until all are: only then may its own
 * memory change. Nothing is copied in order to be sent. */
#include "executor/transports/node.h"

struct shm {
	struct arena arena;
	struct node_link link;
};

static bool is_operation(const struct collective *c)
{
	return c->op >= 0;
}

static void all_gather(struct comm *comm, struct node_link *link, const struct collective *c)
{
	int64_t size = comm_element_bytes(c->element), bytes = c->count * size, late = 0;

	if (is_operation(c) && c->step > 0 &&
		fault_hits(&comm->fault, FAULT_STALE_GATHER, comm->rank, c->step))
		return;
	if (is_operation(c) &&
		fault_hits(&comm->fault, FAULT_WRONG_SHARD_OFFSET, comm->rank, c->step))
		late = min_i64(size, bytes);
	/* Every rank starts at another peer, so that they do not all read one memory at once. */
	for (int i = 0; i < c->group.size; i++) {
		int index = (c->group.index + i) % c->group.size;

		node_fetch(comm, (char *)c->output + index * bytes,
			node_input(link, c, index) + late, bytes - late, i == 0);
	}
}

/* Fetches the chunk that each member has for this rank. */
static bool all_to_all(struct comm *comm, struct node_link *link, const struct collective *c)
{
	int64_t size = comm_element_bytes(c->element);
	char *to = c->output;

	for (int i = 0; i < c->group.size; i++) {
		int64_t bytes = comm_received(c, i) * size;
		const char *from;

		if (!node_given(comm, link, c, i, &from))
			return false;
		node_fetch(comm, to, from, bytes, i == c->group.index);
		to += bytes;
	}
	return true;
}

/* Computes to[0..n) = the sum over the group of elements [first, first + n) of the members'
 * inputs. */
static void reduce(struct comm *comm, struct node_link *link, const struct collective *c, void *to,
	int64_t first, int64_t n)
{
	int64_t size = comm_element_bytes(c->element);

	if (n <= 0)
		return;
	for (int i = 0; i < c->group.size; i++)
		link->sources[i] = node_input(link, c, i) + first * size;
	if (comm_element_is_float(c->element) &&
		fault_hits(&comm->fault, FAULT_SKIP_REDUCE, comm->rank, c->step))
		node_fetch(comm, to, link->sources[c->group.index], n * size, true);
	else
		comm_sum(comm, c, to, link->sources, c->group.size, n);
	comm->counters.wire_bytes += (c->group.size - 1) * n * size;
}

/* Works in place: each member reduces its own slice, which no other member reads before
 * PHASE_REDUCED, and then fetches the other slices from the members that reduced them. */
static bool all_reduce(struct comm *comm, struct node_link *link, const struct collective *c)
{
	const struct members all = {0, c->group.size};
	int64_t size = comm_element_bytes(c->element);
	struct slice_range own = node_slice(c, c->group.index);

	if (c->group.stride > 1 && comm_element_is_float(c->element) &&
		fault_hits(&comm->fault, FAULT_SKIP_REPLICATE, comm->rank, c->step))
		return true;
	reduce(comm, link, c, (char *)c->output + own.first * size, own.first, own.count);
	node_say(comm, link, PHASE_REDUCED);
	if (!node_await(comm, link, c, all, PHASE_REDUCED))
		return false;
	for (int i = 1; i < c->group.size; i++) {
		int index = (c->group.index + i) % c->group.size;
		struct slice_range slice = node_slice(c, index);

		node_fetch(comm, (char *)c->output + slice.first * size,
			node_input(link, c, index) + slice.first * size, slice.count * size, false);
	}
	return true;
}

static bool move(struct comm *comm, struct node_link *link, const struct collective *c)
{
	switch (c->kind) {
	case COLLECTIVE_ALL_GATHER:
		all_gather(comm, link, c);
		return true;
	case COLLECTIVE_REDUCE_SCATTER:
		reduce(comm, link, c, c->output, c->group.index * c->count, c->count);
		return true;
	case COLLECTIVE_ALL_REDUCE:
		return all_reduce(comm, link, c);
	case COLLECTIVE_ALL_TO_ALL:
		return all_to_all(comm, link, c);
	case COLLECTIVE_SEND_RECV:
		node_fetch(comm, c->output, node_input(link, c, comm_group_before(&c->group)),
			c->count * comm_element_bytes(c->element), c->group.size == 1);
		return true;
	}
	return false;
}

bool comm_run_in_node(struct comm *comm, struct node_link *link, const struct collective *c)
{
	const struct members all = {0, c->group.size};

	node_post(comm, link, c);
	if (!node_await(comm, link, c, all, PHASE_POSTED) || !node_agree(comm, link, c, all))
		return false;
	comm->assembled = clock_now();
	if (!move(comm, link, c))
		return false;
	node_say(comm, link, PHASE_DONE);
	return node_await(comm, link, c, all, PHASE_DONE);
}

static bool shm_run(struct comm *comm, const struct collective *c)
{
	struct shm *shm = comm->state;

	return comm_run_in_node(comm, &shm->link, c);
}

static bool shm_send(struct comm *comm, const struct comm_message *message)
{
	struct shm *shm = comm->state;

	return node_send(comm, &shm->link, message);
}

static bool shm_receive(struct comm *comm, const struct comm_message *message)
{
	struct shm *shm = comm->state;

	return node_receive(comm, &shm->link, message);
}

static uint32_t shm_taken(struct comm *comm, enum direction direction)
{
	struct shm *shm = comm->state;

	return node_taken(comm, &shm->link, direction);
}

static void shm_finish(struct comm *comm)
{
	struct shm *shm = comm->state;
	struct arena arena = shm->arena;

	arena_finish(&arena);
}

static const struct transport transport_shm = {.name = "shm",
	.run = shm_run,
	.send = shm_send,
	.receive = shm_receive,
	.taken = shm_taken,
	.finish = shm_finish};

bool comm_open_shm(struct comm *comm, struct segment *segment, const struct kernels *kernels,
	struct kernel_context *context, struct error *error)
{
	const struct job *job = &segment->header->job;
	struct arena arena = {0};
	struct shm *shm;

	if (job->ranks > KERNELS_TREE_SOURCES)
		return error_set(error, EXIT_CODE_USAGE, "%d ranks on one machine, at most %d",
			job->ranks, KERNELS_TREE_SOURCES);
	shm = ARENA_NEW(&arena, struct shm);
	node_link_open(&shm->link, segment, segment, segment->rank, job->ranks, 0, &arena);
	shm->arena = arena;
	*comm = (struct comm){.transport = &transport_shm,
		.rank = segment->rank,
		.ranks = job->ranks,
		.kernels = kernels,
		.context = context,
		.fault = {.rank = -1, .step = -1},
		.state = shm};
	return true;
}
