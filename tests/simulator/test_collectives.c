/* How long collectives take: the results of NCCL's model for A100 nodes, measured pieces, processes
 * of one host, two levels. */
#include "sketch.h"

#include <math.h>

#include "simulator/collective.h"
#include "simulator/nccl.h"

enum { BLOCK = 202383360, ROOT = 262148096 }; /* parameters of Llama-2-7B's units */

static struct topology load(struct arena *arena, const char *name)
{
	struct topology *topology;
	struct error error = {0};

	if (!topology_load_name(arena, name, &topology, &error))
		fail_msg("%s", error.message);
	return *topology;
}

static double ms(const struct topology *topology, enum runtime_kind runtime, enum op_kind kind,
	int64_t size, int64_t stride, int64_t bytes)
{
	struct group group = {GROUP_SHARD, size, stride, 0};

	return 1e3 * cost_collective(topology, runtime_of(runtime), kind, &group, bytes);
}

/* Published figures of the model: 2 nodes of 8 A100 (one for the first row), AMD hosts. */
static const struct row {
	const char *topology;
	int64_t nics;
	double nic_bandwidth;
	double gather_block, reduce_block, gather_root, bucket, scalar;
} rows[] = {
	{"dgx-a100-80gb", 8, 25e9, 1.508, 2.984, 1.944, 0.247, 0.015},
	{"2xdgx-a100-80gb", 8, 25e9, 2.083, 4.059, 2.666, 0.385, 0.0252},
	{"2xdgx-a100-80gb", 4, 25e9, 4.059, 8.012, 5.226, 0.692, 0.0252},
	{"2xdgx-a100-80gb", 1, 12.5e9, 31.729, 63.351, 41.067, 4.382, 0.0252},
	{"2xdgx-a100-80gb", 1, 3.125e9, 126.596, 253.086, 163.949, 16.670, 0.0252},
};

static void assert_close(double got, double expected, double tolerance)
{
	if (!(fabs(got / expected - 1) <= tolerance))
		fail_msg("expected %.6g within %.2g %%, got %.6g", expected, 100 * tolerance, got);
}

static void test_a100_table(void **state)
{
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		const struct row *row = &rows[i];
		struct topology t = load(&arena, row->topology);
		int64_t n = topology_devices(&t);
		enum runtime_kind r = RUNTIME_PYTORCH_FSDP1;

		t.network.nics_per_node = row->nics;
		t.network.nic_bandwidth = row->nic_bandwidth;
		assert_close(ms(&t, r, OP_ALL_GATHER, n, 1, 2 * BLOCK), row->gather_block, 1e-3);
		assert_close(ms(&t, r, OP_REDUCE_SCATTER, n, 1, INT64_C(4) * BLOCK),
			row->reduce_block, 1e-3);
		assert_close(ms(&t, r, OP_ALL_GATHER, n, 1, 2 * ROOT), row->gather_root, 1e-3);
		assert_close(ms(&t, r, OP_ALL_REDUCE, n, 1, 25 << 20), row->bucket, 3e-3);
		assert_close(ms(&t, r, OP_ALL_REDUCE, n, 1, 4), row->scalar, 1e-2);
	}
	arena_finish(&arena);
}

static void test_protocols(void **state)
{
	struct arena arena = {0};
	struct topology t = load(&arena, "2xdgx-a100-80gb");
	struct placement p = topology_place(&t, 16, 1);
	struct nccl_choice c;
	(void)state;
	c = nccl_choose(&t, &p, COLLECTIVE_ALL_GATHER, 2 * BLOCK);
	assert_int_equal(c.algorithm, NCCL_RING);
	assert_int_equal(c.protocol, NCCL_SIMPLE);
	c = nccl_choose(&t, &p, COLLECTIVE_ALL_GATHER, 1 << 20);
	assert_int_equal(c.protocol, NCCL_LL128);
	c = nccl_choose(&t, &p, COLLECTIVE_ALL_REDUCE, 4);
	assert_int_equal(c.algorithm, NCCL_TREE);
	assert_int_equal(c.protocol, NCCL_LL);
	/* Without NVLink there is no LL128. */
	t = load(&arena, "rtx4090-8x");
	p = topology_place(&t, 8, 1);
	for (int64_t bytes = 4; bytes < INT64_C(1) << 32; bytes *= 2) {
		c = nccl_choose(&t, &p, COLLECTIVE_ALL_REDUCE, bytes);
		assert_int_not_equal(c.protocol, NCCL_LL128);
		assert_int_not_equal(c.algorithm, NCCL_NVLS);
	}
	arena_finish(&arena);
}

/* NVLink SHARP: all-reduce inside a Hopper node, never on Ampere, never a gather. */
static void test_switch_sums(void **state)
{
	struct arena arena = {0};
	struct topology t = load(&arena, "dgx-h100");
	struct placement p = topology_place(&t, 8, 1);
	(void)state;
	assert_int_equal(nccl_choose(&t, &p, COLLECTIVE_ALL_REDUCE, 1 << 30).algorithm, NCCL_NVLS);
	assert_int_equal(nccl_choose(&t, &p, COLLECTIVE_ALL_GATHER, 1 << 30).algorithm, NCCL_RING);
	t = load(&arena, "dgx-a100-80gb");
	assert_int_not_equal(
		nccl_choose(&t, &p, COLLECTIVE_ALL_REDUCE, 1 << 30).algorithm, NCCL_NVLS);
	arena_finish(&arena);
}

/* Hybrid's all-reduce of an fp32 block shard: eight groups of two share the NICs. */
static void test_replica_groups_share_nics(void **state)
{
	struct arena arena = {0};
	struct topology t = load(&arena, "2xdgx-a100-80gb");
	int64_t shard = INT64_C(4) * BLOCK / 8;
	(void)state;
	assert_close(ms(&t, RUNTIME_PYTORCH_FSDP1, OP_ALL_REDUCE, 2, 8, shard), 4.267, 1e-3);
	t.network.nics_per_node = 4;
	assert_close(ms(&t, RUNTIME_PYTORCH_FSDP1, OP_ALL_REDUCE, 2, 8, shard), 8.48, 5e-3);
	t.network.nics_per_node = 1;
	t.network.nic_bandwidth = 12.5e9;
	assert_close(ms(&t, RUNTIME_PYTORCH_FSDP1, OP_ALL_REDUCE, 2, 8, shard), 67.512, 1e-3);
	arena_finish(&arena);
}

static void test_measured_pieces_come_first(void **state)
{
	struct calibration_collective pieces[] = {{COLLECTIVE_ALL_GATHER, 8, 1, 0, 10e-6, 1e9},
		{COLLECTIVE_ALL_GATHER, 8, 1, 1 << 20, 100e-6, 4e9}};
	struct arena arena = {0};
	struct topology t = load(&arena, "dgx-a100-80gb");
	enum runtime_kind r = RUNTIME_PYTORCH_FSDP2;
	double model4 = ms(&t, r, OP_ALL_GATHER, 4, 1, 1 << 24);
	double model8 = ms(&t, r, OP_ALL_GATHER, 8, 1, 1 << 24);
	double reduce = ms(&t, r, OP_REDUCE_SCATTER, 8, 1, 1 << 24);
	(void)state;
	t.calibration.n_collectives = 2;
	t.calibration.collectives = pieces;
	assert_close(ms(&t, r, OP_ALL_GATHER, 8, 1, 1000), 1e3 * (10e-6 + 1e-6), 1e-9);
	assert_close(
		ms(&t, r, OP_ALL_GATHER, 8, 1, 1 << 24), 1e3 * (100e-6 + (1 << 24) / 4e9), 1e-9);
	/* Another number of ranks: the nearest measured one, scaled as the model says. */
	assert_close(ms(&t, r, OP_ALL_GATHER, 4, 1, 1 << 24),
		1e3 * (100e-6 + (1 << 24) / 4e9) * model4 / model8, 1e-9);
	/* Another collective was not measured. */
	assert_close(ms(&t, r, OP_REDUCE_SCATTER, 8, 1, 1 << 24), reduce, 1e-12);
	arena_finish(&arena);
}

static void test_a_group_of_one_is_free(void **state)
{
	struct arena arena = {0};
	struct topology t = load(&arena, "dgx-a100-80gb");
	(void)state;
	assert_true(ms(&t, RUNTIME_PYTORCH_FSDP1, OP_ALL_GATHER, 1, 1, 1 << 30) == 0);
	arena_finish(&arena);
}

/* Across nodes among equal local ranks, then inside each node. */
static void test_two_levels(void **state)
{
	struct arena arena = {0};
	struct topology t = load(&arena, "2xdgx-a100-80gb");
	struct group group = {GROUP_SHARD, 16, 1, 0};
	const struct runtime *ours = runtime_of(RUNTIME_SHARDPLAN);
	const struct runtime *flat = runtime_of(RUNTIME_PYTORCH_FSDP1);
	int64_t bytes = INT64_C(1) << 30;
	(void)state;
	double inside = ms(&t, RUNTIME_PYTORCH_FSDP1, OP_ALL_GATHER, 8, 1, bytes);
	double across = ms(&t, RUNTIME_PYTORCH_FSDP1, OP_ALL_GATHER, 2, 8, bytes / 8);
	assert_close(ms(&t, RUNTIME_SHARDPLAN, OP_ALL_GATHER, 16, 1, bytes), inside + across, 1e-9);
	/* n nodes: (n - 1) / n of the payload leaves each; a flat ring sends 15/16 of it. */
	assert_close(
		collective_node_egress(&t, ours, OP_ALL_GATHER, &group, bytes), bytes / 2.0, 1e-12);
	assert_close(collective_node_egress(&t, flat, OP_ALL_GATHER, &group, bytes),
		bytes * 15.0 / 16, 1e-12);
	arena_finish(&arena);
}

/* Processes of one host copy through memory: twice the ranks do not halve the time of each. */
static void test_processes_of_one_host(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	s.topology.device.kind = DEVICE_CPU;
	s.topology.device.generation = GENERATION_CPU;
	s.topology.shares_host = true;
	s.topology.calibration.n_collectives = 0;
	s.topology.calibration.memory_bandwidth = 1e10;
	s.topology.calibration.memory_bandwidth_shared = 2e10;
	s.topology.fabric.kind = FABRIC_SHARED_MEMORY;
	enum runtime_kind r = RUNTIME_SHARDPLAN;
	double four = ms(&s.topology, r, OP_ALL_GATHER, 4, 1, 1 << 28);
	/* 4 ranks share 20 GB/s; each reads and writes the whole. */
	assert_close(four, 1e3 * 2.0 * (1 << 28) / 5e9, 1e-3);
	assert_true(ms(&s.topology, r, OP_REDUCE_SCATTER, 4, 1, 1 << 28) < four);
	assert_true(ms(&s.topology, r, OP_ALL_REDUCE, 4, 1, 1 << 28) > four);
	s.topology.host.cores = 2;
	assert_true(ms(&s.topology, r, OP_ALL_GATHER, 4, 1, 16) >
		    2 * 1e3 * 4e-6); /* waits for the scheduler */
	sketch_finish(&s);
}

/* More bytes never take less time within a protocol; over all sizes at most 5 % less (NCCL's own
 * correction table has dips). */
static void test_time_grows_with_size(void **state)
{
	static const char *const names[] = {
		"dgx-a100-80gb", "4xdgx-a100-80gb", "2xdgx-h100", "dgx-v100", "rtx4090-8x"};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(names); i++) {
		struct topology t = load(&arena, names[i]);

		for (enum op_kind kind = 0; kind < OP_KIND_COUNT; kind++) {
			double last = 0;

			if (op_kind_class(kind) != OP_CLASS_COLLECTIVE)
				continue;
			for (int64_t bytes = 4; bytes < INT64_C(1) << 36; bytes *= 2) {
				double time = ms(&t, RUNTIME_PYTORCH_FSDP1, kind,
					topology_devices(&t), 1, bytes);

				assert_true(time > 0 && time >= 0.95 * last);
				last = time;
			}
		}
	}
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a100_table),
		cmocka_unit_test(test_protocols),
		cmocka_unit_test(test_switch_sums),
		cmocka_unit_test(test_replica_groups_share_nics),
		cmocka_unit_test(test_measured_pieces_come_first),
		cmocka_unit_test(test_a_group_of_one_is_free),
		cmocka_unit_test(test_two_levels),
		cmocka_unit_test(test_processes_of_one_host),
		cmocka_unit_test(test_time_grows_with_size),
	};
	return cmocka_run_group_tests_name("simulator collectives", tests, NULL, NULL);
}
