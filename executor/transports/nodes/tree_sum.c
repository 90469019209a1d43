/* Sums in the declared tree over ranks of several machines. */
#include <string.h>

#include "executor/transports/nodes/state.h"

static int left_size(int count)
{
	int left = 1;

	while (2 * left < count)
		left *= 2;
	return left;
}

static bool contains(struct members members, int first, int count)
{
	return members.first <= first && first + count <= members.end;
}

static bool is_apart(struct members members, int first, int count)
{
	return first + count <= members.first || first >= members.end;
}

static int count_subtrees(struct members members, int first, int count)
{
	int left = left_size(count);

	if (is_apart(members, first, count))
		return 0;
	if (contains(members, first, count))
		return 1;
	return count_subtrees(members, first, left) +
	       count_subtrees(members, first + left, count - left);
}

int nodes_subtrees(struct members members, int size)
{
	return count_subtrees(members, 0, size);
}

/* Says which members and elements the sums of one machine are made of. */
struct part {
	struct comm *comm;
	const struct collective *c;
	struct members own;
	int64_t at, n;
};

static char *sum_subtree(const struct part *part, int first, int count, char *to)
{
	struct comm *comm = part->comm;
	struct nodes *nodes = comm->state;
	int64_t size = comm_element_bytes(part->c->element);

	for (int i = 0; i < count; i++)
		nodes->link.sources[i] =
			node_input(&nodes->link, part->c, first + i) + part->at * size;
	comm_sum(comm, part->c, to, nodes->link.sources, count, part->n);
	comm->counters.wire_bytes += (count - 1) * part->n * size;
	return to + part->n * size;
}

/* Sums this machine's subtrees one after the other; returns where the next sum goes. */
static char *sum_subtrees(const struct part *part, int first, int count, char *to)
{
	int left = left_size(count);

	if (is_apart(part->own, first, count))
		return to;
	if (contains(part->own, first, count))
		return sum_subtree(part, first, count, to);
	to = sum_subtrees(part, first, left, to);
	return sum_subtrees(part, first + left, count - left, to);
}

void nodes_sum_subtrees(
	struct comm *comm, const struct collective *c, int64_t at, int64_t n, char *to)
{
	const struct nodes *nodes = comm->state;
	const struct part part = {
		comm, c, nodes_members(nodes, &c->group, nodes_own(nodes)), at, n};

	sum_subtrees(&part, 0, c->group.size, to);
}

/* A walk over the whole tree, whose leaves are the machines' subtrees in their order. */
struct fold {
	struct comm *comm;
	const struct collective *c;
	char *own; /* this machine's next sum */
	int64_t piece, n;
};

/* Returns the transfer that brings the sums of that machine. */
static struct transfer *transfer_from(struct nodes *nodes, int node)
{
	for (int i = 0; i < nodes->n_transfers; i++) {
		struct transfer *t = &nodes->transfers[i];

		if (!t->sends && nodes_of_rank(nodes, t->rank) == node)
			return t;
	}
	return NULL;
}

static char *next_partial(struct fold *f, int node)
{
	struct nodes *nodes = f->comm->state;
	int64_t bytes = f->n * comm_element_bytes(f->c->element);
	struct transfer *t = node != nodes_own(nodes) ? transfer_from(nodes, node) : NULL;

	if (t != NULL)
		return transfer_piece_data(t, f->piece) + t->cursor++ * bytes;
	f->own += bytes;
	return f->own - bytes;
}

/* Computes the sum over positions [first, first + count). It goes to `to`, or where it happens to
 * be when that is NULL; returns where it is. */
static char *fold(struct fold *f, int first, int count, char *to)
{
	const struct nodes *nodes = f->comm->state;
	int node = nodes_of_rank(nodes, comm_group_rank(&f->c->group, first));
	int left = left_size(count);

	if (contains(nodes_members(nodes, &f->c->group, node), first, count)) {
		char *partial = next_partial(f, node);

		if (to != NULL)
			node_fetch(f->comm, to, partial, f->n * comm_element_bytes(f->c->element),
				true);
		return partial;
	}
	char *low = fold(f, first, left, NULL);
	char *high = fold(f, first + left, count - left, NULL);
	const void *const pair[] = {low, high};
	to = to != NULL ? to : low;
	comm_sum(f->comm, f->c, to, pair, 2, f->n);
	return to;
}

void nodes_fold(struct comm *comm, const struct collective *c, char *own, int64_t piece, int64_t n,
	char *to)
{
	struct nodes *nodes = comm->state;
	struct fold f = {.comm = comm, .c = c, .own = own, .piece = piece, .n = n};

	for (int i = 0; i < nodes->n_transfers; i++)
		nodes->transfers[i].cursor = 0;
	fold(&f, 0, c->group.size, to);
}
