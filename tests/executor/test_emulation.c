/* One GPU, that is none, replays a cluster: ranks that share it hold every operation to its
 * modelled time on their streams, and what is measured by its events is the timeline that was
 * simulated. The fake GPU has a clock of its own (fakes/clock.c), so figures are exact. */
#include "support.h"

#include <math.h>
#include <stdlib.h>

#include "simulator/simulator.h"
#include "tests/executor/fakes/cuda.h"

/* Two nodes of `devices`. Its host issues in no time, so that streams say when things happen. */
#define CLUSTER(devices)                                                                           \
	"shardplan: topology/1\nname: cluster\nnodes: 2\ndevices_per_node: " devices "\n"          \
	"device:\n  name: slow\n  kind: gpu\n  generation: hopper\n  memory: 80GiB\n"              \
	"  memory_bandwidth: 1GB/s\n  fp32: 50GFLOPS\n  bf16: 50GFLOPS\n  multiprocessors: 132\n"  \
	"fabric:\n  kind: nvswitch\n  bandwidth: 10MB/s\n  latency: 3us\n  channels: 12\n"         \
	"network:\n  kind: infiniband\n  nics_per_node: 1\n  nic_bandwidth: 8Mbit/s\n"             \
	"  latency: 14us\n  oversubscription: 1\n"                                                 \
	"host:\n  memory: 1TiB\n  memory_bandwidth: 100GB/s\n  cores: 64\n"                        \
	"  pcie_bandwidth: 10MB/s\n  cpu: amd\n"                                                   \
	"calibration:\n  host_overhead: 1ps\n  kernel_overhead: 200us\n"

enum { STEPS = 3 };

static void simulate_plan(struct run *run, struct simulation *simulation)
{
	static const struct simulation_options options;

	if (!simulate(run->schedule, &options, true, &run->arena, simulation, &run->error))
		fail_msg("%s", run->error.message);
}

/* What is held to the simulated times, and how. */
struct replay {
	const char *options;
	unsigned pace;
	const char *transport;
	double slow_motion;
	const char *fault;
};

static bool replay(struct run *run, const char *cluster, const struct replay *how,
	struct simulation *simulation)
{
	struct executor_job job = run_job(STEPS);
	char options[256];

	snprintf(options, sizeof(options), "seq_len=11 micro_batch=1 runtime=shardplan %s %s",
		strstr(how->options, "param_dtype") != NULL ? "" : "param_dtype=fp32",
		how->options);
	run_plan_on(run, TINY_GPT2, cluster, options);
	simulate_plan(run, simulation);
	job.device = "cuda";
	job.transport = how->transport;
	job.kernels = "reference";
	job.expected = &simulation->timeline;
	job.pace = how->pace;
	job.slow_motion = how->slow_motion;
	job.fault = how->fault;
	return run_train(run, &job);
}

/* Where both begin: the first operation of the step. */
static double begin_of(const struct timeline *timeline)
{
	double first = INFINITY;

	for (int i = 0; i < timeline->n_ops; i++)
		first = fmin(first, timeline->spans[i].start);
	return first;
}

static double end_of(const struct timeline *timeline)
{
	double last = 0;

	for (int i = 0; i < timeline->n_ops; i++)
		last = fmax(last, timeline->spans[i].end);
	return last;
}

/* Returns by how much of the step an operation's start or end is off at most, and which one's. */
static double largest_difference(
	const struct run *run, const struct timeline *simulated, int *which)
{
	const struct timeline *measured = &run->measurement.timeline;
	double here = begin_of(measured), there = begin_of(simulated), largest = 0;

	assert_int_equal(measured->n_ops, simulated->n_ops);
	for (int i = 0; i < simulated->n_ops; i++) {
		const struct span *a = &measured->spans[i], *b = &simulated->spans[i];
		double start = fabs((a->start - here) - (b->start - there));
		double end = fabs((a->end - here) - (b->end - there));

		if (fmax(start, end) < largest)
			continue;
		largest = fmax(start, end);
		*which = i;
	}
	return largest / (end_of(simulated) - there);
}

static void expect_within(const char *cluster, const struct replay *how, double tolerance)
{
	struct simulation simulation;
	struct run run;
	int which = 0;

	if (!replay(&run, cluster, how, &simulation))
		fail_msg("%s: %s", how->options, run.error.message);
	const struct span *here = &run.measurement.timeline.spans[0];
	const struct span *there = &simulation.timeline.spans[0];
	double difference = largest_difference(&run, &simulation.timeline, &which);
	if (!(difference < tolerance))
		fail_msg("%s: operation %d (%s): %.9f to %.9f, simulated %.9f to %.9f",
			how->options, which,
			op_kind_name(run.schedule->programs[0].ops[which].kind), here[which].start,
			here[which].end, there[which].start, there[which].end);
	assert_true(run.measurement.paced_operations > 0);
	assert_int_equal(run.measurement.late_operations, 0);
	run_finish(&run);
}

/* Events are read in floats of a millisecond, and the simulated host takes some us for itself after
 * a wait. */
static void expect_equal(const char *cluster, const struct replay *how)
{
	expect_within(cluster, how, 1e-4);
}

static void small_clusters_are_replayed(void **state)
{
	static const char *const plans[] = {"strategy=FULL_SHARD prefetch=pre",
		"strategy=FULL_SHARD prefetch=none", "strategy=SHARD_GRAD_OP",
		"strategy=HYBRID_SHARD shard_group=2", "strategy=NO_SHARD",
		"strategy=FULL_SHARD activation_checkpointing=full grad_accum=2",
		"strategy=ZERO_1"};

	(void)state;
	for (int i = 0; i < COUNT_OF(plans); i++)
		expect_equal(CLUSTER("2"), &(struct replay){plans[i], PACE_ALL, NULL, 0});
}

static void two_nodes_of_eight_are_replayed(void **state)
{
	(void)state;
	expect_equal(
		CLUSTER("8"), &(struct replay){"strategy=HYBRID_SHARD shard_group=8 prefetch=pre",
				      PACE_ALL, NULL, 0});
}

/* Sixteen ranks have more streams than a GPU has queues. Neighbours share streams then, so that
 * nobody waits for a stranger; only small operations that all have at once pass one by one. */
static void a_gpu_with_as_many_queues_as_there_are(void **state)
{
	static const char *const plans[] = {"strategy=HYBRID_SHARD shard_group=8 prefetch=pre",
		"strategy=FULL_SHARD prefetch=pre param_dtype=bf16"};

	(void)state;
	setenv("TEST_QUEUES", "32", 1);
	for (int i = 0; i < COUNT_OF(plans); i++)
		expect_within(
			CLUSTER("8"), &(struct replay){plans[i], PACE_ALL, NULL, 0, NULL}, 2e-3);
	unsetenv("TEST_QUEUES");
}

static void slow_motion_is_taken_out_again(void **state)
{
	(void)state;
	expect_equal(CLUSTER("2"),
		&(struct replay){"strategy=FULL_SHARD prefetch=pre", PACE_ALL, "device", 16});
}

/* The control: what is not held takes no time here, and shows. */
static void what_is_not_held_shows(void **state)
{
	static const unsigned paces[] = {PACE_COMPUTE, PACE_COLLECTIVES};

	(void)state;
	for (int i = 0; i < COUNT_OF(paces); i++) {
		const struct replay how = {
			"strategy=FULL_SHARD prefetch=pre", paces[i], "device", 0};
		struct simulation simulation;
		struct run run;
		int which = 0;

		if (!replay(&run, CLUSTER("2"), &how, &simulation))
			fail_msg("%s", run.error.message);
		double difference = largest_difference(&run, &simulation.timeline, &which);
		if (!(difference > 0.01))
			fail_msg("pace %u: only %g of the step off", paces[i], difference);
		run_finish(&run);
	}
}

/* A GPU that is slower than what it stands for says by how much. */
static void lateness_is_counted(void **state)
{
	const struct replay how = {"strategy=FULL_SHARD prefetch=pre", PACE_ALL, NULL, 0};
	struct simulation simulation;
	struct run run;

	(void)state;
	setenv("TEST_KERNEL_S", "10", 1);
	bool ok = replay(&run, CLUSTER("2"), &how, &simulation);
	unsetenv("TEST_KERNEL_S");
	if (!ok)
		fail_msg("%s", run.error.message);
	assert_true(run.measurement.late_operations > 0);
	assert_true(run.measurement.late > 10);
	run_finish(&run);
}

/* A rank that waits for the others on the way through a stream that they share learns that one gave
 * up. */
static void nobody_waits_for_a_rank_that_is_gone(void **state)
{
	const struct replay how = {
		"strategy=HYBRID_SHARD shard_group=8", PACE_ALL, NULL, 0, "mismatch_rank=3@step=1"};
	struct simulation simulation;
	struct run run;

	(void)state;
	assert_false(replay(&run, CLUSTER("8"), &how, &simulation));
	assert_int_equal(run.error.code, EXIT_CODE_FAULT);
	assert_non_null(strstr(run.error.message, "rank 3"));
	run_finish(&run);
}

/* NCCL's kernels end when they end; what is beside them can be held. */
static void collectives_of_nccl_are_not_held(void **state)
{
	struct replay how = {"strategy=FULL_SHARD", PACE_ALL, "nccl", 0};
	struct simulation simulation;
	struct run run;

	(void)state;
	assert_false(replay(&run, CLUSTER("2"), &how, &simulation));
	assert_int_equal(run.error.code, EXIT_CODE_USAGE);
	run_finish(&run);
	how.pace = PACE_COMPUTE;
	if (!replay(&run, CLUSTER("2"), &how, &simulation))
		fail_msg("%s", run.error.message);
	assert_true(run.measurement.paced_operations > 0);
	run_finish(&run);
}

int main(int argc, char **argv)
{
	/* Arithmetic takes no time here: what is not held ends at once. */
	const char *kernel = getenv("TEST_KERNEL_S"), *queues = getenv("TEST_QUEUES");
	const struct fake_rates rates = {.kernel = kernel != NULL ? strtod(kernel, NULL) : 0};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_clusters_are_replayed),
		cmocka_unit_test(two_nodes_of_eight_are_replayed),
		cmocka_unit_test(a_gpu_with_as_many_queues_as_there_are),
		cmocka_unit_test(slow_motion_is_taken_out_again),
		cmocka_unit_test(what_is_not_held_shows),
		cmocka_unit_test(lateness_is_counted),
		cmocka_unit_test(nobody_waits_for_a_rank_that_is_gone),
		cmocka_unit_test(collectives_of_nccl_are_not_held),
	};

	fake_cuda_install(4, 1);
	fake_nccl_install();
	fake_cuda_limit_queues(queues != NULL ? atoi(queues) : 0);
	if (argc > 1 && strcmp(argv[1], EXECUTOR_RANK_ARGUMENT) == 0)
		fake_clock_start(&rates);
	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
