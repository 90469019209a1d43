/* Exact sums of gradients: one digest whatever the number of ranks, micro-batch and accumulation,
 * also over a checkpoint that other ranks resume. */
#include "digest_cases.h"
#include "schedule/memory/memory.h"

#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 4, SAVED = 2 };

static struct digest train(
	const char *model, const struct digest_world *c, const char *sums, struct executor_job job)
{
	struct digest digest;
	struct run run;
	char options[256];

	snprintf(options, sizeof(options), "%s seq_len=8 clip=0.5 gradient_sums=%s", c->options,
		sums);
	run_plan(&run, model, c->ranks, options);
	assert_int_equal(run.file.plan.global_batch, 24);
	if (!run_train(&run, &job))
		fail_msg("%lld ranks, %s: %s", (long long)c->ranks, options, run.error.message);
	snprintf(digest.hex, sizeof(digest.hex), "%s", run.measurement.weights_digest);
	if (strcmp(sums, "exact") == 0)
		assert_string_equal(run.measurement.reproducible, "world");
	assert_int_equal(run.measurement.undeclared_bytes, 0);
	run_finish(&run);
	return digest;
}

static void any_number_of_ranks_ends_in_the_same_bits(void **state)
{
	static const char *const models[] = {TINY_GPT2, TINY_QWEN};

	(void)state;
	for (int m = 0; m < COUNT_OF(models); m++) {
		struct digest first = {""};

		for (int i = 0; i < n_digest_worlds; i++) {
			struct digest digest =
				train(models[m], &digest_worlds[i], "exact", run_job(STEPS));

			if (i == 0)
				first = digest;
			else if (strcmp(digest.hex, first.hex) != 0)
				fail_msg("model %d, %lld ranks, %s: another digest", m,
					(long long)digest_worlds[i].ranks,
					digest_worlds[i].options);
		}
	}
}

/* The negative control: sums in fp32 depend on both. */
static void sums_in_a_tree_do_not(void **state)
{
	(void)state;
	struct digest one = train(TINY_GPT2, &digest_worlds[0], "tree", run_job(STEPS));
	struct digest other = train(TINY_GPT2, &digest_worlds[4], "tree", run_job(STEPS));
	struct digest exact = train(TINY_GPT2, &digest_worlds[0], "exact", run_job(STEPS));

	assert_string_not_equal(one.hex, other.hex);
	assert_string_not_equal(one.hex, exact.hex);
}

static void remove_folder(const char *folder)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	assert_int_equal(system(command), 0);
}

/* Killed in the step after the checkpoint, resumed by others. */
static void resumed_by_others_it_ends_in_the_same_bits(void **state)
{
	struct digest whole = train(TINY_GPT2, &digest_worlds[0], "exact", run_job(STEPS));

	(void)state;
	for (int w = 0; w < n_digest_worlds; w += 4) {
		char folder[] = "/tmp/shardplan-world-XXXXXX", options[256];
		struct executor_job job = run_job(STEPS), rest = run_job(STEPS);
		struct run run;

		assert_non_null(mkdtemp(folder));
		job.checkpoint = folder;
		job.checkpoint_every = SAVED;
		job.fault = "kill_rank=0@step=3";
		snprintf(options, sizeof(options), "%s seq_len=8 clip=0.5 gradient_sums=exact",
			digest_worlds[w].options);
		run_plan(&run, TINY_GPT2, digest_worlds[w].ranks, options);
		assert_false(run_train(&run, &job));
		assert_int_equal(run.error.code, EXIT_CODE_FAULT);
		run_finish(&run);
		rest.resume = folder;
		for (int r = 1; r < n_digest_worlds; r += 3)
			assert_string_equal(
				train(TINY_GPT2, &digest_worlds[r], "exact", rest).hex, whole.hex);
		remove_folder(folder);
	}
}

/* A value that is not finite ends the run before the update, here as there. */
static void what_is_not_finite_stops_all(void **state)
{
	struct executor_job job = run_job(STEPS);
	struct run run;

	(void)state;
	job.fault = "nan=1@step=1";
	run_plan(&run, TINY_GPT2, 3,
		"strategy=FULL_SHARD micro_batch=8 seq_len=8 gradient_sums=exact");
	assert_false(run_train(&run, &job));
	assert_int_equal(run.error.code, EXIT_CODE_FAULT);
	assert_non_null(strstr(run.error.message, "step 1: the gradient norm is"));
	run_finish(&run);
}

/* Twice the bytes of gradients, and a scratch: the ledger says so, and is met. */
static void the_cost_is_declared(void **state)
{
	struct run tree, exact;
	struct executor_job job = run_job(2);

	(void)state;
	run_plan(&tree, TINY_GPT2, 2, "strategy=FULL_SHARD micro_batch=12 seq_len=8");
	run_plan(&exact, TINY_GPT2, 2,
		"strategy=FULL_SHARD micro_batch=12 seq_len=8 gradient_sums=exact");
	assert_true(run_train(&tree, &job));
	assert_true(run_train(&exact, &job));
	assert_true(exact.measurement.values.ledger_category_peak[CATEGORY_GRADIENTS] ==
		    2 * tree.measurement.values.ledger_category_peak[CATEGORY_GRADIENTS]);
	struct ledger ledger;
	schedule_ledger(exact.schedule, 0, &exact.arena, &ledger);
	assert_true(exact.measurement.values.ledger_peak_bytes == ledger.peak_bytes);
	run_finish(&tree);
	run_finish(&exact);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_number_of_ranks_ends_in_the_same_bits),
		cmocka_unit_test(sums_in_a_tree_do_not),
		cmocka_unit_test(resumed_by_others_it_ends_in_the_same_bits),
		cmocka_unit_test(what_is_not_finite_stops_all),
		cmocka_unit_test(the_cost_is_declared),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
