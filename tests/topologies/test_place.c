/* topology_place against the enumeration of every group, and --gpus. */
#include "tests/topologies/sample.h"

#include <stdlib.h>

/* What the definition says, counted rank by rank. */
static struct placement enumerate(const struct topology *topology, int64_t size, int64_t stride)
{
	int64_t devices = topology_devices(topology), block = size * stride;
	int64_t *groups = calloc((size_t)topology->nodes, sizeof(*groups));
	int64_t *ranks = calloc((size_t)topology->nodes, sizeof(*ranks));
	struct placement placement = {.ranks = size};

	for (int64_t first = 0; first < devices / block * block; first++) {
		int64_t nodes = 0;

		if (first % block >= stride)
			continue;
		memset(ranks, 0, (size_t)topology->nodes * sizeof(*ranks));
		for (int64_t i = 0; i < size; i++)
			ranks[(first + i * stride) / topology->devices_per_node]++;
		for (int64_t node = 0; node < topology->nodes; node++) {
			placement.ranks_per_node = max_i64(placement.ranks_per_node, ranks[node]);
			nodes += ranks[node] > 0;
			groups[node] += ranks[node] > 0;
		}
		placement.nodes = max_i64(placement.nodes, nodes);
	}
	for (int64_t node = 0; node < topology->nodes; node++)
		placement.groups_per_node = max_i64(placement.groups_per_node, groups[node]);
	free(groups);
	free(ranks);
	return placement;
}

static void assert_placement(int64_t nodes, int64_t node, int64_t size, int64_t stride)
{
	struct topology topology = {.nodes = nodes, .devices_per_node = node};
	struct placement expected = enumerate(&topology, size, stride);
	struct placement actual = topology_place(&topology, size, stride);

	if (expected.nodes != actual.nodes || expected.ranks_per_node != actual.ranks_per_node ||
		expected.groups_per_node != actual.groups_per_node || actual.ranks != size)
		fail_msg(
			"%lldx%lld, size %lld, stride %lld: expected %lld %lld %lld, got %lld %lld "
			"%lld",
			(long long)nodes, (long long)node, (long long)size, (long long)stride,
			(long long)expected.nodes, (long long)expected.ranks_per_node,
			(long long)expected.groups_per_node, (long long)actual.nodes,
			(long long)actual.ranks_per_node, (long long)actual.groups_per_node);
}

/* Every (size, stride) that fits, on every topology of up to 6 nodes of up to 9 devices. */
static void every_group_of_small_topologies(void **state)
{
	(void)state;
	for (int64_t nodes = 1; nodes <= 6; nodes++)
		for (int64_t node = 1; node <= 9; node++)
			for (int64_t size = 1; size <= nodes * node; size++)
				for (int64_t stride = 1; size * stride <= nodes * node; stride++)
					assert_placement(nodes, node, size, stride);
}

static void random_groups_of_larger_topologies(void **state)
{
	uint64_t seed = 12345;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		int64_t draw[4];

		for (int j = 0; j < 4; j++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			draw[j] = (int64_t)(seed >> 40);
		}
		int64_t nodes = 1 + draw[0] % 12, node = 1 + draw[1] % 24;
		int64_t size = 1 + draw[2] % (nodes * node);

		assert_placement(nodes, node, size, 1 + draw[3] % (nodes * node / size));
	}
}

/* The cases that everyone knows, in plain numbers: 4 nodes of 8. */
static void known_groups(void **state)
{
	static const struct {
		int64_t size, stride, nodes, ranks_per_node, groups_per_node;
	} cases[] = {
		{32, 1, 4, 8, 1}, /* FULL_SHARD over everything */
		{8, 1, 1, 8, 1},  /* HYBRID: the shard group */
		{4, 8, 4, 1, 8},  /* HYBRID: the replica group; eight share the NICs */
		{4, 1, 1, 4, 2},  /* a shard group of half a node */
		{8, 4, 4, 2, 4},  /* and its replica group */
		{16, 1, 2, 8, 1}, /* a shard group of two nodes */
		{2, 16, 2, 1, 8}, /* and its replica group */
		{1, 1, 1, 1, 8},  /* alone */
		{12, 1, 2, 8, 2}, /* straddles: 8 + 4, then 4 + 8 */
	};
	struct topology topology = {.nodes = 4, .devices_per_node = 8};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct placement p = topology_place(&topology, cases[i].size, cases[i].stride);

		assert_int_equal(p.ranks, cases[i].size);
		assert_int_equal(p.nodes, cases[i].nodes);
		assert_int_equal(p.ranks_per_node, cases[i].ranks_per_node);
		assert_int_equal(p.groups_per_node, cases[i].groups_per_node);
	}
}

/* An NVLink domain of hosts of four GPUs: what its groups are spread over, counted rank by rank. */
static void groups_over_hosts(void **state)
{
	enum { HOST = 4, DOMAIN = 24 };
	struct topology racks = {
		.nodes = 2, .devices_per_node = DOMAIN, .fabric.host_devices = HOST};
	struct topology plain = {.nodes = 2, .devices_per_node = DOMAIN};

	(void)state;
	for (int64_t size = 1; size <= 2 * DOMAIN; size++)
		for (int64_t stride = 1; size * stride <= 2 * DOMAIN; stride++) {
			int64_t block = size * stride;
			bool over = false;

			for (int64_t first = 0; first < 2 * DOMAIN / block * block; first++)
				for (int64_t i = 1; i < size && first % block < stride; i++) {
					int64_t a = first + (i - 1) * stride, b = a + stride;

					over = over ||
					       (a / DOMAIN == b / DOMAIN && a / HOST != b / HOST);
				}
			if (topology_place(&racks, size, stride).over_hosts != over)
				fail_msg("size %lld, stride %lld", (long long)size,
					(long long)stride);
			assert_false(topology_place(&plain, size, stride).over_hosts);
		}
}

/* 10^6 ranks answer at once also where no closed form applies. */
static void a_million_ranks(void **state)
{
	struct topology topology = {.nodes = 125000, .devices_per_node = 8};
	struct placement p = topology_place(&topology, 1000000, 1);

	(void)state;
	assert_int_equal(p.nodes, 125000);
	p = topology_place(&topology, 7, 3);
	assert_int_equal(p.nodes, 4);
	assert_int_equal(p.ranks_per_node, 3);
}

static void assert_uses(struct topology topology, int64_t devices, int64_t nodes, int64_t node)
{
	struct error error = {0};

	assert_true(topology_use_devices(&topology, devices, &error));
	assert_int_equal(topology.nodes, nodes);
	assert_int_equal(topology.devices_per_node, node);
}

static void assert_refuses(struct topology topology, int64_t devices, const char *message)
{
	const struct topology before = topology;
	struct error error = {0};

	assert_false(topology_use_devices(&topology, devices, &error));
	assert_string_equal(error.message, message);
	assert_int_equal(error.code, EXIT_CODE_USAGE);
	assert_memory_equal(&before, &topology, sizeof(before));
}

static void use_devices(void **state)
{
	const struct topology four = {.name = "4xnode", .nodes = 4, .devices_per_node = 8};
	const struct topology local = {
		.name = "local", .nodes = 1, .devices_per_node = 2, .shares_host = true};
	const struct topology cluster = {
		.name = "lab", .nodes = 2, .devices_per_node = 2, .shares_host = true};

	(void)state;
	assert_uses(four, 1, 1, 1);
	assert_uses(four, 3, 1, 3);
	assert_uses(four, 8, 1, 8);
	assert_uses(four, 24, 3, 8);
	assert_uses(four, 32, 4, 8);
	assert_uses(local, 1, 1, 1);
	assert_uses(local, 13, 1, 13);
	assert_uses(cluster, 4, 2, 2);
	struct topology domains = {.name = "4xnvl72",
		.nodes = 4,
		.devices_per_node = 72,
		.fabric = {.host_devices = 4},
		.network = {.nics_per_node = 72}};
	assert_uses(domains, 144, 2, 72);
	assert_uses(domains, 256, 4, 64);
	assert_true(topology_use_devices(&domains, 256, NULL));
	assert_int_equal(domains.network.nics_per_node, 64);
	assert_refuses(four, 12,
		"--gpus: expected at most one node of 4xnode (8 devices) or whole nodes, got 12, "
		"use 8 or 16");
	assert_refuses(four, 40,
		"--gpus: 4xnode has 32 devices (4 nodes of 8), got 40, use at most 32 or a "
		"topology with more nodes (5xNODE)");
	assert_refuses(four, 0, "--gpus: expected at least 1 device, got 0");
	assert_refuses(local, -3, "--gpus: expected at least 1 device, got -3");
	assert_refuses(cluster, 3,
		"--gpus: expected at most one node of lab (2 devices) or whole nodes, got 3, use 2 "
		"or 4");
	assert_refuses(cluster, 6,
		"--gpus: lab has 4 devices (2 nodes of 2), got 6, use at most 4 or a topology with "
		"more nodes (3xNODE)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_group_of_small_topologies),
		cmocka_unit_test(random_groups_of_larger_topologies),
		cmocka_unit_test(known_groups),
		cmocka_unit_test(groups_over_hosts),
		cmocka_unit_test(a_million_ranks),
		cmocka_unit_test(use_devices),
	};

	return cmocka_run_group_tests_name("topologies/place", tests, NULL, NULL);
}
