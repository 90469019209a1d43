/* Finds which members of a group are on which machine. */
#include "executor/transports/nodes/state.h"

int nodes_of_rank(const struct nodes *nodes, int rank)
{
	return rank / nodes->layout.per_node;
}

int nodes_own(const struct nodes *nodes)
{
	return nodes_of_rank(nodes, nodes->layout.rank);
}

static int first_position(const struct comm_group *group, int rank)
{
	int64_t position = rank > group->first ? ceil_div(rank - group->first, group->stride) : 0;

	return (int)min_i64(position, group->size);
}

struct members nodes_members(const struct nodes *nodes, const struct comm_group *group, int node)
{
	int per_node = nodes->layout.per_node;

	return (struct members){first_position(group, node * per_node),
		first_position(group, (node + 1) * per_node)};
}

int nodes_partner(const struct nodes *nodes, const struct comm_group *group, int node, int position)
{
	int theirs = nodes_of_rank(nodes, comm_group_rank(group, position));
	struct members there = nodes_members(nodes, group, node);
	int local = position - nodes_members(nodes, group, theirs).first;

	return there.first + local % (there.end - there.first);
}

struct slice_range nodes_part(const struct collective *c, int position)
{
	if (c->kind == COLLECTIVE_ALL_REDUCE)
		return node_slice(c, position);
	return (struct slice_range){position * c->count, c->count};
}
