/* Statistics, the parts of a step's time, detection and calibration of this machine, and
 * waiting. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "executor/calibration/bench.h"
#include "executor/interpreter/recorder.h"
#include "executor/memory/memory.h"
#include "executor/ranks/event.h"
#include "executor/ranks/machine.h"

static void spreads(void **state)
{
	double values[] = {5, 1, 4, 2, 3}, one[] = {7};
	struct spread spread = measure_spread(values, 5);

	(void)state;
	assert_true(spread.mean == 3 && spread.p50 == 3 && spread.variance == 2.5);
	assert_true(fabs(spread.p10 - 1.4) < 1e-12 && fabs(spread.p95 - 4.8) < 1e-12);
	spread = measure_spread(one, 1);
	assert_true(spread.mean == 7 && spread.p95 == 7 && spread.variance == 0);
	spread = measure_spread(one, 0);
	assert_true(spread.mean == 0);
}

/* A time and a rate in five visits: what each is taken for so far, and what is kept of all. */
static void figures_are_the_middle_of_visits(void **state)
{
	static const double seen[][2] = {{5, 1}, {1, 4}, {3, 2}, {2, 2}, {2, 8}};
	static const double taken[][2] = {{5, 1}, {3, 1.6}, {3, 2}, {2.5, 2}, {2, 2}};
	struct calibration calibration = {0};
	struct bench bench = {.calibration = &calibration};

	(void)state;
	for (bench.visit = 0; bench.visit < COUNT_OF(seen); bench.visit++) {
		bench.figure = 0;
		for (int i = 0; i < 2; i++) {
			double value = seen[bench.visit][i];
			struct spread spread = measure_spread(&value, 1);

			assert_float_equal(bench_figure(&bench, (enum figure)i, &spread),
				taken[bench.visit][i], 1e-12);
		}
	}
	assert_int_equal(bench.n_spreads, 2 * COUNT_OF(seen));
	bench.collective_best = 1.8;
	bench.n_collectives = 2;
	bench_conclude(&bench, COUNT_OF(seen));
	assert_float_equal(calibration.collective_best, 0.9, 1e-12);
	/* Divided by the middles the tries are 0.25 0.5 0.5 1 1 1 1 1 1.5 2 2.5: this is their
	 * lowest tenth. */
	assert_in_range((int)(100 * calibration.compute_best), 45, 55);
	assert_true(calibration.residual_spread > 0.4);
}

/* One visit says nothing of others. */
static void quick_figures_have_no_best(void **state)
{
	struct calibration calibration = {0};
	struct bench bench = {.calibration = &calibration};
	double values[] = {1, 1, 1.2};
	struct spread spread = measure_spread(values, 3);

	(void)state;
	bench_figure(&bench, FIGURE_TIME, &spread);
	bench_conclude(&bench, 1);
	assert_true(calibration.compute_best == 0 && calibration.collective_best == 0);
	assert_true(calibration.residual_spread > 0);
}

/* Two gathers, of which the second is half hidden; a reduction that nothing hides. */
static void time_is_split(void **state)
{
	static struct op ops[] = {
		{.kind = OP_ALL_GATHER, .stream = STREAM_GATHER},
		{.kind = OP_FORWARD, .stream = STREAM_COMPUTE},
		{.kind = OP_ALL_GATHER, .stream = STREAM_GATHER},
		{.kind = OP_BACKWARD, .stream = STREAM_COMPUTE},
		{.kind = OP_REDUCE_SCATTER, .stream = STREAM_REDUCE},
		{.kind = OP_ACCUMULATE_GRADIENTS, .stream = STREAM_REDUCE},
		{.kind = OP_RESHARD, .stream = STREAM_COMPUTE},
		{.kind = OP_OPTIMIZER, .stream = STREAM_COMPUTE},
	};
	static const struct span spans[] = {{0, 0, 1}, {0, 1, 3}, {0, 2, 4}, {0, 4, 7}, {0, 7, 9},
		{0, 9, 9.5}, {0, 7, 7}, {0, 10, 11}};
	const struct program program = {.n_ops = COUNT_OF(ops), .ops = ops};
	struct arena arena = {0};
	struct time_split split = measure_time_split(&program, spans, &arena);

	(void)state;
	assert_true(split.compute == 5.5 && split.all_gather == 3 && split.reduce_scatter == 2);
	assert_true(split.optimizer == 1 && split.copy == 0 && split.all_reduce == 0);
	assert_true(split.exposed_communication == 1 + 1 + 2);
	arena_finish(&arena);
}

static void recorders_keep_some_timelines(void **state)
{
	enum { STEPS = 1000, OPS = 500 };
	struct recorder recorder;
	struct timeline timeline;
	struct arena arena = {0};

	(void)state;
	recorder_open(&recorder, STEPS, OPS, &arena);
	timeline_init(&timeline, OPS, &arena);
	/* 12 MB of timelines do not stay. */
	assert_true(recorder.every > 1);
	for (int i = 0; i < STEPS; i++)
		recorder_add(&recorder, &timeline, i, 2 * i, 3 * i);
	assert_int_equal(recorder.done, STEPS);
	assert_true(recorder.losses[999] == 1998 && recorder.gradient_norms[1] == 3);
	arena_finish(&arena);
}

static void allocations_are_seen(void **state)
{
	(void)state;
	if (!allocations_visible())
		skip();
	/* Volatile: a compiler may leave out memory that is only freed again. */
	char *volatile block;
	allocations_watch();
	block = malloc(1000);
	free(block);
	block = calloc(10, 100);
	block = realloc(block, 500);
	free(block);
	assert_int_equal(allocations_seen(), 2500);
	block = malloc(1000);
	free(block);
	allocations_watch();
	assert_int_equal(allocations_seen(), 0);
}

static void *set_later(void *event)
{
	usleep(20000);
	event_set(event, 5);
	return NULL;
}

static void waiting_ends(void **state)
{
	struct event event = {0};
	_Atomic uint32_t abort = 0;
	const struct patience brief = {.abort = &abort, .timeout = 0.05};
	pthread_t thread;

	(void)state;
	assert_int_equal(event_wait(&event, 0, &brief), EVENT_REACHED);
	assert_int_equal(event_wait(&event, 1, &brief), EVENT_TIMED_OUT);
	pthread_create(&thread, NULL, set_later, &event);
	assert_int_equal(event_wait(&event, 5, &(struct patience){.timeout = 10}), EVENT_REACHED);
	pthread_join(thread, NULL);
	abort = 1;
	assert_int_equal(event_wait(&event, 6, &brief), EVENT_ABORTED);
	/* Counters wrap. */
	event_set(&event, UINT32_MAX);
	assert_true(event_reached(&event, UINT32_MAX - 1));
	assert_false(event_reached(&event, 3));
	event_set(&event, 3);
	assert_true(event_reached(&event, UINT32_MAX));
}

static void this_machine_is_a_topology(void **state)
{
	struct topology *cores, *eight;
	struct arena arena = {0};
	struct error error = {0};

	(void)state;
	assert_true(executor_detect_local(0, &arena, &cores, &error));
	assert_true(executor_detect_local(8, &arena, &eight, &error));
	assert_string_equal(cores->name, "local");
	assert_true(cores->shares_host && eight->shares_host);
	assert_in_range(cores->devices_per_node, 1, machine_cpus());
	assert_int_equal(eight->devices_per_node, 8);
	assert_int_equal(cores->host.memory_bytes, machine_memory());
	assert_true(eight->device.memory_bytes * 8 <= eight->host.memory_bytes);
	assert_false(cores->calibration.measured);
	/* The range reaches from a slow embedded core to a fast one with two 512-bit units. */
	assert_true(cores->device.fp32_flops > 1e9 && cores->device.fp32_flops < 1e12);
	assert_non_null(strstr(cores->source, "priors"));
	arena_finish(&arena);
}

/* Two ranks only, as quickly as it goes: that every figure is there, and of a possible size. */
static void calibration_is_complete(void **state)
{
	static const int64_t ranks[] = {2};
	const struct calibrate_options options = {.quick = true, .ranks = ranks, .n_ranks = 1};
	struct calibration c;
	struct topology *topology;
	struct arena arena = {0};
	struct error error = {0};

	(void)state;
	if (!executor_calibrate(&options, &arena, &c, &error))
		fail_msg("%s", error.message);
	assert_true(c.measured && c.gemm_flops > 1e7 && c.gemm_flops < 1e13);
	assert_true(c.gemm_half_m >= 0 && c.gemm_half_n >= 0 && c.gemm_half_k >= 0);
	assert_true(c.attention_forward_flops > 1e6 && c.attention_backward_flops > 1e6);
	assert_true(c.memory_bandwidth > 1e7 && c.memory_bandwidth_shared > 1e7);
	assert_true(c.optimizer_bandwidth > 1e6);
	assert_true(c.kernel_overhead > 0 && c.kernel_overhead < 1e-3);
	assert_true(c.host_overhead > 0 && c.host_overhead < 1e-3);
	assert_true(c.residual_spread >= 0);
	assert_true(c.threads_speedup >= 1);
	/* The products are in fp32 and bf16: the five linears of one length, three ways; three of
	 * the fifteen are the same product as another. */
	assert_int_equal(c.n_products, 2 * 12);
	for (int i = 0; i < c.n_products; i++)
		assert_true(c.products[i].flops > 1e6 && c.products[i].flops < 1e13);
	assert_true(executor_detect_local(2, &arena, &topology, &error));
	topology->calibration = c;
	if (!topology_check(topology, NULL, &error))
		fail_msg("%s", error.message);
	for (int kind = 0; kind < 3; kind++) {
		const struct calibration_collective *small =
			calibration_find(&c, (enum collective_kind)kind, 2, 1, 1 << 10);
		const struct calibration_collective *large =
			calibration_find(&c, (enum collective_kind)kind, 2, 1, 1 << 30);

		assert_non_null(small);
		assert_non_null(large);
		assert_true(small != large && large->bandwidth > 0 && small->latency >= 0);
	}
	assert_null(calibration_find(&c, COLLECTIVE_ALL_GATHER, 4, 1, 1024));
	arena_finish(&arena);
}

/* An adapter's files, as Linux has them under /sys/class/infiniband. */
static void make_adapter(const char *folder, const char *name, const char *state, const char *layer)
{
	char command[512];

	snprintf(command, sizeof(command),
		"mkdir -p %s/%s/ports/1 && echo '%s' >%s/%s/ports/1/state && "
		"echo '%s' >%s/%s/ports/1/link_layer",
		folder, name, state, folder, name, layer, folder, name);
	assert_int_equal(system(command), 0);
}

static void adapters_are_counted(void **state)
{
	char folder[] = "adapters-XXXXXX", command[64];
	enum network_kind kind = NETWORK_ETHERNET;
	int64_t n = 1;

	(void)state;
	assert_non_null(mkdtemp(folder));
	machine_network(folder, &kind, &n);
	assert_int_equal(kind, NETWORK_ETHERNET);
	make_adapter(folder, "mlx5_0", "4: ACTIVE", "InfiniBand");
	make_adapter(folder, "mlx5_1", "4: ACTIVE", "InfiniBand");
	make_adapter(folder, "mlx5_2", "1: DOWN", "InfiniBand");
	make_adapter(folder, "mlx5_3", "4: ACTIVE", "Ethernet");
	machine_network(folder, &kind, &n);
	assert_int_equal(kind, NETWORK_INFINIBAND);
	assert_int_equal(n, 2);
	for (int i = 0; i < 3; i++) {
		const char *const names[] = {"rdmap16s27", "rdmap32s27", "efa_0"};

		make_adapter(folder, names[i], "4: ACTIVE", "Unspecified");
	}
	machine_network(folder, &kind, &n);
	assert_int_equal(kind, NETWORK_EFA);
	assert_int_equal(n, 3);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adapters_are_counted),
		cmocka_unit_test(spreads),
		cmocka_unit_test(figures_are_the_middle_of_visits),
		cmocka_unit_test(quick_figures_have_no_best),
		cmocka_unit_test(time_is_split),
		cmocka_unit_test(recorders_keep_some_timelines),
		cmocka_unit_test(allocations_are_seen),
		cmocka_unit_test(waiting_ends),
		cmocka_unit_test(this_machine_is_a_topology),
	};
	/* A quarter of a minute of arithmetic, which cli-contract goes through too. */
	const struct CMUnitTest slow[] = {cmocka_unit_test(calibration_is_complete)};

	run_as_rank(argc, argv);
	if (argc > 1 && strcmp(argv[1], "slow") == 0)
		return cmocka_run_group_tests(slow, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
