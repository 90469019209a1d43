/* The protocols of gathers between nodes: where they change, what the environment forbids, what a
 * topology's own latency adds. */
#include "sketch.h"

#include <math.h>

#include "simulator/costs/costs.h"
#include "simulator/nccl/nccl.h"

static void assert_close(double got, double expected, double tolerance)
{
	if (!(fabs(got / expected - 1) <= tolerance))
		fail_msg("expected %.6g within %.2g %%, got %.6g", expected, 100 * tolerance, got);
}

static const struct libraries recent;

static struct nccl_choice gather(const struct topology *topology, int64_t bytes)
{
	struct placement placement = topology_place(topology, topology_devices(topology), 1);

	return nccl_choose(topology, &recent, &placement, COLLECTIVE_ALL_GATHER, bytes);
}

/* 16 GPUs of two nodes with 8 x 400 Gbit/s. NCCL's tables give LL 6.6 + 14 x 1 + 2.7 = 23.3 us,
 * LL128 14 + 14 x 1.9 + 4 = 44.6, Simple 8.4 + 14 x 3.4 + 14 = 70; LL carries 39 GB/s, so LL128 is
 * taken from 21.3 us x 39 = 831 kB on, moved bytes; Simple from 25.4 us x 352 / (1 / 0.92 - 1) =
 * 102.8 MB on. */
static void test_gathers_step_by_protocol(void **state)
{
	static const struct {
		int64_t bytes;
		const char *protocol;
		double latency, share;
	} steps[] = {
		{INT64_C(1) << 16, "LL", 23.3, 0.5},
		{INT64_C(1) << 19, "LL", 23.3, 0.5},
		{INT64_C(1) << 20, "LL128", 44.6, 0.92},
		{INT64_C(1) << 26, "LL128", 44.6, 0.92},
		{INT64_C(1) << 27, "Simple", 70, 1},
	};
	static const enum collective_kind kinds[] = {
		COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE_SCATTER};
	struct group group = {GROUP_SHARD, 16, 1, 0};
	struct arena arena = {0};
	(void)state;
	struct topology t = load_topology(&arena, "2xa4-highgpu-8g");
	for (int i = 0; i < COUNT_OF(steps) * COUNT_OF(kinds); i++) {
		int64_t bytes = steps[i / 2].bytes;
		struct collective_choice choice = cost_collective_choice(
			&t, NULL, runtime_of(RUNTIME_PYTORCH_FSDP2), kinds[i % 2], &group, bytes);

		assert_string_equal(choice.algorithm, "ring");
		assert_string_equal(choice.protocol, steps[i / 2].protocol);
		assert_close(1e6 * choice.seconds,
			1.85 * steps[i / 2].latency +
				(double)bytes * 15 / 16 / (352e3 * steps[i / 2].share),
			1e-9);
	}
	arena_finish(&arena);
}

/* On AMD hosts NCCL's tables give a hop 2 us at least, Simple 6, and LL 22.5 GB/s: LL 37.3 us,
 * LL128 46, so LL128 is taken from 8.7 us x 22.5 = 196 kB on, moved bytes. Two nodes of eight B200
 * beside EPYC (Vultr, published): 42.3 us at 128 KiB, 75.9 at 256 KiB, 39.8 at 64 KiB. */
static void test_amd_hosts_move_the_choice_only(void **state)
{
	static const struct {
		int64_t bytes;
		enum nccl_protocol intel, amd;
		double published; /* us, beside EPYC */
	} cases[] = {{1 << 16, NCCL_LL, NCCL_LL, 39.75}, {1 << 17, NCCL_LL, NCCL_LL, 42.31},
		{1 << 18, NCCL_LL, NCCL_LL128, 75.85}, {1 << 19, NCCL_LL, NCCL_LL128, 75.86},
		{1 << 20, NCCL_LL128, NCCL_LL128, 77.59}};
	struct arena arena = {0};
	struct topology intel = load_topology(&arena, "2xa4-highgpu-8g"), amd = intel;
	(void)state;
	amd.host.cpu = CPU_AMD;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct nccl_choice a = gather(&intel, cases[i].bytes);
		struct nccl_choice b = gather(&amd, cases[i].bytes);

		assert_int_equal(a.protocol, cases[i].intel);
		assert_int_equal(b.protocol, cases[i].amd);
		if (a.protocol == b.protocol)
			assert_close(b.seconds, a.seconds, 1e-9);
		assert_close(1e6 * b.seconds, cases[i].published, 0.11);
	}
	arena_finish(&arena);
}

/* Eight B200 of one node, as published (b200-slurm; the first row of each protocol and the last):
 * flat while NCCL adds channels, LL to 8 MiB, LL128 to 16 at least. */
static void test_gathers_step_inside_a_node(void **state)
{
	static const struct {
		int64_t bytes;
		enum nccl_protocol protocol;
		double published; /* us */
	} cases[] = {{1 << 16, NCCL_LL, 18.7}, {1 << 20, NCCL_LL, 19.69}, {1 << 21, NCCL_LL, 22.35},
		{1 << 22, NCCL_LL, 29.96}, {1 << 23, NCCL_LL, 44.92}, {1 << 24, NCCL_LL128, 49.04},
		{INT64_C(1) << 28, NCCL_SIMPLE, 393.96}};
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "dgx-b200");
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct nccl_choice choice = gather(&t, cases[i].bytes);

		assert_int_equal(choice.protocol, cases[i].protocol);
		assert_close(1e6 * choice.seconds, cases[i].published, 0.06);
	}
	assert_close(gather(&t, 1 << 20).seconds, gather(&t, 1 << 10).seconds, 1e-9);
	arena_finish(&arena);
}

/* Where NCCL changes protocol its time would fall; ours never does, nor does a better link or a
 * shorter hop ever cost anything. */
static void test_steps_inside_a_node_keep_the_laws(void **state)
{
	static const char *const nodes[] = {"dgx-b200", "dgx-h100", "dgx-h200", "gb200-nvl72"};
	static const int64_t ranks[] = {2, 3, 4, 8};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(nodes) * COUNT_OF(ranks); i++) {
		struct topology t = load_topology(&arena, nodes[i / COUNT_OF(ranks)]);
		struct topology wider = t, nearer = t;
		struct placement p = topology_place(&t, ranks[i % COUNT_OF(ranks)], 1);
		double before = 0;

		wider.fabric.bandwidth *= 1.3;
		nearer.fabric.latency *= 0.7;
		for (double bytes = 1024; bytes < 0x1p34; bytes *= 1.07) {
			int64_t b = (int64_t)bytes;
			double now = nccl_choose(&t, &recent, &p, COLLECTIVE_ALL_GATHER, b).seconds;

			assert_true(now >= before);
			assert_true(nccl_choose(&wider, &recent, &p, COLLECTIVE_ALL_GATHER, b)
					    .seconds <= now);
			assert_true(nccl_choose(&nearer, &recent, &p, COLLECTIVE_ALL_GATHER, b)
					    .seconds <= now);
			before = now;
		}
	}
	arena_finish(&arena);
}

static struct nccl_choice gather_by(
	const struct topology *topology, const char *libraries, int64_t bytes)
{
	struct placement placement = topology_place(topology, topology_devices(topology), 1);
	struct libraries versions;

	assert_true(libraries_read(libraries, &versions));
	return nccl_choose(topology, &versions, &placement, COLLECTIVE_ALL_GATHER, bytes);
}

/* Releases cap a channel of LL128 on Blackwell, so that a node leaves it for Simple at 13 and 32
 * MB, two nodes with 384 GB/s at 27 MB, in place of 44 and 105. 16 MiB over eight B200, published:
 * 100.7 to 107.1 us with NCCL 2.29.2 and .3 (aicr-b200-sweep, orcd-b200-*, found later), 49.0 with
 * an older one (b200-slurm). Hopper's cap has stayed. */
static void test_releases_cap_ll128(void **state)
{
	static const struct {
		const char *node, *libraries;
		int64_t mebibytes;
		enum nccl_protocol protocol;
	} cases[] = {
		{"dgx-b200", "unknown", 32, NCCL_LL128},
		{"dgx-b200", "nccl:2.28.9", 32, NCCL_LL128},
		{"dgx-b200", "nccl:2.29.2", 12, NCCL_LL128},
		{"dgx-b200", "nccl:2.29.2", 16, NCCL_SIMPLE},
		{"dgx-b200", "nccl:2.29.3", 16, NCCL_SIMPLE},
		{"dgx-b200", "nccl:2.29.7", 16, NCCL_LL128},
		{"dgx-b200", "nccl:2.30.7", 32, NCCL_SIMPLE},
		{"2xa4-highgpu-8g", "nccl:2.28.3", 32, NCCL_LL128},
		{"2xa4-highgpu-8g", "nccl:2.28.7", 16, NCCL_LL128},
		{"2xa4-highgpu-8g", "nccl:2.28.7", 32, NCCL_SIMPLE},
		{"2xa4-highgpu-8g", "unknown", 64, NCCL_LL128},
		{"dgx-h100", "nccl:2.27.3", 16, NCCL_LL128},
		{"dgx-h100", "nccl:2.29.2", 16, NCCL_LL128},
	};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct topology t = load_topology(&arena, cases[i].node);
		struct nccl_choice choice =
			gather_by(&t, cases[i].libraries, cases[i].mebibytes << 20);

		if (choice.protocol != cases[i].protocol)
			fail_msg("%s, %s, %lld MiB: %s", cases[i].node, cases[i].libraries,
				(long long)cases[i].mebibytes,
				nccl_protocol_names[choice.protocol]);
	}
	struct topology b200 = load_topology(&arena, "dgx-b200");

	assert_close(1e6 * gather_by(&b200, "nccl:2.29.3", 1 << 24).seconds, 104.0, 0.03);
	/* Few channels: LL128 has less than LL then, and is never taken. */
	b200.fabric.channels = 4;
	for (int64_t bytes = 1024; bytes < INT64_C(1) << 32; bytes *= 2) {
		double seconds = gather_by(&b200, "nccl:2.29.3", bytes).seconds;

		assert_true(seconds > 0 && seconds < 10);
		assert_true(gather_by(&b200, "nccl:2.29.3", bytes).protocol != NCCL_LL128);
		assert_true(gather_by(&b200, "nccl:2.29.3", 2 * bytes).seconds >= seconds);
	}
	arena_finish(&arena);
}

/* A chunk goes in two slices: where it is short a step is half of it and a wait of 11.7 us.
 * Published, us: eight B200 at 64 MiB 139.1 and 138.6 (b200-slurm), eight H100 at 32 MiB 128.2 and
 * 117.8 (simumax-h100), both fitted to; four B200 at 16 MiB 60.0 and 56.4 (aicr-b200-sweep), not.
 */
static void test_first_sizes_by_simple_wait(void **state)
{
	static const struct {
		const char *node;
		int64_t ranks, mebibytes;
		double published, tolerance;
	} cases[] = {{"dgx-b200", 8, 64, 138.9, 0.02}, {"dgx-h100", 8, 32, 123, 0.06},
		{"dgx-b200", 4, 16, 58.2, 0.03}};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct topology t = load_topology(&arena, cases[i].node);
		struct placement p = topology_place(&t, cases[i].ranks, 1);

		assert_close(1e6 * nccl_choose(&t, &recent, &p, COLLECTIVE_ALL_GATHER,
					   cases[i].mebibytes << 20)
					     .seconds,
			cases[i].published, cases[i].tolerance);
	}
	arena_finish(&arena);
}

/* Over several hosts of an NVLink domain a ring gets 0.66 of its links; one host of it is like any
 * other, and all-reduces through the switch are not concerned. Published, 1 GiB over 8 GB300 and 4
 * over 32: 1.92, 2.53, 2.38, 2.40 and 7.90 ms (torchtitan-gb300, fitted to). */
static void test_rings_over_hosts_get_less(void **state)
{
	static const int64_t ranks[] = {4, 8, 32};
	const int64_t gibibyte = INT64_C(1) << 30;
	struct arena arena = {0};
	struct topology rack = load_topology(&arena, "gb200-nvl72"), host = rack;
	(void)state;
	host.fabric.host_devices = 0;
	for (int i = 0; i < COUNT_OF(ranks); i++) {
		struct placement far = topology_place(&rack, ranks[i], 1);
		struct placement near = topology_place(&host, ranks[i], 1);

		assert_close(nccl_choose(&rack, &recent, &near, COLLECTIVE_ALL_GATHER, 8 * gibibyte)
				     .seconds,
			nccl_choose(&rack, &recent, &far, COLLECTIVE_ALL_GATHER, 8 * gibibyte)
					.seconds *
				(ranks[i] == 4 ? 1 : 0.66),
			0.02);
		assert_close(nccl_choose(&rack, &recent, &near, COLLECTIVE_ALL_REDUCE, 8 * gibibyte)
				     .seconds,
			nccl_choose(&rack, &recent, &far, COLLECTIVE_ALL_REDUCE, 8 * gibibyte)
				.seconds,
			ranks[i] == 8 ? 0.05 : 1e-12);
	}
	struct placement eight = topology_place(&rack, 8, 1), many = topology_place(&rack, 32, 1);

	assert_close(
		1e3 * nccl_choose(&rack, &recent, &eight, COLLECTIVE_ALL_GATHER, gibibyte).seconds,
		2.14, 0.01);
	assert_close(1e3 * nccl_choose(&rack, &recent, &many, COLLECTIVE_ALL_GATHER, 4 * gibibyte)
				     .seconds,
		7.9, 0.19);
	arena_finish(&arena);
}

/* NCCL_PROTO: what is forbidden is never taken, at no size, by no algorithm. */
static void test_the_environment_forbids(void **state)
{
	static const struct {
		enum network_protocols left;
		bool ll, ll128;
	} cases[] = {{PROTOCOLS_ALL, true, true}, {PROTOCOLS_SIMPLE_LL128, false, true},
		{PROTOCOLS_SIMPLE, false, false}};
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "2xdgx-h100");
	struct placement p = topology_place(&t, 16, 1);
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		bool seen[NCCL_PROTOCOL_COUNT] = {false};

		t.network.protocols = cases[i].left;
		for (int kind = 0; kind <= COLLECTIVE_ALL_REDUCE; kind++)
			for (int64_t bytes = 4; bytes < INT64_C(1) << 34; bytes *= 2)
				seen[nccl_choose(&t, &recent, &p, kind, bytes).protocol] = true;
		assert_int_equal(seen[NCCL_LL], cases[i].ll);
		assert_int_equal(seen[NCCL_LL128], cases[i].ll128);
		assert_true(seen[NCCL_SIMPLE]);
	}
	arena_finish(&arena);
}

/* A small gather waits longer for a protocol that synchronises more. */
static void test_fewer_protocols_wait_longer(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "2xdgx-h100");
	double all = gather(&t, 1 << 16).seconds, ll128, simple;
	(void)state;
	t.network.protocols = PROTOCOLS_SIMPLE_LL128;
	ll128 = gather(&t, 1 << 16).seconds;
	t.network.protocols = PROTOCOLS_SIMPLE;
	simple = gather(&t, 1 << 16).seconds;
	assert_true(all < ll128 && ll128 < simple);
	arena_finish(&arena);
}

/* What a topology states beyond NCCL's 14 us was measured, so it counts once, twice for Simple,
 * which flushes. */
static void test_stated_latency_counts_as_it_stands(void **state)
{
	static const struct {
		enum network_protocols left;
		double times;
	} cases[] = {{PROTOCOLS_ALL, 1}, {PROTOCOLS_SIMPLE_LL128, 1}, {PROTOCOLS_SIMPLE, 2}};
	struct arena arena = {0};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct topology near = load_topology(&arena, "2xa4-highgpu-8g"), far = near;

		near.network.protocols = far.network.protocols = cases[i].left;
		far.network.latency += 30e-6;
		assert_close(gather(&far, 1 << 16).seconds - gather(&near, 1 << 16).seconds,
			30e-6 * cases[i].times, 1e-9);
	}
	arena_finish(&arena);
}

/* GPUDirect-TCPX: a long wait that large transfers hide. 1 ms up to 8 MiB, 71 GB/s of 100 at half a
 * gigabyte (published by Google for two A3 High). */
static void test_waits_of_the_kernel_are_hidden(void **state)
{
	struct arena arena = {0};
	struct topology t = load_topology(&arena, "2xa3-highgpu-8g");
	double small = gather(&t, 1 << 20).seconds, large = gather(&t, 1 << 29).seconds;
	double transfer = (1 << 29) * 15.0 / 16 / (0.72 * 100e9);
	(void)state;
	assert_close(small, 1e-3, 0.06);
	assert_close((1 << 29) * 15.0 / 16 / large, 71e9, 0.01);
	assert_true(large > transfer && large < transfer + 0.1 * small);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gathers_step_by_protocol),
		cmocka_unit_test(test_amd_hosts_move_the_choice_only),
		cmocka_unit_test(test_gathers_step_inside_a_node),
		cmocka_unit_test(test_steps_inside_a_node_keep_the_laws),
		cmocka_unit_test(test_releases_cap_ll128),
		cmocka_unit_test(test_first_sizes_by_simple_wait),
		cmocka_unit_test(test_rings_over_hosts_get_less),
		cmocka_unit_test(test_the_environment_forbids),
		cmocka_unit_test(test_fewer_protocols_wait_longer),
		cmocka_unit_test(test_stated_latency_counts_as_it_stands),
		cmocka_unit_test(test_waits_of_the_kernel_are_hidden),
	};
	return cmocka_run_group_tests_name("simulator nccl protocols", tests, NULL, NULL);
}
