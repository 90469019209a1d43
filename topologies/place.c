/* Where groups of ranks lie on the nodes, and how many devices are used. */
#include <assert.h>

#include "topologies/topologies.h"

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
	while (b != 0) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* Groups tile the ranks in blocks of size * stride consecutive ranks: block k holds `stride`
 * groups, interleaved; group j of it is {k * block + j + i * stride}. How a block lies on the nodes
 * depends only on k * block modulo the node size, so a few blocks stand for all. */
struct tiling {
	int64_t size, stride;
	int64_t block;    /* ranks in a block */
	int64_t node;     /* ranks in a node */
	int64_t n_blocks; /* whole blocks in the topology */
	int64_t n_nodes;
};

/* Grows `nodes` and `ranks_per_node` to what the group that starts at rank `first` needs. */
static void place_group(const struct tiling *tiling, int64_t first, struct placement *placement)
{
	int64_t nodes = 0;

	for (int64_t i = 0; i < tiling->size;) {
		int64_t rank = first + i * tiling->stride;
		int64_t end = (rank / tiling->node + 1) * tiling->node;
		int64_t here = min_i64(ceil_div(end - rank, tiling->stride), tiling->size - i);

		placement->ranks_per_node = max_i64(placement->ranks_per_node, here);
		nodes++;
		i += here;
	}
	placement->nodes = max_i64(placement->nodes, nodes);
}

/* How many groups have a rank on this node. */
static int64_t groups_on_node(const struct tiling *tiling, int64_t node)
{
	int64_t start = node * tiling->node, end = start + tiling->node;
	int64_t groups = 0;

	for (int64_t k = start / tiling->block; k * tiling->block < end && k < tiling->n_blocks;
		k++) {
		int64_t from = max_i64(k * tiling->block, start);
		int64_t to = min_i64((k + 1) * tiling->block, end);

		groups += min_i64(to - from, tiling->stride);
	}
	return groups;
}

/* Sizes that straddle nodes unevenly: the worst group and the busiest node. */
static void place_uneven(const struct tiling *tiling, struct placement *placement)
{
	int64_t period = tiling->node / greatest_common_divisor(tiling->block, tiling->node);
	int64_t node_period = tiling->block / greatest_common_divisor(tiling->block, tiling->node);

	for (int64_t k = 0; k < min_i64(period, tiling->n_blocks); k++)
		for (int64_t j = 0; j < tiling->stride; j++)
			place_group(tiling, k * tiling->block + j, placement);
	for (int64_t node = 0; node < min_i64(node_period, tiling->n_nodes); node++)
		placement->groups_per_node =
			max_i64(placement->groups_per_node, groups_on_node(tiling, node));
}

/* A host holds whole blocks, or a group's ranks of one node do not share it. */
static bool over_hosts(const struct topology *topology, const struct tiling *tiling,
	const struct placement *placement)
{
	int64_t host = topology->fabric.host_devices;

	return host > 0 && placement->ranks_per_node > 1 && host % tiling->block != 0;
}

struct placement topology_place(const struct topology *topology, int64_t size, int64_t stride)
{
	int64_t devices = topology_devices(topology), node = topology->devices_per_node;
	struct placement placement = {.ranks = size};
	struct tiling tiling = {.size = size, .stride = stride, .node = node};

	assert(size >= 1 && stride >= 1 && (size == 1 || stride <= (devices - 1) / (size - 1)));
	/* The two ends of a pipeline are further apart than half of all ranks. */
	stride = tiling.stride = min_i64(stride, devices / size);
	tiling.block = size * stride;
	tiling.n_blocks = devices / tiling.block;
	tiling.n_nodes = topology->nodes;
	if (node % tiling.block == 0) { /* inside a node */
		placement.nodes = 1;
		placement.ranks_per_node = size;
		placement.groups_per_node = node / size;
	} else if (stride % node == 0) { /* one rank per node */
		placement.nodes = size;
		placement.ranks_per_node = 1;
		placement.groups_per_node = node;
	} else if (node % stride == 0 &&
		   tiling.block % node == 0) { /* the same share of each node */
		placement.ranks_per_node = node / stride;
		placement.nodes = tiling.block / node;
		placement.groups_per_node = stride;
	} else {
		place_uneven(&tiling, &placement);
	}
	placement.over_hosts = over_hosts(topology, &tiling, &placement);
	return placement;
}

static bool bad_device_count(const struct topology *topology, int64_t devices, struct error *error)
{
	int64_t node = topology->devices_per_node, all = topology_devices(topology);
	int64_t below = devices / node * node;

	if (devices < 1)
		return error_set(error, EXIT_CODE_USAGE,
			"--gpus: expected at least 1 device, got %lld", (long long)devices);
	if (devices > all)
		return error_set(error, EXIT_CODE_USAGE,
			"--gpus: %s has %lld devices (%lld nodes of %lld), "
			"got %lld, use at most %lld or a topology with more nodes (%lldxNODE)",
			topology->name, (long long)all, (long long)topology->nodes, (long long)node,
			(long long)devices, (long long)all, (long long)ceil_div(devices, node));
	return error_set(error, EXIT_CODE_USAGE,
		"--gpus: expected at most one node of %s (%lld devices) or whole nodes, got %lld, "
		"use %lld or %lld",
		topology->name, (long long)node, (long long)devices, (long long)below,
		(long long)(below + node));
}

/* The same hosts of every NVLink domain: 64 of its 72 devices, as jobs often take them. */
static bool use_part_of_each(struct topology *topology, int64_t devices)
{
	int64_t host = topology->fabric.host_devices, node = topology->devices_per_node;
	int64_t part = devices / topology->nodes;

	if (host == 0 || part * topology->nodes != devices || part % host != 0)
		return false;
	topology->network.nics_per_node = max_i64(1, topology->network.nics_per_node * part / node);
	topology->devices_per_node = part;
	return true;
}

bool topology_use_devices(struct topology *topology, int64_t devices, struct error *error)
{
	int64_t node = topology->devices_per_node;
	/* Ranks of one host are processes: there may be more of them than cores. */
	bool any = topology->shares_host && topology->nodes == 1 && devices <= TOPOLOGY_MAX_DEVICES;

	if (devices < 1 || (!any && devices > topology_devices(topology)) ||
		(!any && devices > node && devices % node != 0))
		return (devices > node && devices < topology_devices(topology) &&
			       use_part_of_each(topology, devices)) ||
		       bad_device_count(topology, devices, error);
	topology->nodes = any || devices <= node ? 1 : devices / node;
	topology->devices_per_node = any || devices <= node ? devices : node;
	return true;
}
