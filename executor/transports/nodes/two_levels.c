/* Runs the collectives of nodes.h. */
#include "executor/transports/nodes/state.h"

#include <string.h>
#include <sys/mman.h>

/* --- who serves whom --- */

static int node_count(const struct nodes *nodes)
{
	return nodes->layout.ranks / nodes->layout.per_node;
}

/* Calls for every member on another machine whom this rank serves. */
static void for_served(struct comm *comm, const struct collective *c,
	void (*serve)(struct comm *comm, const struct collective *c, int position))
{
	const struct nodes *nodes = comm->state;
	int own = nodes_own(nodes);

	for (int i = 0; i < c->group.size; i++)
		if (nodes_of_rank(nodes, comm_group_rank(&c->group, i)) != own &&
			nodes_partner(nodes, &c->group, own, i) == c->group.index)
			serve(comm, c, i);
}

/* Calls for every member on another machine that serves this rank; there is one on each machine. */
static void for_serving(struct comm *comm, const struct collective *c,
	void (*served)(struct comm *comm, const struct collective *c, int position))
{
	const struct nodes *nodes = comm->state;

	for (int node = 0; node < node_count(nodes); node++) {
		struct members members = nodes_members(nodes, &c->group, node);

		if (node != nodes_own(nodes) && members.end > members.first)
			served(comm, c, nodes_partner(nodes, &c->group, node, c->group.index));
	}
}

static struct members own_members(const struct comm *comm, const struct collective *c)
{
	const struct nodes *nodes = comm->state;

	return nodes_members(nodes, &c->group, nodes_own(nodes));
}

/* --- sums --- */

static void send_sums(struct comm *comm, const struct collective *c, int position)
{
	struct nodes *nodes = comm->state;
	struct slice_range part = nodes_part(c, position);
	struct transfer *t = nodes_add(nodes, c, position, true, part.count);

	t->at = part.first;
	nodes_give_slots(nodes, t, nodes_subtrees(own_members(comm, c), c->group.size));
}

static void receive_sums(struct comm *comm, const struct collective *c, int position)
{
	struct nodes *nodes = comm->state;
	int node = nodes_of_rank(nodes, comm_group_rank(&c->group, position));
	struct transfer *t =
		nodes_add(nodes, c, position, false, nodes_part(c, c->group.index).count);

	nodes_give_slots(
		nodes, t, nodes_subtrees(nodes_members(nodes, &c->group, node), c->group.size));
}

static void use_up(struct nodes *nodes)
{
	for (int i = 0; i < nodes->n_transfers; i++)
		if (!nodes->transfers[i].sends)
			nodes->transfers[i].used++;
}

/* Sums this rank's part of all members' data: to[0..count). */
static bool reduce_part(struct comm *comm, const struct collective *c, char *to)
{
	struct nodes *nodes = comm->state;
	struct slice_range own = nodes_part(c, c->group.index);
	int64_t size = comm_element_bytes(c->element);
	const char *own_data = node_input(&nodes->link, c, c->group.index) + own.first * size;
	bool skips = comm_element_is_float(c->element) &&
		     fault_hits(&comm->fault, FAULT_SKIP_REDUCE, comm->rank, c->step);

	nodes_begin(nodes);
	for_serving(comm, c, receive_sums);
	for_served(comm, c, send_sums);
	for (int64_t piece = 0; piece * TRANSFER_PIECE < own.count; piece++) {
		int64_t at = piece * TRANSFER_PIECE;
		int64_t n = min_i64(TRANSFER_PIECE, own.count - at);

		if (!nodes_await_piece(comm, c, piece))
			return false;
		nodes_sum_subtrees(comm, c, own.first + at, n, nodes->next_slot);
		if (skips)
			node_fetch(comm, to + at * size, own_data + at * size, n * size, true);
		else
			nodes_fold(comm, c, nodes->next_slot, piece, n, to + at * size);
		use_up(nodes);
	}
	return nodes_await_all(comm, c);
}

/* --- gathers --- */

static char *output_at(const struct collective *c, int64_t element)
{
	return (char *)c->output + element * comm_element_bytes(c->element);
}

/* Returns what this rank contributes: its chunk, or the slice that it has reduced. */
static char *own_chunk(const struct collective *c)
{
	if (c->kind == COLLECTIVE_ALL_REDUCE)
		return output_at(c, nodes_part(c, c->group.index).first);
	return (char *)c->input;
}

static void send_chunk(struct comm *comm, const struct collective *c, int position)
{
	struct transfer *t =
		nodes_add(comm->state, c, position, true, nodes_part(c, c->group.index).count);

	t->data = own_chunk(c);
}

static void receive_chunk(struct comm *comm, const struct collective *c, int position)
{
	struct slice_range place = nodes_part(c, position);
	struct transfer *t = nodes_add(comm->state, c, position, false, place.count);

	t->data = output_at(c, place.first);
}

/* Copies the chunk of the member at `index` from the window of the one at `from`. */
static void copy_chunk(struct comm *comm, const struct collective *c, int index, int from)
{
	const struct nodes *nodes = comm->state;
	struct slice_range place = nodes_part(c, index);
	int64_t size = comm_element_bytes(c->element);
	const char *data = c->kind == COLLECTIVE_ALL_GATHER && from == index
				   ? node_input(&nodes->link, c, from)
				   : node_output(&nodes->link, c, from) + place.first * size;

	node_fetch(
		comm, output_at(c, place.first), data, place.count * size, from == c->group.index);
}

/* Exchanges with other machines what each rank has, then copies what the others of this machine
 * have or got. */
static bool gather(struct comm *comm, const struct collective *c)
{
	struct nodes *nodes = comm->state;
	struct members own = own_members(comm, c);

	nodes_begin(nodes);
	for_served(comm, c, receive_chunk);
	for_serving(comm, c, send_chunk);
	if (!nodes_await_all(comm, c))
		return false;
	node_say(comm, &nodes->link, PHASE_GATHERED);
	if (!node_await(comm, &nodes->link, c, own, PHASE_GATHERED))
		return false;
	for (int i = 0; i < c->group.size; i++) {
		int index = (c->group.index + i) % c->group.size;
		int from = index;

		if (index < own.first || index >= own.end)
			from = nodes_partner(nodes, &c->group, nodes_own(nodes), index);
		if (from != c->group.index || (index == from && c->kind == COLLECTIVE_ALL_GATHER))
			copy_chunk(comm, c, index, from);
	}
	return true;
}

/* Works in place: a slice of this rank's buffer is overwritten only after this machine has
 * summed. */
static bool all_reduce(struct comm *comm, const struct collective *c)
{
	struct nodes *nodes = comm->state;
	struct slice_range own = nodes_part(c, c->group.index);

	if (c->group.stride > 1 && comm_element_is_float(c->element) &&
		fault_hits(&comm->fault, FAULT_SKIP_REPLICATE, comm->rank, c->step))
		return true;
	if (!reduce_part(comm, c, output_at(c, own.first)))
		return false;
	node_say(comm, &nodes->link, PHASE_REDUCED);
	return node_await(comm, &nodes->link, c, own_members(comm, c), PHASE_REDUCED) &&
	       gather(comm, c);
}

/* --- exchanges --- */

/* Does this rank send to that position? */
static bool sends_to(const struct collective *c, int position)
{
	return c->kind == COLLECTIVE_ALL_TO_ALL || position == comm_group_behind(&c->group);
}

static bool receives_from(const struct collective *c, int position)
{
	return c->kind == COLLECTIVE_ALL_TO_ALL || position == comm_group_before(&c->group);
}

static void exchange_over_wire(
	struct comm *comm, const struct collective *c, int position, char *from, char *to)
{
	if (receives_from(c, position))
		nodes_add(comm->state, c, position, false, comm_received(c, position))->data = to;
	if (sends_to(c, position))
		nodes_add(comm->state, c, position, true, comm_sent(c, position))->data = from;
}

/* Fetches what a member of this machine has for the caller. */
static bool fetch_given(struct comm *comm, const struct collective *c, int position, char *to)
{
	struct nodes *nodes = comm->state;
	const char *data = node_input(&nodes->link, c, position);

	if (c->kind == COLLECTIVE_ALL_TO_ALL && !node_given(comm, &nodes->link, c, position, &data))
		return false;
	node_fetch(comm, to, data, comm_received(c, position) * comm_element_bytes(c->element),
		position == c->group.index);
	return true;
}

/* Exchanges data between each pair of ranks by itself, because nothing is gathered or summed on the
 * way. In an all-to-all the members' chunks lie one behind the other; in a send-receive there is
 * only one. */
static bool exchange(struct comm *comm, const struct collective *c)
{
	struct nodes *nodes = comm->state;
	int64_t size = comm_element_bytes(c->element);
	char *from = (char *)c->input, *to = c->output;
	bool ok = true;

	nodes_begin(nodes);
	for (int i = 0; i < c->group.size && ok; i++) {
		if (nodes_of_rank(nodes, comm_group_rank(&c->group, i)) != nodes_own(nodes))
			exchange_over_wire(comm, c, i, from, to);
		else if (receives_from(c, i))
			ok = fetch_given(comm, c, i, to);
		if (c->kind == COLLECTIVE_ALL_TO_ALL) {
			from += comm_sent(c, i) * size;
			to += comm_received(c, i) * size;
		}
	}
	return ok && nodes_await_all(comm, c);
}

/* --- the transport --- */

static bool move(struct comm *comm, const struct collective *c)
{
	switch (c->kind) {
	case COLLECTIVE_ALL_GATHER:
		return gather(comm, c);
	case COLLECTIVE_REDUCE_SCATTER:
		return reduce_part(comm, c, c->output);
	case COLLECTIVE_ALL_REDUCE:
		return all_reduce(comm, c);
	case COLLECTIVE_ALL_TO_ALL:
	case COLLECTIVE_SEND_RECV:
		return exchange(comm, c);
	}
	return false;
}

static bool run_over_nodes(struct comm *comm, const struct collective *c)
{
	struct nodes *nodes = comm->state;
	struct node_link *link = &nodes->link;
	struct members own = own_members(comm, c);

	node_post(comm, link, c);
	if (!node_await(comm, link, c, own, PHASE_POSTED) || !node_agree(comm, link, c, own) ||
		!move(comm, c))
		return false;
	node_say(comm, link, PHASE_DONE);
	return node_await(comm, link, c, own, PHASE_DONE);
}

/* Gathers into private memory by way of the window, part by part, because the others of this
 * machine must be able to read what was gathered. */
static bool gather_through_bounce(struct comm *comm, const struct collective *c)
{
	struct nodes *nodes = comm->state;
	int64_t size = comm_element_bytes(c->element);
	int64_t most = max_i64(NODES_BOUNCE_BYTES / size / c->group.size, 1);
	struct collective part = *c;

	part.output = nodes->bounce;
	for (int64_t at = 0; at < c->count; at += most) {
		part.count = min_i64(most, c->count - at);
		part.input = (const char *)c->input + at * size;
		if (!run_over_nodes(comm, &part))
			return false;
		for (int i = 0; i < c->group.size; i++)
			memcpy(output_at(c, i * c->count + at),
				nodes->bounce + i * part.count * size, (size_t)(part.count * size));
	}
	return true;
}

static bool nodes_run(struct comm *comm, const struct collective *c)
{
	struct nodes *nodes = comm->state;
	struct members own = own_members(comm, c);
	int64_t bytes = c->group.size * c->count * comm_element_bytes(c->element);

	if (own.end - own.first == c->group.size)
		return comm_run_in_node(comm, &nodes->link, c);
	if (c->kind == COLLECTIVE_ALL_GATHER && !node_reaches(&nodes->link, c->output, bytes))
		return gather_through_bounce(comm, c);
	return run_over_nodes(comm, c);
}

static void nodes_finish(struct comm *comm)
{
	struct nodes *nodes = comm->state;
	struct arena arena = nodes->arena;

	wire_finish(&nodes->wire);
	munmap(nodes->slots, (size_t)nodes->slots_bytes);
	arena_finish(&arena);
}

static const struct transport transport_nodes = {.name = "nodes",
	.run = nodes_run,
	.send = nodes_send,
	.receive = nodes_receive,
	.taken = nodes_taken,
	.progress = nodes_progress,
	.finish = nodes_finish};

/* Reserves address space, whose pages come when they are touched; returns NULL when there is
 * none. */
static char *reserve(int64_t bytes, struct error *error)
{
	void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory != MAP_FAILED)
		return memory;
	error_set(error, EXIT_CODE_ENVIRONMENT, "no room for messages of %lld bytes",
		(long long)bytes);
	return NULL;
}

/* Returns the bytes that suffice for the worst of all groups. */
static int64_t bytes_of_slots(const struct layout *layout)
{
	const int64_t piece = TRANSFER_PIECE * (int64_t)sizeof(int64_t);
	int64_t subtrees = 2;

	for (int n = layout->per_node; n > 1; n /= 2)
		subtrees += 2;
	return (2 * layout->ranks * TRANSFER_DEPTH + 1) * subtrees * piece;
}

bool comm_open_nodes(struct comm *comm, const struct layout *layout, struct segment *shared,
	struct segment *control, const struct wire *wire, const struct kernels *kernels,
	struct kernel_context *context, struct error *error)
{
	struct arena arena = {0};
	struct nodes *nodes = ARENA_NEW(&arena, struct nodes);
	int first_rank = layout->rank / layout->per_node * layout->per_node;

	nodes->layout = *layout;
	node_link_open(
		&nodes->link, shared, control, layout->rank, layout->ranks, first_rank, &arena);
	nodes->bounce = nodes->link.window + nodes->link.window_bytes - NODES_BOUNCE_BYTES;
	nodes->transfers = ARENA_ARRAY(&arena, struct transfer, 2 * layout->ranks);
	nodes->wire = *wire;
	nodes->slots_bytes = bytes_of_slots(layout);
	nodes->slots = reserve(nodes->slots_bytes, error);
	nodes->arena = arena;
	*comm = (struct comm){.transport = &transport_nodes,
		.rank = layout->rank,
		.ranks = layout->ranks,
		.kernels = kernels,
		.context = context,
		.fault = {.rank = -1, .step = -1},
		.state = nodes};
	return nodes->slots != NULL;
}
