/* Flat rings over all ranks of a group, through messages only: what NCCL would do, for comparison.
 * Sums are in another order for each chunk, so they are outside of what `plan` promises. */
#include "executor/transports/nodes/state.h"

static int position(const struct collective *c, int offset)
{
	int size = c->group.size;

	return ((c->group.index + offset) % size + size) % size;
}

static char *part_address(const struct collective *c, const void *base, int at)
{
	return (char *)base + nodes_part(c, at).first * comm_element_bytes(c->element);
}

/* One hop: to the next rank, from the one before. */
static bool pass_on(struct comm *comm, const struct collective *c, char *send, int64_t n_send,
	char *receive, int64_t n_receive)
{
	struct nodes *nodes = comm->state;

	nodes_begin(nodes);
	nodes_add(nodes, c, position(c, -1), false, n_receive)->data = receive;
	nodes_add(nodes, c, position(c, 1), true, n_send)->data = send;
	return nodes_await_all(comm, c);
}

/* A chunk's sum grows as it goes round, and ends at the rank that it belongs to. */
static bool reduce(struct comm *comm, const struct collective *c, const void *input, char *to)
{
	struct nodes *nodes = comm->state;
	int last = c->group.size - 2;
	char *sum = NULL;

	for (int s = 0; s <= last; s++) {
		int going = position(c, -1 - s), coming = position(c, -2 - s);
		int64_t n = nodes_part(c, coming).count;
		char *send = s == 0 ? part_address(c, input, going) : sum;

		sum = nodes->ring + s % 2 * nodes->link.window_bytes;
		if (!pass_on(comm, c, send, nodes_part(c, going).count, sum, n))
			return false;
		const void *const pair[] = {sum, part_address(c, input, coming)};
		comm_sum(comm, c, s == last ? to : sum, pair, 2, n);
	}
	return true;
}

/* Every chunk goes round; the own one is in the output already. */
static bool gather(struct comm *comm, const struct collective *c)
{
	for (int s = 0; s < c->group.size - 1; s++) {
		int going = position(c, -s), coming = position(c, -1 - s);

		if (!pass_on(comm, c, part_address(c, c->output, going), nodes_part(c, going).count,
			    part_address(c, c->output, coming), nodes_part(c, coming).count))
			return false;
	}
	return true;
}

bool comm_run_ring(struct comm *comm, const struct collective *c)
{
	struct nodes *nodes = comm->state;
	int own = c->group.index;
	int64_t bytes = nodes_part(c, own).count * comm_element_bytes(c->element);

	node_post(comm, &nodes->link, c);
	switch (c->kind) {
	case COLLECTIVE_ALL_GATHER:
		node_fetch(comm, part_address(c, c->output, own), c->input, bytes, true);
		return gather(comm, c);
	case COLLECTIVE_REDUCE_SCATTER:
		return reduce(comm, c, c->input, c->output);
	case COLLECTIVE_ALL_REDUCE:
		return reduce(comm, c, c->output, part_address(c, c->output, own)) &&
		       gather(comm, c);
	}
	return false;
}
