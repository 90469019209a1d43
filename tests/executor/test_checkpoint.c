/* Checkpoints: what is resumed ends in the bits of an undisturbed run, whatever shards it was
 * written in, and nothing that happens while one is written loses more than the interval.
 * With "faults": a fault at every single file operation, and a thousand kills, or FAULTS_PERCENT of
 * that; a pattern after it chooses tests by name. */
#include "checkpoint_runs.h"
#include "tests/sampled.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* Faults are that many file operations apart; and ranks that are killed. */
enum { APART = SAMPLED_EACH > 1 ? 97 : 23, KILLS = SAMPLED_EACH > 1 ? 2 : 6 };

static bool all;

/* Written by each strategy, resumed by each other; states on the device or on the host. Sampled,
 * each strategy writes and each reads. */
static void resumed_runs_end_in_the_same_bits(void **state)
{
	(void)state;
	struct digest whole = train_whole(&cases[0], STEPS, run_job(STEPS));

	for (int w = 0; w < COUNT_OF(cases); w++) {
		char folder[64], from[96];
		make_folder(folder);
		struct digest saved = train_whole(&cases[w], STEPS, saving_job(folder, w % 2 == 1));
		assert_string_equal(saved.hex, whole.hex);
		snprintf(from, sizeof(from), "%s/step-%08d", folder, EVERY * (1 + w % 2));
		for (int r = (w + 1) % SAMPLED_EACH; r < COUNT_OF(cases); r += SAMPLED_EACH) {
			struct executor_job job = run_job(STEPS);
			job.resume = from;
			assert_string_equal(train_whole(&cases[r], STEPS, job).hex, whole.hex);
		}
		remove_folder(folder);
	}
}

/* The learning rate is a function of the step and of how many there will be. */
static void a_decaying_rate_is_resumed(void **state)
{
	struct training training = training_defaults();
	struct executor_job job = run_job(STEPS), rest;
	char folder[64], from[96];

	(void)state;
	training.steps = 110;
	training.warmup = 10;
	training.lr_schedule = LR_COSINE;
	training.learning_rate = 1;
	training.min_lr = 0.1;
	assert_true(training_learning_rate(&training, 4) == 0.5);
	assert_true(training_learning_rate(&training, 9) == 1);
	assert_true(training_learning_rate(&training, 10) == 1);
	assert_float_equal(training_learning_rate(&training, 60), 0.55, 1e-12);
	assert_float_equal(
		training_learning_rate(&training, 35), 0.1 + 0.45 * 1.7071067811865475, 1e-12);
	training.lr_schedule = LR_LINEAR;
	assert_float_equal(training_learning_rate(&training, 35), 0.775, 1e-12);
	job.training.lr_schedule = LR_COSINE;
	job.training.warmup = 2;
	struct digest constant = train_whole(&cases[0], STEPS, run_job(STEPS));
	struct digest whole = train_whole(&cases[0], STEPS, job);
	assert_string_not_equal(whole.hex, constant.hex);
	make_folder(folder);
	struct executor_job saving = job;
	saving.checkpoint = folder;
	saving.checkpoint_every = EVERY;
	train_whole(&cases[0], STEPS, saving);
	snprintf(from, sizeof(from), "%s/step-%08d", folder, EVERY);
	rest = job;
	rest.resume = from;
	assert_string_equal(train_whole(&cases[1], STEPS, rest).hex, whole.hex);
	remove_folder(folder);
}

/* Any number of ranks reads the same weights and moments: one step from there, sums being the only
 * thing that differs, is compared at the number of ranks that it is run on. */
static void any_number_of_ranks_reads_the_same(void **state)
{
	static const struct case_ readers[][2] = {
		{{1, "strategy=NO_SHARD micro_batch=4 seq_len=8"},
			{1, "strategy=NO_SHARD micro_batch=4 seq_len=8 wrap=model"}},
		{{3, "strategy=FULL_SHARD micro_batch=1 seq_len=8"},
			{3, "strategy=NO_SHARD micro_batch=1 seq_len=8"}},
		{{2, "strategy=FULL_SHARD micro_batch=2 seq_len=8"},
			{2, "strategy=SHARD_GRAD_OP micro_batch=2 seq_len=8 wrap=blocks:2"}},
	};
	char by_four[64], by_one[64];

	(void)state;
	/* The same state is there twice: written by four ranks, and by one that read it and wrote
	 * it. */
	make_folder(by_four);
	train_whole(&cases[0], EVERY, saving_job(by_four, false));
	for (int i = 0; i < COUNT_OF(readers); i++) {
		struct executor_job job = run_job(STEPS);
		job.resume = by_four;
		struct digest a = train_whole(&readers[i][0], STEPS, job);
		struct digest b = train_whole(&readers[i][1], STEPS, job);
		assert_string_equal(a.hex, b.hex);
		make_folder(by_one);
		struct executor_job again = saving_job(by_one, false);
		again.resume = by_four;
		train_whole(&readers[i][0], EVERY + 1, again);
		job.resume = by_one;
		assert_string_equal(train_whole(&readers[i][1], STEPS, job).hex, a.hex);
		remove_folder(by_one);
	}
	remove_folder(by_four);
}

static void only_the_newest_are_kept(void **state)
{
	struct arena arena = {0};
	struct executor_job job;
	char folder[64];
	int64_t *steps;

	(void)state;
	make_folder(folder);
	job = saving_job(folder, true);
	job.checkpoint_every = 1;
	job.checkpoint_keep = 2;
	train_whole(&cases[0], STEPS, job);
	assert_int_equal(checkpoint_list(&arena, folder, &steps), 2);
	assert_int_equal(steps[0], STEPS - 1);
	assert_int_equal(steps[1], STEPS);
	arena_finish(&arena);
	remove_folder(folder);
}

static void nothing_is_overwritten(void **state)
{
	char folder[64];

	(void)state;
	make_folder(folder);
	train_whole(&cases[0], EVERY, saving_job(folder, false));
	expect_refusal(&cases[0], saving_job(folder, false), "holds a checkpoint of step 2");
	struct executor_job job = saving_job(folder, false);
	job.resume = folder;
	job.training.steps = EVERY;
	struct error error;
	train(&cases[0], EVERY, job, &error);
	assert_non_null(strstr(error.message, "has done 2"));
	remove_folder(folder);
}

/* --- faults --- */

/* What is left is whole, and from there (or from the start) the run ends as if undisturbed. */
static void expect_recovery(
	const struct case_ *c, const char *folder, const char *whole, const char *what)
{
	struct executor_job job = saving_job(folder, false);

	if (newest(folder) == STEPS)
		return;
	job.resume = newest(folder) > 0 ? folder : NULL;
	struct digest digest = train_whole(c, STEPS, job);
	if (strcmp(digest.hex, whole) != 0)
		fail_msg("%s: the digest differs after recovery", what);
	assert_int_equal(newest(folder), STEPS);
}

/* Returns false when the run did not come to that operation. */
static bool strike(const char *fault, const char *whole, bool background, int64_t *kept)
{
	const struct case_ *c = &cases[0];
	char folder[64];
	struct error error;

	make_folder(folder);
	struct executor_job job = saving_job(folder, background);
	job.fault = fault;
	struct digest digest = train(c, STEPS, job, &error);
	bool struck = digest.hex[0] == '\0';
	if (struck) {
		assert_int_equal(error.code, EXIT_CODE_FAULT);
		*kept = newest(folder);
		/* A run that was killed leaves the folder to the next run; one that was not leaves
		 * nothing. */
		if (strstr(fault, "kill") == NULL)
			assert_int_equal(count_names(folder, ".step-"), 0);
		expect_recovery(c, folder, whole, fault);
	}
	remove_folder(folder);
	return struck;
}

/* Every operation of a hundred percent. */
static int64_t tries_apart(void)
{
	return 100 / tries(100);
}

static void a_fault_at_any_file_operation_loses_the_interval_at_most(void **state)
{
	static const char *const kinds[] = {
		"checkpoint_error", "checkpoint_short", "checkpoint_full", "checkpoint_kill"};
	struct digest whole = train_whole(&cases[0], STEPS, run_job(STEPS));

	(void)state;
	for (int k = 0; k < COUNT_OF(kinds); k++) {
		for (int rank = 0; rank < 2; rank++) {
			int64_t kept = 0, last = 0;
			int apart = all ? (int)tries_apart() : APART, operation = all ? 0 : k;
			char fault[64];
			for (;; operation += apart) {
				snprintf(fault, sizeof(fault), "%s=%d@step=%d", kinds[k], rank,
					operation);
				if (!strike(fault, whole.hex, operation % 2 == 1, &kept))
					break;
				/* Later faults leave no less. */
				assert_true(kept >= last);
				last = kept;
			}
			assert_true(operation > 40);
		}
	}
}

/* --- kills --- */

struct killer {
	pid_t self;
	unsigned delay_us;
};

/* One of the rank processes, which are children of this one. */
static void *kill_a_rank(void *data)
{
	const struct killer *killer = data;
	char path[64], line[256] = "";

	usleep(killer->delay_us);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)killer->self,
		(int)killer->self);
	FILE *children = fopen(path, "r");
	if (children != NULL) {
		if (fgets(line, sizeof(line), children) == NULL)
			line[0] = '\0';
		fclose(children);
	}
	int skip = (int)(killer->delay_us % RANKS);
	for (char *save, *word = strtok_r(line, " \n", &save); word != NULL;
		word = strtok_r(NULL, " \n", &save)) {
		if (skip-- == 0)
			kill((pid_t)atoi(word), SIGKILL);
	}
	return NULL;
}

static void note_step(const struct progress *progress, void *data)
{
	*(int64_t *)data = progress->step;
}

/* What the steps that were reported as done have left: a checkpoint is whole before the next step
 * begins; of those in the background the one before it. */
static void expect_interval(const char *folder, int64_t done, bool background)
{
	int64_t least = (done - 1) / EVERY * EVERY - (background ? EVERY : 0);

	if (newest(folder) < least)
		fail_msg("%d steps were done, the newest checkpoint is of step %d", (int)done,
			(int)newest(folder));
}

/* False when the run was over before. */
static bool kill_at(unsigned delay_us, bool background, const char *whole)
{
	struct killer killer = {getpid(), delay_us};
	struct executor_job job;
	struct error error;
	int64_t done = 0;
	pthread_t thread;
	char folder[64];

	make_folder(folder);
	job = saving_job(folder, background);
	job.report = note_step;
	job.report_data = &done;
	assert_int_equal(pthread_create(&thread, NULL, kill_a_rank, &killer), 0);
	struct digest digest = train(&cases[0], STEPS, job, &error);
	pthread_join(thread, NULL);
	expect_interval(folder, done, background);
	expect_recovery(&cases[0], folder, whole, "kill");
	remove_folder(folder);
	return digest.hex[0] == '\0';
}

static void a_kill_at_any_instant_loses_the_interval_at_most(void **state)
{
	struct digest whole = train_whole(&cases[0], STEPS, run_job(STEPS));
	int kills = all ? (int)tries(1000) : KILLS, struck = 0, tried = 0;
	unsigned random = 12345;

	(void)state;
	for (; struck < kills && tried < 20 * kills; tried++) {
		random = random * 1103515245u + 12345u;
		struck += kill_at(2000 + random / 7 % 120000, tried % 2 == 1, whole.hex);
	}
	print_message("%d of %d kills struck a running rank\n", struck, tried);
	assert_int_equal(struck, kills);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resumed_runs_end_in_the_same_bits),
		cmocka_unit_test(a_decaying_rate_is_resumed),
		cmocka_unit_test(any_number_of_ranks_reads_the_same),
		cmocka_unit_test(only_the_newest_are_kept),
		cmocka_unit_test(nothing_is_overwritten),
		cmocka_unit_test(a_fault_at_any_file_operation_loses_the_interval_at_most),
		cmocka_unit_test(a_kill_at_any_instant_loses_the_interval_at_most),
	};

	run_as_rank(argc, argv);
	all = argc > 1 && strcmp(argv[1], "faults") == 0;
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
