/* Messages between pairs of ranks: send and receive, all-to-all. Laws that hold whatever the
 * constants are. */
#include "sketch.h"

#include <math.h>

#include "simulator/costs/costs.h"

static const enum collective_kind kinds[] = {COLLECTIVE_ALL_TO_ALL, COLLECTIVE_SEND_RECV};

static double seconds(const struct topology *topology, enum collective_kind kind, int64_t size,
	int64_t stride, int64_t bytes)
{
	struct group group = {GROUP_SHARD, size, stride, 0};

	return cost_collective_choice(
		topology, NULL, runtime_of(RUNTIME_PYTORCH_FSDP2), kind, &group, bytes)
		.seconds;
}

/* Seconds of a byte more, where latencies no longer count. */
static double slope(
	const struct topology *topology, enum collective_kind kind, int64_t size, int64_t stride)
{
	int64_t large = INT64_C(1) << 34;

	return (seconds(topology, kind, size, stride, 2 * large) -
		       seconds(topology, kind, size, stride, large)) /
	       (double)large;
}

static double egress(const struct topology *topology, enum collective_kind kind, int64_t size,
	int64_t stride, int64_t bytes)
{
	struct group group = {GROUP_SHARD, size, stride, 0};

	return collective_node_egress(topology, runtime_of(RUNTIME_SHARDPLAN), kind, &group, bytes);
}

static void assert_close(double got, double expected, double tolerance)
{
	if (!(fabs(got - expected) <= tolerance * fabs(expected)))
		fail_msg("expected %.6g within %.2g %%, got %.6g", expected, 100 * tolerance, got);
}

/* Of n ranks, l a node, each sends (n - l) / n of what it has to other nodes; of a chain, each
 * group sends one message from each node. Groups that share a node add up. */
static void test_what_leaves_a_node(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "4xdgx-h100");
	int64_t bytes = 32 << 20;
	(void)state;
	assert_close(egress(&t, COLLECTIVE_ALL_TO_ALL, 32, 1, bytes), 8 * bytes * 24.0 / 32, 1e-12);
	assert_close(egress(&t, COLLECTIVE_ALL_TO_ALL, 4, 8, bytes), 8 * bytes * 3.0 / 4, 1e-12);
	assert_close(
		egress(&t, COLLECTIVE_ALL_TO_ALL, 8, 4, bytes), 4 * 2 * bytes * 6.0 / 8, 1e-12);
	assert_close(egress(&t, COLLECTIVE_SEND_RECV, 4, 8, bytes), 8.0 * bytes, 1e-12);
	assert_close(egress(&t, COLLECTIVE_SEND_RECV, 8, 4, bytes), 4.0 * bytes, 1e-12);
	for (int k = 0; k < COUNT_OF(kinds); k++)
		assert_true(egress(&t, kinds[k], 8, 1, bytes) == 0);
	arena_finish(&arena);
}

/* Between nodes the NICs decide: what leaves a node over what they deliver, to many messages as
 * much as to a ring, to one a little more. */
static void test_networks_carry_what_leaves(void **state)
{
	static const struct {
		enum collective_kind kind;
		int64_t size, stride;
		double senders; /* of a node: one that sends alone has its own NIC only */
	} cases[] = {{COLLECTIVE_ALL_TO_ALL, 32, 1, 8}, {COLLECTIVE_ALL_TO_ALL, 4, 8, 8},
		{COLLECTIVE_ALL_TO_ALL, 8, 4, 8}, {COLLECTIVE_SEND_RECV, 4, 8, 8},
		{COLLECTIVE_SEND_RECV, 32, 1, 1}, {COLLECTIVE_SEND_RECV, 8, 4, 4}};
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "4xdgx-h100");
	double link = topology_node_bandwidth(&t);
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		double leaves = egress(&t, cases[i].kind, cases[i].size, cases[i].stride, 1 << 20);
		double least = leaves / (1 << 20) / (link * cases[i].senders / 8);
		double got = slope(&t, cases[i].kind, cases[i].size, cases[i].stride);

		assert_close(
			got, least / (cases[i].kind == COLLECTIVE_ALL_TO_ALL ? 0.81 : 0.97), 1e-6);
	}
	/* On Blackwell eight ranks of a node post 30 GB/s each. */
	t = load_topology(&arena, "4xdgx-b200");
	assert_close(slope(&t, COLLECTIVE_ALL_TO_ALL, 32, 1),
		egress(&t, COLLECTIVE_ALL_TO_ALL, 32, 1, 1 << 20) / (1 << 20) / (8 * 30e9), 1e-6);
	arena_finish(&arena);
}

/* Multiprocessors decide where links would carry more: 32 channels at most, and of a message as
 * many as leave one for each rank, until a channel's part would pass 16 MiB. */
static void test_channels_carry_messages(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-b200");
	double sixty_four = seconds(&t, COLLECTIVE_SEND_RECV, 8, 1, INT64_C(64) << 20);
	(void)state;
	/* Eight B200, published (orcd-b200-rocky, fitted to): 214.9, 791, 808, 1667 us. */
	assert_close(seconds(&t, COLLECTIVE_SEND_RECV, 8, 1, INT64_C(16) << 20), 214.9e-6, 0.02);
	assert_close(sixty_four, 791e-6, 0.03);
	assert_close(seconds(&t, COLLECTIVE_SEND_RECV, 8, 1, INT64_C(256) << 20), sixty_four, 1e-9);
	assert_close(seconds(&t, COLLECTIVE_SEND_RECV, 8, 1, INT64_C(1) << 30), 1667e-6, 0.04);
	/* Two ranks leave each other half of the channels. */
	assert_true(seconds(&t, COLLECTIVE_SEND_RECV, 2, 1, INT64_C(64) << 20) < 0.4 * sixty_four);
	t.fabric.bandwidth *= 10;
	assert_close(1 / slope(&t, COLLECTIVE_SEND_RECV, 8, 1), 32 * 21e9, 1e-3);
	arena_finish(&arena);
}

/* Slower NICs decide: 37.8 GB/s of bus bandwidth over two nodes of eight A100 (mscclpp's page,
 * fitted to), and half of what one has stays. */
static void test_slow_networks_decide(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "2xdgx-a100-80gb");
	(void)state;
	assert_close(15.0 / 16 / slope(&t, COLLECTIVE_ALL_TO_ALL, 16, 1), 37.8e9, 0.01);
	t.network.nic_bandwidth /= 2;
	assert_close(15.0 / 16 / slope(&t, COLLECTIVE_ALL_TO_ALL, 16, 1), 37.8e9 / 2, 0.01);
	arena_finish(&arena);
}

/* Hosts of an NVLink domain have all of its links for messages. 8 GiB over 4, 8 and 64 GB300,
 * published: 10.3, 11.06 and 13.03 ms (oracle-quickstart's guide; fitted to). */
static void test_domains_have_all_links(void **state)
{
	static const struct {
		int64_t ranks;
		double published;
	} cases[] = {{4, 10.308e-3}, {8, 11.059e-3}, {64, 13.028e-3}};
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "gb200-nvl72");
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++)
		assert_close(
			seconds(&t, COLLECTIVE_ALL_TO_ALL, cases[i].ranks, 1, INT64_C(8) << 30),
			cases[i].published, 0.07);
	arena_finish(&arena);
}

/* Inside a node the port decides, of a mesh the links of the pair. */
static void test_ports_carry_what_stays(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-h100");
	double port = slope(&t, COLLECTIVE_SEND_RECV, 8, 1);
	(void)state;
	assert_true(port >= 1 / t.fabric.bandwidth && port < 1.2 / t.fabric.bandwidth);
	assert_close(slope(&t, COLLECTIVE_ALL_TO_ALL, 8, 1), port * 7 / 8, 1e-6);
	t.fabric.kind = FABRIC_NVLINK_MESH;
	assert_true(slope(&t, COLLECTIVE_SEND_RECV, 8, 1) > 6.9 * port);
	assert_close(slope(&t, COLLECTIVE_ALL_TO_ALL, 8, 1), port * 7 / 8, 1e-6);
	arena_finish(&arena);
}

/* Two ranks that have half for each other are two that send it. */
static void test_a_pair_is_a_pair(void **state)
{
	static const char *const nodes[] = {"dgx-h100", "dgx-a100-80gb", "p5.48xlarge", "dgx-v100"};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(nodes); i++) {
		struct topology t = load_topology(&arena, nodes[i]);

		t.nodes = 2;
		for (int64_t bytes = 8; bytes < INT64_C(1) << 34; bytes *= 8)
			for (int64_t stride = 1; stride <= t.devices_per_node;
				stride *= t.devices_per_node)
				assert_close(seconds(&t, COLLECTIVE_ALL_TO_ALL, 2, stride, bytes),
					seconds(&t, COLLECTIVE_SEND_RECV, 2, stride, bytes / 2),
					1e-12);
	}
	arena_finish(&arena);
}

/* Without bandwidth to wait for, latencies are left. */
static void test_infinite_links_leave_latencies(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "4xdgx-h100");
	double chunk;
	(void)state;
	t.network.nic_bandwidth = 1e30;
	chunk = seconds(&t, COLLECTIVE_SEND_RECV, 4, 8, INT64_C(1) << 30);
	assert_close(seconds(&t, COLLECTIVE_SEND_RECV, 4, 8, INT64_C(1) << 40), chunk, 1e-9);
	assert_true(seconds(&t, COLLECTIVE_SEND_RECV, 4, 8, 32) < chunk && chunk < 100e-6);
	/* Each message to another node is posted. */
	assert_true(seconds(&t, COLLECTIVE_ALL_TO_ALL, 32, 1, 32) >
		    seconds(&t, COLLECTIVE_ALL_TO_ALL, 16, 1, 32));
	arena_finish(&arena);
}

/* Over the whole catalogue: more bytes never take less, better links never longer. */
static void test_laws(void **state)
{
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < n_topology_catalogue; i++) {
		struct topology t = load_topology(&arena, topology_catalogue[i].name);

		t.nodes = t.network.kind == NETWORK_NONE ? 1 : 4;
		for (int c = 0; c < BETTER_LINKS * COUNT_OF(kinds); c++) {
			enum collective_kind kind = kinds[c % COUNT_OF(kinds)];
			int64_t n = topology_devices(&t);
			struct topology better = t;
			double before = 0;

			better_links[c / COUNT_OF(kinds)](&better);
			for (int64_t bytes = 4; bytes < INT64_C(1) << 36; bytes *= 8) {
				double now = seconds(&t, kind, n, 1, bytes);

				assert_true(now >= before && (n == 1 || now > 0));
				assert_true(
					seconds(&better, kind, n, 1, bytes) <= (1 + 1e-12) * now);
				before = now;
			}
		}
	}
	arena_finish(&arena);
}

/* Nodes of CPUs: hops to each other node and what leaves over the link. */
static void test_nodes_of_cpus(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "4xdgx-h100");
	double link = topology_node_bandwidth(&t);
	int64_t bytes = INT64_C(1) << 30;
	(void)state;
	make_processes(&t);
	assert_close(seconds(&t, COLLECTIVE_ALL_TO_ALL, 32, 1, bytes),
		3 * t.network.latency + 8 * 24.0 / 32 * (double)bytes / link, 1e-9);
	assert_close(seconds(&t, COLLECTIVE_SEND_RECV, 4, 8, bytes),
		t.network.latency + 8 * (double)bytes / link, 1e-9);
	arena_finish(&arena);
}

static void test_measured_comes_first(void **state)
{
	struct calibration_collective pieces[] = {{COLLECTIVE_ALL_TO_ALL, 8, 1, 0, 20e-6, 1e9},
		{COLLECTIVE_SEND_RECV, 2, 1, 0, 10e-6, 2e9}};
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-h100");
	(void)state;
	t.calibration.n_collectives = COUNT_OF(pieces);
	t.calibration.collectives = pieces;
	assert_close(seconds(&t, COLLECTIVE_ALL_TO_ALL, 8, 1, 1000), 21e-6, 1e-9);
	assert_close(seconds(&t, COLLECTIVE_SEND_RECV, 2, 1, 2000), 11e-6, 1e-9);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_leaves_a_node),
		cmocka_unit_test(test_networks_carry_what_leaves),
		cmocka_unit_test(test_slow_networks_decide),
		cmocka_unit_test(test_domains_have_all_links),
		cmocka_unit_test(test_channels_carry_messages),
		cmocka_unit_test(test_ports_carry_what_stays),
		cmocka_unit_test(test_a_pair_is_a_pair),
		cmocka_unit_test(test_infinite_links_leave_latencies),
		cmocka_unit_test(test_laws),
		cmocka_unit_test(test_nodes_of_cpus),
		cmocka_unit_test(test_measured_comes_first),
	};
	return cmocka_run_group_tests_name("simulator messages", tests, NULL, NULL);
}
