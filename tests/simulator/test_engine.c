/* The event engine on schedules drawn by hand, with times computed by hand. */
#include <string.h>

#include "simulator/costs/costs.h"
#include "simulator/engine/inside.h"
#include "sketch.h"

#define MS 1e-3

static void test_streams_overlap(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 3 * MS);
	int compute = sketch_traffic(&s, STREAM_COMPUTE, 5 * MS);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, gather)->start, 0);
	assert_seconds(sketch_span(&s, compute)->start, 0);
	assert_seconds(sketch_span(&s, gather)->end, 3 * MS);
	assert_seconds(s.simulation.prediction.step_time, 5 * MS);
	assert_seconds(s.simulation.prediction.time.all_gather, 3 * MS);
	assert_seconds(s.simulation.prediction.time.compute, 5 * MS);
	assert_seconds(s.simulation.prediction.time.exposed_communication, 0);
	sketch_finish(&s);
}

static void test_a_wait_orders_streams(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 3 * MS);
	int compute = sketch_traffic(&s, STREAM_COMPUTE, 5 * MS);
	sketch_link(&s, compute, LINK_WAIT, gather);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, compute)->start, 3 * MS);
	assert_seconds(s.simulation.prediction.step_time, 8 * MS);
	assert_seconds(s.simulation.prediction.time.exposed_communication, 3 * MS);
	sketch_finish(&s);
}

/* Compute on another stream does not hide communication (it is not what the step waits for). */
static void test_exposed_is_judged_by_the_compute_stream(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	sketch_gather(&s, STREAM_GATHER, 0, 4 * MS);
	sketch_traffic(&s, STREAM_REDUCE, 3 * MS);
	sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	s.options.no_contention = true;
	sketch_run(&s);
	assert_seconds(s.simulation.prediction.time.exposed_communication, 3 * MS);
	sketch_finish(&s);
}

/* One communicator carries out its collectives one at a time in issue order, whatever streams they
 * come from; the second is not overtaken by a third that is ready. */
static void test_one_engine_is_fifo(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int compute = sketch_traffic(&s, STREAM_COMPUTE, 4 * MS);
	int first = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	int second = sketch_gather(&s, STREAM_REDUCE, 0, 1 * MS);
	int third = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	sketch_link(&s, second, LINK_WAIT, compute);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, first)->start, 0);
	assert_seconds(sketch_span(&s, second)->start, 4 * MS);
	assert_seconds(sketch_span(&s, third)->start, 5 * MS);
	assert_seconds(s.simulation.prediction.step_time, 6 * MS);
	sketch_finish(&s);
}

static void test_two_engines_run_together(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	sketch_gather(&s, STREAM_GATHER, 0, 2 * MS);
	int other = sketch_gather(&s, STREAM_REDUCE, 1, 3 * MS);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, other)->start, 0);
	assert_seconds(s.simulation.prediction.step_time, 3 * MS);
	sketch_finish(&s);
}

/* Two gathers that would each fill the port: both at half speed, then the longer one alone. */
static void test_links_are_shared(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	s.topology.fabric.bandwidth = 0.75e9; /* 3/4 of each byte is sent in 1 ns */
	int a = sketch_gather(&s, STREAM_GATHER, 0, 2 * MS);
	int b = sketch_gather(&s, STREAM_REDUCE, 1, 3 * MS);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, a)->end, 4 * MS);
	assert_seconds(sketch_span(&s, b)->end, 5 * MS);
	s.options.no_contention = true;
	sketch_run(&s);
	assert_seconds(s.simulation.prediction.step_time, 3 * MS);
	sketch_finish(&s);
}

/* A gather that needs a quarter of the memory beside a kernel that needs all of it: both at 1
 * / 1.25 until the gather has finished. */
static void test_memory_is_shared(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	s.topology.device.memory_bandwidth = 6e9; /* a gather moves 2 * 3/4 of each byte in 1 ns */
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 4 * MS);
	int kernel = sketch_traffic(&s, STREAM_COMPUTE, 8 * MS);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, gather)->end, 5 * MS);
	assert_seconds(sketch_span(&s, kernel)->end, 9 * MS);
	s.options.no_contention = true;
	sketch_run(&s);
	assert_seconds(sketch_span(&s, gather)->end, 4 * MS);
	sketch_finish(&s);
}

/* Kernels of two streams take turns: half speed while both run. */
static void test_kernels_take_turns(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int a = sketch_traffic(&s, STREAM_COMPUTE, 5 * MS);
	int b = sketch_traffic(&s, STREAM_REDUCE, 1 * MS);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, b)->end, 2 * MS);
	assert_seconds(sketch_span(&s, a)->end, 6 * MS);
	sketch_finish(&s);
}

/* The rate limiter: the host waits for an operation before it issues the next. */
static void test_host_wait(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	int a = sketch_traffic(&s, STREAM_COMPUTE, 2 * MS);
	int b = sketch_traffic(&s, STREAM_COMPUTE, 2 * MS);
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	sketch_link(&s, gather, LINK_HOST_WAIT, a);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, b)->issued, 0);
	assert_seconds(sketch_span(&s, gather)->issued, 2 * MS);
	assert_seconds(sketch_span(&s, gather)->start, 2 * MS);
	assert_seconds(s.simulation.prediction.step_time, 4 * MS);
	sketch_finish(&s);
}

/* A host that is slower than the device. */
static void test_issue_costs(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 1 * MS);
	int a = sketch_traffic(&s, STREAM_COMPUTE, 0.25 * MS);
	int b = sketch_traffic(&s, STREAM_COMPUTE, 0.25 * MS);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, a)->issued, 1 * MS);
	assert_seconds(sketch_span(&s, a)->start, 1 * MS);
	assert_seconds(sketch_span(&s, b)->start, 2 * MS);
	assert_seconds(s.simulation.prediction.step_time, 2.25 * MS);
	sketch_finish(&s);
}

/* A stream takes 1024 launches; the next one waits for the first to be done. Other streams have
 * queues of their own. */
static void test_launch_queue(void **state)
{
	enum { QUEUE = 1024 };
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	for (int i = 0; i < QUEUE; i++)
		sketch_traffic(&s, STREAM_COMPUTE, 2 * MS);
	int other = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	int next = sketch_traffic(&s, STREAM_COMPUTE, 2 * MS);
	int last = sketch_traffic(&s, STREAM_COMPUTE, 2 * MS);
	int behind = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, QUEUE - 1)->issued, 0);
	assert_seconds(sketch_span(&s, other)->issued, 0);
	assert_seconds(sketch_span(&s, next)->issued, 2 * MS);
	assert_seconds(sketch_span(&s, last)->issued, 4 * MS);
	assert_seconds(sketch_span(&s, behind)->issued, 4 * MS);
	assert_seconds(s.simulation.prediction.step_time, (QUEUE + 2) * 2 * MS);
	sketch_finish(&s);
}

/* i < 0 names an operation of the step before. With a host that does not read the loss, the first
 * operation would otherwise overlap the last of the step before. */
static void test_waits_for_the_step_before(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	s.options.host_runs_ahead = true;
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 2 * MS);
	int compute = sketch_traffic(&s, STREAM_COMPUTE, 3 * MS);
	int optimizer = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	sketch_link(&s, compute, LINK_WAIT, gather);
	sketch_run(&s);
	assert_seconds(s.simulation.prediction.step_time, 4 * MS); /* the gather is hidden */
	sketch_link(&s, gather, LINK_WAIT, optimizer - s.program.n_ops);
	sketch_run(&s);
	assert_seconds(s.simulation.prediction.step_time, 6 * MS);
	assert_seconds(sketch_span(&s, gather)->start, 0);
	sketch_finish(&s);
}

/* Reading the loss: nothing of a step is issued before the step before is over. */
static void test_the_host_reads_the_loss(void **state)
{
	struct sketch s;
	(void)state;
	sketch_init(&s, 0);
	sketch_gather(&s, STREAM_GATHER, 0, 2 * MS);
	int compute = sketch_traffic(&s, STREAM_COMPUTE, 3 * MS);
	sketch_link(&s, compute, LINK_WAIT, 0);
	sketch_run(&s);
	assert_seconds(s.simulation.prediction.step_time, 5 * MS);
	assert_true(sketch_span(&s, 0)->issued >= 0);
	sketch_finish(&s);
}

/* A compute operation of several kernels: it starts with the first launch and ends no earlier than
 * the last one. */
static void test_launches_bound_small_kernels(void **state)
{
	struct sketch s;
	const struct runtime *runtime = runtime_of(RUNTIME_PYTORCH_FSDP1);
	(void)state;
	sketch_init(&s, 0);
	s.topology.calibration.host_overhead = 0;
	int op = sketch_mark(&s);
	s.ops[op].kind = OP_FORWARD;
	s.ops[op].end_module = s.schedule.model->n_modules;
	sketch_run(&s);
	/* One token through a tiny model: nothing but launches, at least one for each leaf. */
	assert_true(s.simulation.prediction.step_time > 20 * runtime->host_per_kernel);
	assert_seconds(sketch_span(&s, op)->start, runtime->host_per_kernel);
	sketch_finish(&s);
}

static void test_deadlock_is_an_error(void **state)
{
	struct sketch s;
	struct error error = {0};
	(void)state;
	sketch_init(&s, 0);
	int a = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	int b = sketch_traffic(&s, STREAM_REDUCE, 1 * MS);
	sketch_link(&s, a, LINK_WAIT, b);
	sketch_link(&s, b, LINK_WAIT, a);
	assert_false(sketch_try(&s, &error));
	assert_int_equal(error.code, EXIT_CODE_INTERNAL);
	assert_non_null(strstr(error.message, "operation 0"));
	sketch_finish(&s);
}

static void test_a_schedule_from_text_is_an_error(void **state)
{
	struct sketch s;
	struct error error = {0};
	(void)state;
	sketch_init(&s, 0);
	sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	s.schedule.topology = NULL;
	assert_false(sketch_try(&s, &error));
	assert_int_equal(error.code, EXIT_CODE_INTERNAL);
	sketch_finish(&s);
}

/* --- a CPU device: the issuing thread carries the compute out itself ----------------------------
 */

static void init_host(struct sketch *s, int64_t cores)
{
	sketch_init(s, 0);
	s->schedule.plan.runtime = RUNTIME_SHARDPLAN;
	make_processes(&s->topology);
	s->topology.host.cores = cores;
	s->topology.calibration.memory_bandwidth_shared = 1e15;
}

/* Behind the operations ranks tell each other the loss. */
static void assert_step(const struct sketch *s, double operations)
{
	assert_seconds(
		s->simulation.prediction.step_time, operations + cost_step_exchange(&s->schedule));
}

static void test_the_issuing_thread_computes(void **state)
{
	struct sketch s;
	(void)state;
	init_host(&s, 64);
	s.options.no_contention = true;
	int a = sketch_traffic(&s, STREAM_COMPUTE, 2 * MS);
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 3 * MS);
	int b = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	int c = sketch_traffic(&s, STREAM_COMPUTE, 1 * MS);
	sketch_link(&s, c, LINK_WAIT, gather);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, gather)->issued, 2 * MS); /* after `a`, not before */
	assert_seconds(sketch_span(&s, b)->start, 2 * MS);
	assert_seconds(sketch_span(&s, c)->start, 5 * MS);
	assert_seconds(sketch_span(&s, a)->end, 2 * MS);
	assert_step(&s, 6 * MS);
	assert_seconds(s.simulation.prediction.time.exposed_communication, 2 * MS);
	sketch_finish(&s);
}

/* What follows a collective on its stream is the communication thread's work too. */
static void test_the_communication_thread(void **state)
{
	struct sketch s;
	(void)state;
	init_host(&s, 64);
	s.options.no_contention = true;
	int reduce = sketch_gather(&s, STREAM_REDUCE, 0, 1 * MS);
	int add = sketch_traffic(&s, STREAM_REDUCE, 2 * MS);
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	int compute = sketch_traffic(&s, STREAM_COMPUTE, 5 * MS);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, compute)->start, 0); /* the issuing thread goes on */
	assert_seconds(sketch_span(&s, add)->start, sketch_span(&s, reduce)->end);
	assert_seconds(sketch_span(&s, gather)->start, 3 * MS);
	assert_step(&s, 5 * MS);
	sketch_finish(&s);
}

/* Four ranks, four cores: with a communication thread each they are eight threads, at half speed
 * while both run. */
static void test_threads_share_cores(void **state)
{
	struct sketch s;
	(void)state;
	init_host(&s, 4);
	int gather = sketch_gather(&s, STREAM_GATHER, 0, 1 * MS);
	int compute = sketch_traffic(&s, STREAM_COMPUTE, 3 * MS);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, gather)->end, 2 * MS);
	assert_seconds(sketch_span(&s, compute)->end, 4 * MS);
	sketch_finish(&s);
}

/* An engine of two tasks, the first of which runs. */
static struct engine beside(struct sketch *s, struct task tasks[2], bool second_runs)
{
	static int ops[] = {0, 1};

	return (struct engine){.topology = &s->topology,
		.contention = true,
		.n_ops = 2,
		.tasks = tasks,
		.n_queues = 2,
		.queues = {{.list.ops = &ops[0], .running = true},
			{.list.ops = &ops[1], .running = second_runs}}};
}

/* How fast a team of threads computes, alone and beside the communication thread: a thread without
 * a core of its own shares one of the team's, and the team is as slow as that one. */
static void test_a_thread_too_many_slows_the_team(void **state)
{
	static const struct {
		int64_t ranks, cores;
		bool communicates;
		double rate;
	} cases[] = {{1, 2, false, 1}, {1, 2, true, 0.5}, {2, 4, true, 0.5}, {1, 8, true, 0.5},
		{4, 4, true, 0.5}, {2, 3, true, 1 / 1.5}, {4, 2, false, 1}, {4, 2, true, 0.5}};
	const struct cost costs[] = {{.device = 1, .arithmetic = 1}, {.device = 1}};
	const struct task team = {.cost = &costs[0], .computes = true};
	const struct task communication = {.cost = &costs[1], .communicates = true};
	struct sketch s;

	(void)state;
	init_host(&s, 1);
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct task tasks[] = {team, communication};
		struct engine engine = beside(&s, tasks, cases[i].communicates);

		s.topology.devices_per_node = cases[i].ranks;
		s.topology.host.cores = cases[i].cores;
		engine.queues[0].rate = 1;
		contention_rates(&engine);
		assert_seconds(engine.queues[0].rate, cases[i].rate);
	}
	sketch_finish(&s);
}

/* What goes out of a node or device leaves all of the link for what comes in. */
static void test_links_have_two_ways(void **state)
{
	static const struct {
		enum link_way one, other;
		double rate;
	} cases[] = {{WAY_OUT, WAY_IN, 1}, {WAY_OUT, WAY_OUT, 0.5}, {WAY_IN, WAY_IN, 0.5},
		{WAYS_BOTH, WAY_OUT, 0.5}, {WAY_IN, WAYS_BOTH, 0.5}, {WAYS_BOTH, WAYS_BOTH, 0.5}};
	struct sketch s;

	(void)state;
	sketch_init(&s, 0);
	for (int i = 0; i < 2 * COUNT_OF(cases); i++) {
		double network = i % 2, fabric = 1 - network;
		const struct cost costs[] = {{.device = 1,
						     .network_load = network,
						     .fabric_load = fabric,
						     .way = cases[i / 2].one},
			{.device = 1,
				.network_load = network,
				.fabric_load = fabric,
				.way = cases[i / 2].other}};
		struct task tasks[] = {{.cost = &costs[0], .communicates = true},
			{.cost = &costs[1], .communicates = true}};
		struct engine engine = beside(&s, tasks, true);

		contention_rates(&engine);
		for (int q = 0; q < 2; q++)
			assert_seconds(engine.queues[q].rate, cases[i / 2].rate);
	}
	sketch_finish(&s);
}

/* Two cores for four ranks: compute alone takes twice as long; that is no contention between
 * streams, so it stays when contention is off. */
static void test_more_ranks_than_cores(void **state)
{
	struct sketch s;
	(void)state;
	init_host(&s, 2);
	s.options.no_contention = true;
	sketch_traffic(&s, STREAM_COMPUTE, 3 * MS);
	sketch_run(&s);
	assert_step(&s, 6 * MS);
	sketch_finish(&s);
}

/* All ranks stream at once: each gets its share of what the host's memory delivers. */
static void test_ranks_share_memory_bandwidth(void **state)
{
	struct sketch s;
	(void)state;
	init_host(&s, 64);
	s.topology.calibration.memory_bandwidth_shared = 2e12; /* alone: 1e12 each */
	sketch_traffic(&s, STREAM_COMPUTE, 3 * MS);
	sketch_run(&s);
	assert_step(&s, 6 * MS);
	sketch_finish(&s);
}

/* Two nodes, and a message of 8 ms: the step ends when all ranks have heard of each other's loss.
 * On GPUs what the host's exchange takes is not known. */
static void test_a_step_ends_with_the_exchange_of_the_loss(void **state)
{
	struct sketch s;
	struct calibration_collective over_nodes = {.collective = COLLECTIVE_ALL_GATHER,
		.ranks = SKETCH_RANKS,
		.nodes = 2,
		.latency = 8 * MS,
		.bandwidth = 1e9};

	(void)state;
	init_host(&s, 64);
	s.topology.nodes = 2;
	s.topology.devices_per_node = SKETCH_RANKS / 2;
	s.pieces[0] = over_nodes;
	int last = sketch_traffic(&s, STREAM_COMPUTE, 3 * MS);
	sketch_run(&s);
	assert_seconds(sketch_span(&s, last)->end, 3 * MS);
	assert_float_equal(s.simulation.prediction.step_time, 11 * MS, 0.01 * MS);
	s.topology.device.kind = DEVICE_GPU;
	assert_true(cost_step_exchange(&s.schedule) == 0);
	s.topology.device.kind = DEVICE_CPU;
	s.schedule.plan.runtime = RUNTIME_PYTORCH_DDP;
	assert_true(cost_step_exchange(&s.schedule) == 0);
	sketch_finish(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_streams_overlap),
		cmocka_unit_test(test_a_wait_orders_streams),
		cmocka_unit_test(test_exposed_is_judged_by_the_compute_stream),
		cmocka_unit_test(test_one_engine_is_fifo),
		cmocka_unit_test(test_two_engines_run_together),
		cmocka_unit_test(test_links_are_shared),
		cmocka_unit_test(test_memory_is_shared),
		cmocka_unit_test(test_kernels_take_turns),
		cmocka_unit_test(test_host_wait),
		cmocka_unit_test(test_issue_costs),
		cmocka_unit_test(test_launch_queue),
		cmocka_unit_test(test_waits_for_the_step_before),
		cmocka_unit_test(test_the_host_reads_the_loss),
		cmocka_unit_test(test_launches_bound_small_kernels),
		cmocka_unit_test(test_deadlock_is_an_error),
		cmocka_unit_test(test_a_schedule_from_text_is_an_error),
		cmocka_unit_test(test_the_issuing_thread_computes),
		cmocka_unit_test(test_the_communication_thread),
		cmocka_unit_test(test_threads_share_cores),
		cmocka_unit_test(test_a_thread_too_many_slows_the_team),
		cmocka_unit_test(test_links_have_two_ways),
		cmocka_unit_test(test_more_ranks_than_cores),
		cmocka_unit_test(test_ranks_share_memory_bandwidth),
		cmocka_unit_test(test_a_step_ends_with_the_exchange_of_the_loss),
	};
	return cmocka_run_group_tests_name("simulator engine", tests, NULL, NULL);
}
