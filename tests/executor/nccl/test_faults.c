/* NCCL on GPUs that are none, and a collective that goes wrong: whoever notices says what, every
 * rank aborts all its communicators, which ends what the GPUs wait for, and the run ends with
 * code 6. As steps are walked, and inside of graphs. (Without the abort the fake's streams would
 * never pass; without the polling the run would wait for the watchdog, whose time is up after ten
 * minutes.) */
#include <stdlib.h>
#include <unistd.h>

#include "tests/executor/fakes/cuda.h"
#include "tests/executor/support.h"
#include "tests/executor/trace.h"

enum { RANKS = 4, STEPS = 3, COMMUNICATORS = 3 };

/* The machine has RANKS GPUs, so that gathers and reductions have communicators of their own. */
static const char machine[] =
	"shardplan: topology/1\nname: node\nnodes: 1\ndevices_per_node: 4\n"
	"device:\n  name: some\n  kind: gpu\n  generation: hopper\n  memory: 80GiB\n"
	"  memory_bandwidth: 3TB/s\n  fp32: 60TFLOPS\n  bf16: 900TFLOPS\n"
	"  multiprocessors: 132\nfabric:\n  kind: nvswitch\n  bandwidth: 450GB/s\n"
	"  latency: 3us\n  channels: 12\nhost:\n  memory: 1TiB\n"
	"  memory_bandwidth: 100GB/s\n  cores: 64\n  pcie_bandwidth: 50GB/s\n  cpu: amd\n";

static char path[64];

/* Ranks are broken off half-way: what they leave behind is no leak of anybody's. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

struct outcome {
	struct error error;
	int aborted, destroyed; /* communicators */
};

static char notes[2048];

static void keep_note(const char *line, void *data)
{
	size_t length = strlen(notes);

	(void)data;
	snprintf(notes + length, sizeof(notes) - length, "%s\n", line);
}

/* What ends a hang: a prediction (the watchdog then waits for ten seconds after two steps), or what
 * was asked for. */
enum watch { WATCH_LONG, WATCH_STEPS, WATCH_ALL };

static struct outcome train(const char *fault, enum watch watch, enum graph_wish graphs)
{
	const struct timeline expected = {.step_time = 1e-3};
	struct executor_job job = run_job(STEPS);
	struct outcome outcome = {0};
	struct trace trace;
	struct run run;

	/* One that gathers shards, one that reduces them, one of the replicas; and the world. */
	run_plan_on(&run, TINY_GPT2, machine,
		"seq_len=11 micro_batch=2 strategy=HYBRID_SHARD shard_group=2 runtime=shardplan "
		"param_dtype=fp32");
	job.device = "cuda";
	job.transport = "nccl";
	job.kernels = "reference";
	job.cuda_graphs = graphs;
	job.note = keep_note;
	notes[0] = '\0';
	job.expected = watch == WATCH_STEPS ? &expected : NULL;
	job.collective_timeout = watch == WATCH_ALL ? 2 : 0;
	setenv("FAKE_TRACE", path, 1);
	if (fault != NULL)
		setenv("FAKE_NCCL_FAULT", fault, 1);
	if (!run_train(&run, &job))
		outcome.error = run.error;
	unsetenv("FAKE_TRACE");
	unsetenv("FAKE_NCCL_FAULT");
	trace_read(&trace, path, &run.arena);
	remove(path);
	for (int i = 0; i < trace.n; i++) {
		outcome.aborted += trace.lines[i].kind == TRACE_ABORT;
		outcome.destroyed += trace.lines[i].kind == TRACE_DESTROY;
	}
	run_finish(&run);
	return outcome;
}

static void expect_told(const struct outcome *outcome, const char *told)
{
	assert_int_equal(outcome->error.code, EXIT_CODE_FAULT);
	if (strstr(outcome->error.message, told) == NULL)
		fail_msg("expected \"%s\", got \"%s\"", told, outcome->error.message);
	assert_int_equal(outcome->destroyed, 0);
}

/* All split ones and the world, of each rank. */
static const int all = RANKS * (COMMUNICATORS + 1);

static void all_is_well(void **state)
{
	struct outcome outcome = train(NULL, WATCH_LONG, GRAPHS_AUTO);

	(void)state;
	assert_string_equal(outcome.error.message, "");
	assert_int_equal(outcome.aborted, 0);
	assert_int_equal(outcome.destroyed, all);
}

/* The error comes in the first step, and far into those that are launched. */
static void an_error_that_comes_later(void **state)
{
	static const char *const faults[] = {"error:1:3", "error:2:20", "all:2:3"};

	(void)state;
	for (int i = 0; i < COUNT_OF(faults); i++)
		for (int graphs = 0; graphs < 2; graphs++) {
			struct outcome outcome =
				train(faults[i], WATCH_LONG, graphs ? GRAPHS_ON : GRAPHS_OFF);

			expect_told(&outcome, i == 0 ? "rank 1: nccl: a collective failed: "
						     : "rank 2: nccl: a collective failed: ");
			assert_int_equal(outcome.aborted, all);
		}
}

/* What does not end well behind the last step is told, and changes nothing. */
static void an_end_that_fails(void **state)
{
	struct outcome outcome = train("finalize:1:0", WATCH_LONG, GRAPHS_AUTO);

	(void)state;
	assert_string_equal(outcome.error.message, "");
	assert_int_equal(outcome.aborted, COMMUNICATORS + 1);
	assert_non_null(strstr(notes, "rank 1: nccl: ncclCommFinalize: an error of the fake"));
	assert_non_null(strstr(notes, "(behind the last step)"));
}

static void hang(enum graph_wish graphs)
{
	struct outcome outcome = train("hang:3:46", WATCH_STEPS, graphs);

	expect_told(&outcome, "for 10 s: a rank that does not come to a collective");
	assert_int_equal(outcome.aborted, all);
}

static void a_collective_that_hangs(void **state)
{
	(void)state;
	hang(GRAPHS_ON);
}

static void a_collective_that_hangs_as_a_step_is_walked(void **state)
{
	(void)state;
	hang(GRAPHS_OFF);
}

/* The others hang in NCCL itself until they are killed. What was asked for is taken everywhere. */
static void a_communicator_that_is_never_made(void **state)
{
	struct outcome outcome = train("start:1:0", WATCH_ALL, GRAPHS_AUTO);

	(void)state;
	expect_told(&outcome, "rank 1: nccl: ncclCommInitRankConfig has not ended for 2 s");
}

static void a_call_that_is_refused(void **state)
{
	struct outcome outcome = train("refuse:0:2", WATCH_LONG, GRAPHS_AUTO);

	(void)state;
	expect_told(&outcome, "rank 0: nccl: a collective: ");
	assert_int_equal(outcome.aborted, all);
}

/* Communicators of many nodes need half a minute each, and so does what connects them at first use,
 * by the fake's clock. Steps of a millisecond say nothing about that. */
static void what_is_made_at_first_use_may_take_long(void **state)
{
	(void)state;
	setenv("FAKE_CLOCK", "1", 1);
	struct outcome outcome = train("late:1:30", WATCH_STEPS, GRAPHS_AUTO);
	struct outcome longer = train("late:1:700", WATCH_STEPS, GRAPHS_AUTO);

	unsetenv("FAKE_CLOCK");
	assert_string_equal(outcome.error.message, "");
	expect_told(&longer, "rank 1: nccl: ncclCommInitRankConfig has not ended for 600 s");
}

/* Kernels of collectives that find no room on one GPU while others hold it on another: whichever
 * starts first there must start first everywhere, by NCCL's word or, before that has it, by edges
 * of ours. Without either they wait for each other. */
static void communicators_start_in_one_order(void **state)
{
	static const struct {
		const char *version, *order;
		enum graph_wish graphs;
	} cases[] = {{"22809", NULL, GRAPHS_ON}, {"22809", NULL, GRAPHS_OFF},
		{"22500", NULL, GRAPHS_ON}, {"22500", NULL, GRAPHS_OFF}, {"22809", "0", GRAPHS_ON}};

	(void)state;
	setenv("FAKE_NCCL_ROOM", "1", 1);
	for (int i = 0; i < COUNT_OF(cases); i++) {
		setenv("FAKE_NCCL_VERSION", cases[i].version, 1);
		if (cases[i].order != NULL)
			setenv("NCCL_LAUNCH_ORDER_IMPLICIT", cases[i].order, 1);
		struct outcome outcome = train(NULL, WATCH_ALL, cases[i].graphs);

		if (cases[i].order != NULL)
			expect_told(&outcome, "for 2 s: a rank that does not come to a collective");
		else if (outcome.error.message[0] != '\0')
			fail_msg("NCCL %s: %s", cases[i].version, outcome.error.message);
	}
	unsetenv("FAKE_NCCL_ROOM");
	unsetenv("FAKE_NCCL_VERSION");
	unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_is_well),
		cmocka_unit_test(an_error_that_comes_later),
		cmocka_unit_test(an_end_that_fails),
		cmocka_unit_test(a_collective_that_hangs),
		cmocka_unit_test(a_call_that_is_refused),
		cmocka_unit_test(a_communicator_that_is_never_made),
		cmocka_unit_test(what_is_made_at_first_use_may_take_long),
		cmocka_unit_test(communicators_start_in_one_order),
	};

	const struct CMUnitTest slow[] = {
		cmocka_unit_test(a_collective_that_hangs_as_a_step_is_walked),
	};

	fake_cuda_install(RANKS, 1);
	fake_nccl_install();
	if (getenv("FAKE_CLOCK") != NULL)
		fake_clock_start(&(struct fake_rates){0});
	run_as_rank(argc, argv);
	snprintf(path, sizeof(path), "nccl-faults-%d.trace", (int)getpid());
	if (argc > 1 && strcmp(argv[1], "slow") == 0)
		return cmocka_run_group_tests(slow, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
