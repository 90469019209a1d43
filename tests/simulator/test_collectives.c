/* How long collectives take: the results of NCCL's model for A100 nodes, measured segments,
 * processes of one host, two levels. */
#include "sketch.h"

#include <math.h>

#include "simulator/costs/costs.h"
#include "simulator/nccl/nccl.h"

enum { BLOCK = 202383360, ROOT = 262148096 }; /* parameters of Llama-2-7B's units */

static const struct libraries recent;
/* Of PyTorch 2.1: over EFA nothing tunes it (nccl_is_untuned). */
static const struct libraries nccl_2_18 = {.version[LIBRARY_NCCL] = LIBRARY_VERSION(2, 18) + 1};

static double ms_below(const struct libraries *libraries, const struct topology *topology,
	enum runtime_kind runtime, enum op_kind kind, int64_t size, int64_t stride, int64_t bytes)
{
	struct group group = {GROUP_SHARD, size, stride, 0};

	return 1e3 *
	       collective_seconds(topology, libraries, runtime_of(runtime), kind, &group, bytes);
}

static double ms(const struct topology *topology, enum runtime_kind runtime, enum op_kind kind,
	int64_t size, int64_t stride, int64_t bytes)
{
	return ms_below(&recent, topology, runtime, kind, size, stride, bytes);
}

/* NCCL's own estimate. */
static double tuned_ms(const struct topology *topology, enum collective_kind kind, int64_t size,
	int64_t stride, int64_t bytes)
{
	struct placement placement = topology_place(topology, size, stride);

	return 1e3 * nccl_choose(topology, &recent, &placement, kind, bytes).tuner_seconds;
}

/* Published figures of NCCL's model: 2 nodes of 8 A100 (one for the first row), AMD hosts. A tree
 * between two nodes sends half of what a ring does, which the buckets' figures leave out. */
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
		struct topology t = load_topology(&arena, row->topology);
		int64_t n = topology_devices(&t);

		t.network.nics_per_node = row->nics;
		t.network.nic_bandwidth = row->nic_bandwidth;
		assert_close(tuned_ms(&t, COLLECTIVE_ALL_GATHER, n, 1, 2 * BLOCK),
			row->gather_block, 1e-3);
		assert_close(tuned_ms(&t, COLLECTIVE_REDUCE_SCATTER, n, 1, INT64_C(4) * BLOCK),
			row->reduce_block, 1e-3);
		assert_close(tuned_ms(&t, COLLECTIVE_ALL_GATHER, n, 1, 2 * ROOT), row->gather_root,
			1e-3);
		double bucket = tuned_ms(&t, COLLECTIVE_ALL_REDUCE, n, 1, 25 << 20);
		assert_true(bucket <= row->bucket * 1.003 && bucket >= row->bucket * 0.5);
		assert_close(tuned_ms(&t, COLLECTIVE_ALL_REDUCE, n, 1, 4), row->scalar, 1e-2);
	}
	arena_finish(&arena);
}

static void test_protocols(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "2xdgx-a100-80gb");
	struct placement p = topology_place(&t, 16, 1);
	struct nccl_choice c;
	(void)state;
	c = nccl_choose(&t, &recent, &p, COLLECTIVE_ALL_GATHER, 2 * BLOCK);
	assert_int_equal(c.algorithm, NCCL_RING);
	assert_int_equal(c.protocol, NCCL_SIMPLE);
	c = nccl_choose(&t, &recent, &p, COLLECTIVE_ALL_GATHER, 1 << 20);
	assert_int_equal(c.protocol, NCCL_LL128);
	c = nccl_choose(&t, &recent, &p, COLLECTIVE_ALL_REDUCE, 4);
	assert_int_equal(c.algorithm, NCCL_TREE);
	assert_int_equal(c.protocol, NCCL_LL);
	/* Without NVLink there is no LL128. */
	t = load_topology(&arena, "rtx4090-8x");
	p = topology_place(&t, 8, 1);
	for (int64_t bytes = 4; bytes < INT64_C(1) << 32; bytes *= 2) {
		c = nccl_choose(&t, &recent, &p, COLLECTIVE_ALL_REDUCE, bytes);
		assert_int_not_equal(c.protocol, NCCL_LL128);
		assert_int_not_equal(c.algorithm, NCCL_NVLS);
	}
	arena_finish(&arena);
}

/* NVLink SHARP: all-reduce inside a Hopper node, never on Ampere, never a gather. */
static void test_switch_sums(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-h100");
	struct placement p = topology_place(&t, 8, 1);
	(void)state;
	assert_int_equal(
		nccl_choose(&t, &recent, &p, COLLECTIVE_ALL_REDUCE, 1 << 30).algorithm, NCCL_NVLS);
	assert_int_equal(
		nccl_choose(&t, &recent, &p, COLLECTIVE_ALL_GATHER, 1 << 30).algorithm, NCCL_RING);
	t = load_topology(&arena, "dgx-a100-80gb");
	assert_int_not_equal(
		nccl_choose(&t, &recent, &p, COLLECTIVE_ALL_REDUCE, 1 << 30).algorithm, NCCL_NVLS);
	arena_finish(&arena);
}

/* Hybrid's all-reduce of an fp32 block shard: eight groups of two share the NICs. */
static void test_replica_groups_share_nics(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "2xdgx-a100-80gb");
	int64_t shard = INT64_C(4) * BLOCK / 8;
	enum runtime_kind r = RUNTIME_PYTORCH_FSDP1;
	double links = 1e3 * (double)shard / (200e9 / 8); /* ms: each rank sends its shard once */
	double full, half;
	(void)state;
	full = ms(&t, r, OP_ALL_REDUCE, 2, 8, shard);
	assert_true(full > links && full < 1.1 * links);
	t.network.nics_per_node = 4;
	half = ms(&t, r, OP_ALL_REDUCE, 2, 8, shard);
	assert_true(half > 1.9 * full && half < 2.1 * full);
	/* Alone on the NICs, a group is faster. */
	assert_true(ms(&t, r, OP_ALL_REDUCE, 16, 1, shard) < half);
	arena_finish(&arena);
}

/* Published nccl-tests times, us, each with its source. The bounds are the judge's: what the model
 * misses a row by at most (bench/collectives). */
static const struct anchor {
	const char *topology;
	enum op_kind kind;
	int64_t ranks, bytes;
	double us, tolerance;
} anchors[] = {
	/* NVIDIA/dgxc-benchmarking nccl/README.md: 8 H100 */
	{"dgx-h100", OP_ALL_REDUCE, 8, 65536, 19.54, 0.15},
	{"dgx-h100", OP_ALL_REDUCE, 8, 1 << 20, 27.37, 0.15},
	{"dgx-h100", OP_ALL_REDUCE, 8, 16 << 20, 123.8, 0.15},
	{"dgx-h100", OP_ALL_REDUCE, 8, 1 << 30, 4029.4, 0.05},
	/* SimuMax nccl_fit.py: 8 H100 */
	{"dgx-h100", OP_ALL_GATHER, 8, 16 << 20, 73.03, 0.15},
	{"dgx-h100", OP_ALL_GATHER, 8, 256 << 20, 730.2, 0.05},
	{"dgx-h100", OP_REDUCE_SCATTER, 8, 1 << 30, 2758.3, 0.05},
	/* 8 A100 (public file, host thanos) */
	{"dgx-a100-80gb", OP_ALL_REDUCE, 8, 256 << 10, 27.65, 0.15},
	{"dgx-a100-80gb", OP_ALL_REDUCE, 8, 8 << 20, 130.6, 0.15},
	{"dgx-a100-80gb", OP_ALL_REDUCE, 8, 256 << 20, 2218.2, 0.05},
	/* vTrain trace/a100 and trace/v100: two GPUs, the hybrid cube mesh */
	{"dgx-a100-80gb", OP_ALL_REDUCE, 2, 256 << 20, 1455.8, 0.15},
	{"dgx-v100", OP_ALL_REDUCE, 8, 256 << 20, 3527.4, 0.10},
	{"dgx-v100", OP_ALL_REDUCE, 4, 256 << 20, 4714.0, 0.10},
	{"dgx-v100", OP_ALL_REDUCE, 3, 256 << 20, 7949.5, 0.10},
	{"dgx-v100", OP_ALL_REDUCE, 2, 256 << 20, 11915, 0.10},
	/* awslabs/awsome-distributed-training nccl-tests/README.md: 2 p4de over EFA */
	{"2xp4de.24xlarge", OP_ALL_REDUCE, 16, 64, 161.0, 0.15},
	{"2xp4de.24xlarge", OP_ALL_REDUCE, 16, 4 << 20, 533.9, 0.15},
	{"2xp4de.24xlarge", OP_ALL_REDUCE, 16, 1 << 30, 26217, 0.10},
	/* coreweave/nccl-tests README.md: 12 nodes of 8 H100 over InfiniBand */
	{"12xdgx-h100", OP_ALL_REDUCE, 96, 1 << 30, 5808, 0.10},
	/* dstackai/dstack, A3 Mega: two nodes */
	{"2xa3-megagpu-8g", OP_ALL_GATHER, 16, 1 << 30, 5532.7, 0.10},
	/* 8 RTX 4090 without peer access */
	{"rtx4090-8x", OP_ALL_REDUCE, 8, 128 << 20, 16253, 0.10},
};

static void test_anchors(void **state)
{
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(anchors); i++) {
		const struct anchor *a = &anchors[i];
		struct topology t = load_topology(&arena, a->topology);
		double us = 1e3 * ms(&t, RUNTIME_PYTORCH_FSDP2, a->kind, a->ranks, 1, a->bytes);

		if (!(us >= (1 - a->tolerance) * a->us && us <= (1 + a->tolerance) * a->us))
			fail_msg("%s, %lld ranks, %lld bytes: published %g us, got %g", a->topology,
				(long long)a->ranks, (long long)a->bytes, a->us, us);
	}
	arena_finish(&arena);
}

static void test_better_links_never_slow(void **state)
{
	static const enum op_kind kinds[] = {OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_REDUCE};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < n_topology_catalogue; i++) {
		struct topology t = load_topology(&arena, topology_catalogue[i].name);

		t.nodes = t.network.kind == NETWORK_NONE ? 1 : 4;
		for (int c = 0; c < BETTER_LINKS * COUNT_OF(kinds); c++) {
			enum op_kind kind = kinds[c % COUNT_OF(kinds)];
			struct topology better = t;

			better_links[c / COUNT_OF(kinds)](&better);
			for (int64_t bytes = 4; bytes < INT64_C(1) << 36; bytes *= 8)
				assert_true(ms(&better, RUNTIME_PYTORCH_FSDP1, kind,
						    topology_devices(&t), 1, bytes) <=
					    (1 + 1e-12) * ms(&t, RUNTIME_PYTORCH_FSDP1, kind,
								  topology_devices(&t), 1, bytes));
		}
	}
	arena_finish(&arena);
}

/* A gather and a scatter of sums move the same bytes by the same rings. */
static void test_gather_equals_scatter(void **state)
{
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < n_topology_catalogue; i++) {
		struct topology t = load_topology(&arena, topology_catalogue[i].name);
		int64_t n = topology_devices(&t);

		for (int64_t bytes = 4; bytes < INT64_C(1) << 36; bytes *= 8)
			assert_true(ms(&t, RUNTIME_PYTORCH_FSDP1, OP_ALL_GATHER, n, 1, bytes) ==
				    ms(&t, RUNTIME_PYTORCH_FSDP1, OP_REDUCE_SCATTER, n, 1, bytes));
	}
	arena_finish(&arena);
}

/* One broadcast a rank: next to nothing inside a node, latency of every ring in full over many. */
static void test_gathers_by_broadcast(void **state)
{
	static const struct {
		int64_t nodes;
		double least, most; /* of NCCL's own gather's time */
	} cases[] = {{1, 0.8, 1.2}, {4, 0.8, 1.5}, {32, 1.1, 3}, {128, 3, 12}};
	struct arena arena = {0};
	int64_t bytes = INT64_C(14) << 30;
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct topology t = load_topology(&arena, "dgx-a100-80gb");
		int64_t n = 8 * cases[i].nodes;
		double ratio;

		t.nodes = cases[i].nodes;
		t.network.nics_per_node = 4;
		t.network.nic_bandwidth = 12.5e9;
		ratio = ms(&t, RUNTIME_INTERNEVO, OP_ALL_GATHER, n, 1, bytes) /
			ms(&t, RUNTIME_NANOTRON, OP_ALL_GATHER, n, 1, bytes);
		if (!(ratio >= cases[i].least && ratio <= cases[i].most))
			fail_msg("%lld nodes: %g", (long long)cases[i].nodes, ratio);
		assert_true(ms(&t, RUNTIME_INTERNEVO, OP_ALL_REDUCE, n, 1, bytes) ==
			    ms(&t, RUNTIME_NANOTRON, OP_ALL_REDUCE, n, 1, bytes));
	}
	arena_finish(&arena);
}

/* What an exchange of 16 and 32 tensor ranks takes in the calibrating rows of the ultrascale
 * playbook, beside their products: every step of the ring waits as long, whatever it moves. */
static void test_gathers_over_efa(void **state)
{
	static const struct {
		int64_t nodes, mib;
		double ms;
	} exchanges[] = {{2, 32, 0.78}, {2, 128, 1.05}, {2, 256, 1.39}, {4, 32, 1.49}};
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "p5.48xlarge");
	(void)state;
	for (int i = 0; i < COUNT_OF(exchanges); i++) {
		t.nodes = exchanges[i].nodes;
		assert_close(ms_below(&nccl_2_18, &t, RUNTIME_NANOTRON, OP_ALL_GATHER,
				     8 * exchanges[i].nodes, 1, exchanges[i].mib << 20),
			exchanges[i].ms, 0.12);
	}
	arena_finish(&arena);
}

/* aws-ofi-nccl chooses for an NCCL that takes a tuner, on the GPUs that it knows: what awslabs
 * measured between two nodes of p5 below two versions (aws-nccl-p5-2n, -2024 in bench/published),
 * and what 32 nodes gathered (hyperpod-p5). The tuner does not know A100. */
static void test_tuned_efa(void **state)
{
	static const struct {
		enum op_kind kind;
		int64_t nodes, mib;
		double ms, within;
	} tuned[] = {{OP_ALL_REDUCE, 2, 64, 0.602, 0.25}, {OP_ALL_REDUCE, 2, 1024, 4.608, 0.05},
		{OP_ALL_REDUCE, 32, 8192, 53.3, 0.15}, {OP_ALL_GATHER, 32, 1024, 4.81, 0.05},
		{OP_ALL_TO_ALL, 32, 1024, 27.65, 0.1}};
	enum runtime_kind r = RUNTIME_PYTORCH_FSDP2;
	struct arena arena = {0};
	struct topology p5 = load_topology(&arena, "p5.48xlarge");
	struct topology p4 = load_topology(&arena, "32xp4d.24xlarge");
	(void)state;
	for (int i = 0; i < COUNT_OF(tuned); i++) {
		p5.nodes = tuned[i].nodes;
		assert_close(ms(&p5, r, tuned[i].kind, 8 * p5.nodes, 1, tuned[i].mib << 20),
			tuned[i].ms, tuned[i].within);
	}
	assert_true(ms_below(&nccl_2_18, &p5, r, OP_ALL_GATHER, 256, 1, 1 << 30) >
		    3 * ms(&p5, r, OP_ALL_GATHER, 256, 1, 1 << 30));
	assert_true(ms_below(&nccl_2_18, &p4, r, OP_ALL_GATHER, 256, 1, 1 << 30) ==
		    ms(&p4, r, OP_ALL_GATHER, 256, 1, 1 << 30));
	arena_finish(&arena);
}

/* Congestion is what one communicator gets: eight groups with a rank on every node fill the NICs.
 */
static void test_groups_fill_the_nics(void **state)
{
	struct arena arena = {0};
	struct topology shared = load_topology(&arena, "p5.48xlarge"), alone;
	enum runtime_kind r = RUNTIME_PYTORCH_DDP;
	int64_t bytes = INT64_C(1) << 30;
	(void)state;
	shared.nodes = 32;
	alone = shared;
	alone.network.congestion = 1;
	assert_true(ms_below(&nccl_2_18, &shared, r, OP_ALL_REDUCE, 32, 8, bytes) ==
		    ms_below(&nccl_2_18, &alone, r, OP_ALL_REDUCE, 32, 8, bytes));
	assert_true(ms_below(&nccl_2_18, &shared, r, OP_ALL_REDUCE, 256, 1, bytes) >
		    3 * ms_below(&nccl_2_18, &alone, r, OP_ALL_REDUCE, 256, 1, bytes));
	arena_finish(&arena);
}

/* What so many more MiB take. */
static double more_ms(const struct topology *topology, enum op_kind kind, int64_t ranks,
	int64_t from_mib, int64_t to_mib)
{
	return ms_below(&nccl_2_18, topology, RUNTIME_PYTORCH_FSDP1, kind, ranks, 1, to_mib << 20) -
	       ms_below(
		       &nccl_2_18, topology, RUNTIME_PYTORCH_FSDP1, kind, ranks, 1, from_mib << 20);
}

/* A shared fabric slows what leaves the nodes by about the square root of their number, up to 64 of
 * them; who has it alone says so, whatever the number. */
static void test_congestion(void **state)
{
	struct arena arena = {0};
	enum runtime_kind r = RUNTIME_PYTORCH_FSDP1;
	int64_t bytes = INT64_C(1) << 40;
	(void)state;
	for (int64_t nodes = 1; nodes <= 128; nodes *= 2) {
		struct topology shared = load_topology(&arena, "p5.48xlarge"), alone;
		double expected = fmax(1, 5.5 * pow((double)(nodes < 64 ? nodes : 64) / 32, 0.55));
		double slowdown;

		shared.nodes = nodes;
		alone = shared;
		alone.network.congestion = 1;
		/* NVLink is as fast as the NICs; latencies are not congested. */
		slowdown = more_ms(&shared, OP_ALL_GATHER, 8 * nodes, 512, 1024) /
			   more_ms(&alone, OP_ALL_GATHER, 8 * nodes, 512, 1024);
		assert_true(slowdown <= expected * (1 + 1e-9) && slowdown > 0.8 * expected);
		/* A sum that is larger than the published one meets no more of it. */
		slowdown = more_ms(&shared, OP_ALL_REDUCE, 8 * nodes, 1024, 16384) /
			   more_ms(&alone, OP_ALL_REDUCE, 8 * nodes, 1024, 16384);
		if (!(slowdown > 0.95 && slowdown < 1.05))
			fail_msg("%lld nodes: %g", (long long)nodes, slowdown);
		alone.network.congestion = 2;
		assert_true(ms_below(&nccl_2_18, &alone, r, OP_ALL_GATHER, 8 * nodes, 1, bytes) <=
			    ms_below(&nccl_2_18, &shared, r, OP_ALL_GATHER, 8 * nodes, 1, bytes));
	}
	struct topology dedicated = load_topology(&arena, "64xdgx-h100");
	assert_close(ms(&dedicated, r, OP_ALL_GATHER, 512, 1, bytes),
		ms(&dedicated, r, OP_ALL_GATHER, 256, 1, bytes), 0.05);
	arena_finish(&arena);
}

/* Figures that a file leaves out are those of the kind. */
static void test_latency_of_the_kind(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "2xp5.48xlarge"), bare = t;
	enum runtime_kind r = RUNTIME_PYTORCH_FSDP1;
	(void)state;
	bare.network.latency = 0;
	bare.fabric.latency = 0;
	assert_true(ms(&t, r, OP_ALL_GATHER, 16, 1, 1 << 20) ==
		    ms(&bare, r, OP_ALL_GATHER, 16, 1, 1 << 20));
	bare.network.kind = NETWORK_INFINIBAND;
	assert_true(ms(&t, r, OP_ALL_GATHER, 16, 1, 1 << 20) >
		    ms(&bare, r, OP_ALL_GATHER, 16, 1, 1 << 20));
	arena_finish(&arena);
}

static void test_measured_pieces_come_first(void **state)
{
	struct calibration_collective pieces[] = {{COLLECTIVE_ALL_GATHER, 8, 1, 0, 10e-6, 1e9},
		{COLLECTIVE_ALL_GATHER, 8, 1, 1 << 20, 100e-6, 4e9}};
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-a100-80gb");
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
	assert_true(ms(&t, r, OP_ALL_TO_ALL, 8, 1, 1000) > 1e3 * (10e-6 + 1e-6));
	/* Between processes an exchange copies what a gather does. */
	t.device.kind = DEVICE_CPU;
	assert_close(ms(&t, r, OP_ALL_TO_ALL, 8, 1, 1000), 1e3 * (10e-6 + 1e-6), 1e-9);
	assert_close(ms(&t, r, OP_SEND_RECV, 8, 1, 1000), 1e3 * (10e-6 + 1e-6), 1e-9);
	arena_finish(&arena);
}

static void test_a_group_of_one_is_free(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-a100-80gb");
	(void)state;
	assert_true(ms(&t, RUNTIME_PYTORCH_FSDP1, OP_ALL_GATHER, 1, 1, 1 << 30) == 0);
	arena_finish(&arena);
}

/* Across nodes among equal local ranks, then inside each node. */
static void test_two_levels(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "2xdgx-a100-80gb");
	struct group group = {GROUP_SHARD, 16, 1, 0};
	const struct runtime *ours = runtime_of(RUNTIME_SHARDPLAN);
	const struct runtime *flat = runtime_of(RUNTIME_PYTORCH_FSDP1);
	int64_t bytes = INT64_C(1) << 30;
	(void)state;
	double inside = ms(&t, RUNTIME_PYTORCH_FSDP1, OP_ALL_GATHER, 8, 1, bytes);
	double across = ms(&t, RUNTIME_PYTORCH_FSDP1, OP_ALL_GATHER, 2, 8, bytes / 8);
	assert_close(ms(&t, RUNTIME_SHARDPLAN, OP_ALL_GATHER, 16, 1, bytes), inside + across, 1e-9);
	/* n nodes: (n - 1) / n of the payload leaves each; a flat ring sends 15/16 of it. */
	assert_close(collective_node_egress(&t, ours, COLLECTIVE_ALL_GATHER, &group, bytes),
		bytes / 2.0, 1e-12);
	assert_close(collective_node_egress(&t, flat, COLLECTIVE_ALL_GATHER, &group, bytes),
		bytes * 15.0 / 16, 1e-12);
	arena_finish(&arena);
}

/* Processes of one host copy through memory: twice the ranks do not halve the time of each. */
static void test_processes_of_one_host(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	make_processes(&s.topology);
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
	/* More ranks than cores: half a time slice for each rank that a core has besides. */
	double small = ms(&s.topology, r, OP_ALL_REDUCE, 4, 1, 16);
	assert_true(small < 0.1);
	s.topology.host.cores = 2;
	assert_close(ms(&s.topology, r, OP_ALL_REDUCE, 4, 1, 16) - small, 2, 0.01);
	s.topology.host.cores = 1;
	assert_close(ms(&s.topology, r, OP_ALL_REDUCE, 4, 1, 16) - small, 6, 0.01);
	sketch_finish(&s);
}

/* More bytes never take less time. */
static void test_time_grows_with_size(void **state)
{
	static const char *const names[] = {
		"dgx-a100-80gb", "4xdgx-a100-80gb", "2xdgx-h100", "dgx-v100", "rtx4090-8x"};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(names); i++) {
		struct topology t = load_topology(&arena, names[i]);

		for (enum op_kind kind = 0; kind < OP_KIND_COUNT; kind++) {
			double last = 0;

			if (op_kind_class(kind) != OP_CLASS_COLLECTIVE)
				continue;
			for (int64_t bytes = 4; bytes < INT64_C(1) << 36; bytes *= 2) {
				double time = ms(&t, RUNTIME_PYTORCH_FSDP1, kind,
					topology_devices(&t), 1, bytes);

				assert_true(time > 0 && time >= last);
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
		cmocka_unit_test(test_anchors),
		cmocka_unit_test(test_better_links_never_slow),
		cmocka_unit_test(test_gather_equals_scatter),
		cmocka_unit_test(test_gathers_by_broadcast),
		cmocka_unit_test(test_gathers_over_efa),
		cmocka_unit_test(test_tuned_efa),
		cmocka_unit_test(test_groups_fill_the_nics),
		cmocka_unit_test(test_congestion),
		cmocka_unit_test(test_latency_of_the_kind),
		cmocka_unit_test(test_measured_pieces_come_first),
		cmocka_unit_test(test_a_group_of_one_is_free),
		cmocka_unit_test(test_two_levels),
		cmocka_unit_test(test_processes_of_one_host),
		cmocka_unit_test(test_time_grows_with_size),
	};
	return cmocka_run_group_tests_name("simulator collectives", tests, NULL, NULL);
}
