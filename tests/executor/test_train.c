/* Whole runs: their reports, how they end after a fault, and that they leave nothing behind. */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "executor/memory/sanitizer.h"
#include "schedule/memory/memory.h"

/* --- what is measured --- */

struct reported {
	int64_t steps;
	double first, last;
};

static void on_progress(const struct progress *progress, void *data)
{
	struct reported *reported = data;

	assert_int_equal(progress->step, reported->steps + 1);
	assert_true(progress->step_time > 0 && progress->tokens_per_s > 0);
	if (reported->steps++ == 0)
		reported->first = progress->loss;
	reported->last = progress->loss;
}

static double expected_wire_bytes(const struct schedule *schedule, int64_t collectives[3])
{
	const struct program *program = &schedule->programs[0];
	double bytes = 0;

	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];

		if (op_kind_class(op->kind) != OP_CLASS_COLLECTIVE)
			continue;
		bytes += collective_wire_bytes(
			op->kind, schedule->groups[op->group].size, op->bytes);
		collectives[op->kind == OP_ALL_GATHER       ? 0
			    : op->kind == OP_REDUCE_SCATTER ? 1
							    : 2]++;
	}
	return bytes;
}

static void check_memory(const struct run *run)
{
	const struct prediction *v = &run->measurement.values;
	struct model_states states = schedule_model_states(run->schedule, 0);
	struct arena arena = {0};
	struct ledger ledger;
	int64_t sum = 0;

	schedule_ledger(run->schedule, 0, &arena, &ledger);
	assert_int_equal(v->ledger_peak_bytes, ledger.peak_bytes);
	assert_int_equal(v->peak_op, ledger.peak_op);
	assert_memory_equal(v->ledger_category_peak, ledger.category_peak_bytes,
		sizeof(ledger.category_peak_bytes));
	for (int i = 0; i < run->measurement.timeline.n_ops; i++)
		assert_memory_equal(
			run->measurement.timeline.live[i], ledger.live[i], sizeof(ledger.live[0]));
	arena_finish(&arena);
	assert_int_equal(v->model_states_parameters, states.parameters);
	assert_int_equal(v->model_states_gradients, states.gradients);
	assert_int_equal(v->model_states_optimizer_state, states.optimizer_state);
	for (int c = 0; c < CATEGORY_COUNT; c++)
		sum += v->memory_at_peak[c];
	assert_int_equal(sum, v->peak_memory_bytes);
	assert_true(v->peak_allocated_bytes <= v->peak_reserved_bytes);
}

static void a_run_reports_what_it_did(void **state)
{
	struct executor_job job = run_job(12);
	struct reported reported = {0};
	int64_t collectives[3] = {0};
	struct run run;

	(void)state;
	run_plan(&run, TINY_LLAMA, 4,
		"strategy=HYBRID_SHARD shard_group=2 micro_batch=2 grad_accum=2 seq_len=16");
	job.report = on_progress;
	job.report_data = &reported;
	job.training.learning_rate = 1e-2;
	if (!run_train(&run, &job))
		fail_msg("%s", run.error.message);
	const struct measurement *m = &run.measurement;
	assert_int_equal(reported.steps, 12);
	assert_true(reported.last < reported.first - 0.5);
	assert_int_equal(m->ranks, 4);
	assert_int_equal(m->steps, 12);
	assert_int_equal(m->warm_up_steps, 2);
	assert_int_equal(m->n_losses, 12);
	assert_true(m->losses[0] == reported.first && m->losses[11] == reported.last);
	assert_true(m->gradient_norms[5] > 0);
	assert_string_equal(m->values.schedule_digest, run.file.schedule_digest);
	assert_int_equal(strlen(m->weights_digest), 32);
	assert_string_equal(m->reproducible, "plan");
	assert_int_equal(m->undeclared_bytes, 0);
	check_memory(&run);
	double wire = expected_wire_bytes(run.schedule, collectives);
	assert_true(fabs(m->values.wire_bytes_per_rank - wire) < 1e-9 * wire);
	assert_memory_equal(m->values.collectives, collectives, sizeof(collectives));
	assert_true(m->values.time.compute > 0 && m->values.time.all_gather > 0);
	assert_true(m->values.time.exposed_communication <= m->values.time.all_gather +
								    m->values.time.reduce_scatter +
								    m->values.time.all_reduce);
	run_finish(&run);
}

static void the_first_loss_is_that_of_guessing(void **state)
{
	struct executor_job job = run_job(1);
	struct run run;

	(void)state;
	run_plan(&run, TINY_GPT2, 2, "micro_batch=2 seq_len=16");
	assert_true(run_train(&run, &job));
	assert_int_equal(run.measurement.warm_up_steps, 0);
	assert_true(fabs(run.measurement.losses[0] - log(259)) < 0.1);
	run_finish(&run);
}

static void another_seed_is_another_run(void **state)
{
	char digests[3][33];

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct executor_job job = run_job(2);
		struct run run;

		run_plan(&run, TINY_GPT2, 2, "micro_batch=1 seq_len=16");
		job.training.seed = i / 2;
		assert_true(run_train(&run, &job));
		snprintf(digests[i], sizeof(digests[i]), "%s", run.measurement.weights_digest);
		run_finish(&run);
	}
	assert_string_equal(digests[0], digests[1]);
	assert_string_not_equal(digests[0], digests[2]);
}

static void train_digest(const char *options, struct training training, char digest[33])
{
	struct executor_job job = run_job(3);
	struct run run;

	run_plan(&run, TINY_LLAMA, 2, options);
	job.training = training;
	job.training.steps = 3;
	if (!run_train(&run, &job))
		fail_msg("%s: %s", options, run.error.message);
	snprintf(digest, 33, "%s", run.measurement.weights_digest);
	run_finish(&run);
}

/* Each knob of the update changes the weights. */
static void the_update_follows_its_knobs(void **state)
{
	static const char adamw[] = "strategy=FULL_SHARD micro_batch=1 seq_len=16";
	struct training base = training_defaults(), other = base;
	char first[33], digest[33];

	(void)state;
	train_digest(adamw, base, first);
	other.warmup = 10;
	train_digest(adamw, other, digest);
	assert_string_not_equal(first, digest);
	other.warmup = 1; /* over before the first step */
	train_digest(adamw, other, digest);
	assert_string_equal(first, digest);
	other = base;
	other.weight_decay = 0.2;
	train_digest(adamw, other, digest);
	assert_string_not_equal(first, digest);
	train_digest("strategy=FULL_SHARD micro_batch=1 seq_len=16 clip=0.1", base, digest);
	assert_string_not_equal(first, digest);
	train_digest("strategy=FULL_SHARD micro_batch=1 seq_len=16 clip=1000", base, digest);
	assert_string_equal(first, digest);
}

/* Groups of three are no subtrees of six. */
static void unaligned_groups_say_so(void **state)
{
	struct executor_job job = run_job(1);
	struct run run;

	(void)state;
	run_plan(
		&run, TINY_GPT2, 6, "strategy=HYBRID_SHARD shard_group=3 micro_batch=1 seq_len=16");
	assert_true(run_train(&run, &job));
	assert_string_equal(run.measurement.reproducible, "run");
	run_finish(&run);
}

static void the_null_device_computes_nothing(void **state)
{
	struct executor_job job = run_job(3);
	struct run run;

	(void)state;
	run_plan(&run, TINY_LLAMA, 4, "strategy=FULL_SHARD micro_batch=1 seq_len=16");
	job.device = "null";
	job.data = NULL;
	if (!run_train(&run, &job))
		fail_msg("%s", run.error.message);
	assert_true(run.measurement.losses[0] == 0);
	check_memory(&run);
	run_finish(&run);
}

/* Both table and library differ, so bits may; the mathematics may not. */
static void kernel_tables_agree(void **state)
{
	double losses[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct executor_job job = run_job(4);
		struct run run;

		run_plan(&run, TINY_LLAMA, 2, "micro_batch=2 seq_len=16");
		job.kernels = i == 0 ? "cpu" : "reference";
		job.training.learning_rate = 1e-2;
		assert_true(run_train(&run, &job));
		losses[i] = run.measurement.losses[3];
		run_finish(&run);
	}
	assert_true(fabs(losses[0] - losses[1]) < 1e-4);
}

/* --- memory that nobody declared --- */

static void undeclared_memory_is_seen(void **state)
{
	struct executor_job job = run_job(3);
	struct run run;

	(void)state;
	run_plan(&run, TINY_GPT2, 2, "micro_batch=1 seq_len=16");
	job.fault = "undeclared_buffer=1@step=2";
	assert_true(run_train(&run, &job));
	/* In each FORWARD operation of one step: three blocks and two ends. */
	assert_int_equal(run.measurement.undeclared_bytes, 5 << 20);
	run_finish(&run);
}

/* The process grows by what the ledger says, for a model large enough to matter. What an emulator
 * or a sanitizer holds for itself grows beside it. */
static void processes_grow_as_declared(void **state)
{
#if HAVE_ADDRESS_SANITIZER || HAVE_OTHER_SANITIZER || defined(TESTS_SAMPLED)
	(void)state;
	skip();
#else
	struct executor_job job = run_job(3);
	struct run run;

	(void)state;
	run_plan(&run, "gpt2-nano", 2, "strategy=FULL_SHARD micro_batch=4 seq_len=256");
	assert_true(run_train(&run, &job));
	double ledger = (double)run.measurement.values.ledger_peak_bytes;
	double most = (double)run.measurement.pss_growth_bytes / ledger;
	double mean = (double)run.measurement.pss_growth_mean_bytes / ledger;
	print_message("ledger %.1f MB, PSS growth / ledger: %.3f at most, %.3f in the mean\n",
		ledger / 1e6, most, mean);
	assert_true(ledger > 200e6);
	assert_true(most > 0.9 && most < 1.1 && mean > 0.9 && mean < 1.1);
	run_finish(&run);
#endif
}

/* --- death --- */

/* Ranks are in the folder of this program, which may have been started by a relative path. */
static bool is_path_of(const char *path, const char *program)
{
	char whole[PATH_MAX];
	return realpath(path, whole) != NULL && strcmp(whole, program) == 0;
}

/* This program, as a rank; of an emulator, it is the emulator's argument. */
static bool is_rank(const char *arguments, size_t length, const char *program)
{
	for (const char *a = arguments, *next; a < arguments + length; a = next) {
		next = a + strlen(a) + 1;
		if (is_path_of(a, program))
			return strcmp(next, EXECUTOR_RANK_ARGUMENT) == 0;
	}
	return false;
}

static bool is_rank_process(const char *pid)
{
	char path[300], own[512] = "", text[1026] = "";
	FILE *file;

	/* Ranks of other tests come and go at the same time. */
	if (readlink("/proc/self/exe", own, sizeof(own) - 1) < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
	file = fopen(path, "r");
	if (file == NULL)
		return false;
	size_t n = fread(text, 1, sizeof(text) - 2, file);
	fclose(file);
	return is_rank(text, n, own);
}

static int count_rank_processes(void)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int found = 0;

	assert_non_null(proc);
	while ((entry = readdir(proc)) != NULL)
		found += is_rank_process(entry->d_name);
	closedir(proc);
	return found;
}

static void a_dead_rank_ends_the_run(void **state)
{
	(void)state;
	for (int rank = 0; rank < 3; rank++) {
		struct executor_job job = run_job(1000000);
		char fault[64], expected[64];
		struct run run;
		double start = clock_now();

		snprintf(fault, sizeof(fault), "kill_rank=%d@step=2", rank);
		snprintf(expected, sizeof(expected), "rank %d was killed by signal 9 (Killed)",
			rank);
		run_plan(&run, TINY_LLAMA, 3, "strategy=FULL_SHARD micro_batch=1 seq_len=16");
		job.fault = fault;
		assert_false(run_train(&run, &job));
		assert_int_equal(run.error.code, EXIT_CODE_FAULT);
		if (strstr(run.error.message, expected) == NULL ||
			strstr(run.error.message, "in step 2, operation ") == NULL ||
			strstr(run.error.message, "backward of root") == NULL)
			fail_msg("%s", run.error.message);
		assert_true(clock_now() - start < 60); /* it ends */
		assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
		assert_int_equal(errno, ECHILD);
		run_finish(&run);
	}
}

/* A launcher that is killed takes its ranks along. */
static void ranks_do_not_outlive_the_launcher(void **state)
{
	int before = count_rank_processes(), during = 0, after;
	pid_t launcher = fork();

	(void)state;
	if (launcher == 0) {
		struct executor_job job = run_job(1000000);
		struct run run;

		run_plan(&run, TINY_LLAMA, 3, "micro_batch=1 seq_len=16");
		_exit(run_train(&run, &job));
	}
	for (int i = 0; i < 100 && during < before + 3; i++) {
		usleep(50000);
		during = count_rank_processes();
	}
	kill(launcher, SIGKILL);
	waitpid(launcher, NULL, 0);
	assert_true(during >= before + 3);
	for (int i = 0; i < 100 && (after = count_rank_processes()) > before; i++)
		usleep(50000);
	assert_in_range(after, 0, before);
}

/* SIGSTOP: alive, but silent. The prediction says how long a step should take. */
static void a_stopped_rank_is_named(void **state)
{
	const struct timeline expected = {.step_time = 0.01};
	struct executor_job job = run_job(1000000);
	struct run run;
	double start = clock_now();

	(void)state;
	run_plan(&run, TINY_LLAMA, 3, "micro_batch=1 seq_len=16");
	job.fault = "stop_rank=1@step=1";
	job.expected = &expected;
	assert_false(run_train(&run, &job));
	assert_int_equal(run.error.code, EXIT_CODE_FAULT);
	assert_non_null(strstr(run.error.message, "rank 1 hangs: it did not come to "));
	/* The rank is named with what was waited for, and where it was last. */
	assert_non_null(strstr(run.error.message, " (step 1, operation "));
	assert_non_null(strstr(run.error.message, " of model"));
	assert_non_null(strstr(run.error.message, "; it was last seen in step 1 at operation "));
	assert_non_null(strstr(run.error.message, ", backward of "));
	/* Not before its patience of ten seconds; and it ends. */
	assert_true(clock_now() - start > 10 && clock_now() - start < 120);
	run_finish(&run);
}

/* --- what is refused --- */

static void expect_refusal(const char *model, const char *options, struct executor_job job,
	enum exit_code code, const char *part)
{
	struct run run;

	run_plan(&run, model, 2, options);
	assert_false(run_train(&run, &job));
	if (run.error.code != code || strstr(run.error.message, part) == NULL)
		fail_msg("expected %d \"%s\", got %d \"%s\"", code, part, run.error.code,
			run.error.message);
	assert_null(strchr(run.error.message, '\n'));
	run_finish(&run);
}

static void bad_jobs_are_refused(void **state)
{
	static const char small[] = "micro_batch=1 seq_len=16";
	struct executor_job job = run_job(2), broken;

	(void)state;
	broken = job;
	broken.data = "no-such-file.txt";
	expect_refusal(TINY_GPT2, small, broken, EXIT_CODE_INPUT, "no-such-file.txt: cannot read");
	broken.data = NULL;
	expect_refusal(TINY_GPT2, small, broken, EXIT_CODE_USAGE, "no training data");
	broken = job;
	broken.device = "abacus";
	expect_refusal(TINY_GPT2, small, broken, EXIT_CODE_USAGE, "device abacus");
	broken = job;
	broken.kernels = "slide-rule";
	expect_refusal(TINY_GPT2, small, broken, EXIT_CODE_USAGE, "no such kernels");
	broken = job;
	broken.fault = "drop_wiat";
	expect_refusal(TINY_GPT2, small, broken, EXIT_CODE_USAGE, "did you mean drop_wait");
	broken.fault = "kill_rank=two";
	expect_refusal(TINY_GPT2, small, broken, EXIT_CODE_USAGE, "NAME[=RANK][@step=STEP]");
	broken = job;
	broken.training.steps = 0;
	expect_refusal(
		TINY_GPT2, small, broken, EXIT_CODE_USAGE, "expected 1 to 1000000000, got 0");
	broken.training.steps = INT64_MAX / 24 * 2;
	expect_refusal(TINY_GPT2, small, broken, EXIT_CODE_USAGE, "expected 1 to 1000000000");
	broken = job;
	broken.program = "/no/such/program";
#ifndef TESTS_SAMPLED /* an emulator starts it, and it ends with code 127 */
	expect_refusal(TINY_GPT2, small, broken, EXIT_CODE_ENVIRONMENT, "cannot start rank 0");
#endif
	expect_refusal("mpt-125m", small, job, EXIT_CODE_USAGE, "ALiBi");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_run_reports_what_it_did),
		cmocka_unit_test(the_first_loss_is_that_of_guessing),
		cmocka_unit_test(another_seed_is_another_run),
		cmocka_unit_test(the_update_follows_its_knobs),
		cmocka_unit_test(unaligned_groups_say_so),
		cmocka_unit_test(the_null_device_computes_nothing),
		cmocka_unit_test(kernel_tables_agree),
		cmocka_unit_test(undeclared_memory_is_seen),
		cmocka_unit_test(processes_grow_as_declared),
		cmocka_unit_test(a_dead_rank_ends_the_run),
		cmocka_unit_test(ranks_do_not_outlive_the_launcher),
		cmocka_unit_test(a_stopped_rank_is_named),
		cmocka_unit_test(bad_jobs_are_refused),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
