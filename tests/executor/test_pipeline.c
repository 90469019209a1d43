/* Stages of a pipeline, executed: their bits equal those of data parallelism alone with the same
 * micro-batches, for every schedule, strategy and transport; a checkpoint of one can be resumed by
 * the other. */
#include "checkpoint_runs.h"
#include "digest_cases.h"
#include "tests/sampled.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define FOUR_LLAMA                                                                                 \
	"shardplan: model/1\nname: four-llama\nfamily: llama\nlayers: 4\nhidden: 20\nheads: 4\n"   \
	"kv_heads: 2\nhead_dim: 6\nffn: 31\nvocab: 257\ncontext: 24\n"
#define FOUR_GPT2                                                                                  \
	"shardplan: model/1\nname: four-gpt2\nfamily: gpt2\nlayers: 4\nhidden: 18\nheads: 3\n"     \
	"ffn: 37\nvocab: 259\ncontext: 16\ntied_head: false\n"
/* The table is on two stages. */
#define TIED_LLAMA FOUR_LLAMA "tied_head: true\n"
#define TIED_GPT2                                                                                  \
	"shardplan: model/1\nname: tied-gpt2\nfamily: gpt2\nlayers: 4\nhidden: 18\nheads: 3\n"     \
	"ffn: 37\nvocab: 259\ncontext: 16\n"

enum { STAGED_STEPS = 3 };
#define ADDED_UP " seq_len=8 sync_each_micro_batch=off "

static struct outcome train_staged(
	const char *model, int64_t ranks, const char *options, struct executor_job job)
{
	char all[512];

	snprintf(all, sizeof(all), "%s" ADDED_UP, options);
	return outcome_of(model, ranks, all, job);
}

/* Trains the same micro-batches on so many data-parallel ranks, and on stages of as many each. */
static void expect_equal(const char *model, int64_t ranks, int64_t stages, const char *common,
	const char *strategy, const char *axes)
{
	char alone[384], staged[384];

	snprintf(alone, sizeof(alone), "strategy=%s %s", ranks == 1 ? "NO_SHARD" : "FULL_SHARD",
		common);
	snprintf(staged, sizeof(staged), "strategy=%s %s %s", strategy, common, axes);
	struct outcome one = train_staged(model, ranks, alone, run_job(STAGED_STEPS));
	struct outcome other = train_staged(model, ranks * stages, staged, run_job(STAGED_STEPS));
	if (strcmp(one.digest.hex, other.digest.hex) != 0 ||
		memcmp(one.norms, other.norms, sizeof(one.norms)) != 0 ||
		memcmp(one.losses, other.losses, sizeof(one.losses)) != 0)
		fail_msg("%s: losses %.17g and %.17g, norms %.17g and %.17g, weights %s and %s",
			staged, one.losses[STAGED_STEPS - 1], other.losses[STAGED_STEPS - 1],
			one.norms[STAGED_STEPS - 1], other.norms[STAGED_STEPS - 1], one.digest.hex,
			other.digest.hex);
}

static void two_stages_end_in_the_same_bits(void **state)
{
	static const char *const orders[] = {"pipeline=2", "pipeline=2 pipeline_schedule=gpipe",
		"pipeline=2 layers_per_stage=1,3",
		"pipeline=2 pipeline_schedule=interleaved virtual_stages=2"};

	(void)state;
	for (int i = SAMPLED_EACH - 1; i < COUNT_OF(orders); i += SAMPLED_EACH) {
		expect_equal(FOUR_LLAMA, 1, 2, "micro_batch=1 grad_accum=6 clip=0.5", "NO_SHARD",
			orders[i]);
		expect_equal(
			FOUR_GPT2, 1, 2, "micro_batch=2 grad_accum=4", "FULL_SHARD", orders[i]);
	}
}

static void more_stages_do(void **state)
{
	(void)state;
	expect_equal(FOUR_LLAMA, 1, 4, "micro_batch=1 grad_accum=5", "NO_SHARD", "pipeline=4");
	expect_equal(
		FOUR_GPT2, 1, 3, "micro_batch=1 grad_accum=3 clip=0.1", "NO_SHARD", "pipeline=3");
}

static void stages_of_several_ranks_do(void **state)
{
	static const char *const strategies[] = {"NO_SHARD", "FULL_SHARD", "SHARD_GRAD_OP",
		"ZERO_1", "FULL_SHARD prefetch=post limit_all_gathers=on"};

	(void)state;
	for (int i = 0; i < COUNT_OF(strategies); i += SAMPLED_EACH)
		expect_equal(FOUR_LLAMA, 2, 2, "micro_batch=1 grad_accum=4 clip=0.5", strategies[i],
			i % 2 == 0 ? "pipeline=2"
				   : "pipeline=2 pipeline_schedule=interleaved virtual_stages=2");
	expect_equal(FOUR_GPT2, 4, 2, "micro_batch=1 grad_accum=2", "HYBRID_SHARD shard_group=2",
		"pipeline=2 pipeline_schedule=gpipe");
}

static void in_any_arithmetic(void **state)
{
	static const char *const common[] = {
		"micro_batch=2 grad_accum=3 param_dtype=bf16",
		"micro_batch=2 grad_accum=3 param_dtype=bf16 master_dtype=bf16 clip=0.5",
		"micro_batch=2 grad_accum=3 gradient_sums=exact clip=0.5",
		"micro_batch=2 grad_accum=3 activation_checkpointing=full",
		"micro_batch=2 grad_accum=3 activation_checkpointing=selective",
		"micro_batch=50 grad_accum=2 loss=fused-linear",
	};

	(void)state;
	for (int i = SAMPLED_EACH / 2; i < COUNT_OF(common); i += SAMPLED_EACH)
		expect_equal(FOUR_LLAMA, 2, 2, common[i], "FULL_SHARD", "pipeline=2");
}

/* --- a head tied to the embedding --- */

/* Exact sums have no order: bits are those without stages. Of three the middle one has no table. */
static void a_tied_table_is_one(void **state)
{
	static const char common[] = "micro_batch=2 grad_accum=2 gradient_sums=exact clip=0.5";

	(void)state;
	expect_equal(TIED_GPT2, 1, 2, common, "NO_SHARD", "pipeline=2");
	expect_equal(TIED_LLAMA, 2, 3, common, "FULL_SHARD", "pipeline=3");
	expect_equal(TIED_GPT2, 2, 2, common, "ZERO_1 wrap=block",
		"pipeline=2 pipeline_schedule=interleaved virtual_stages=2");
}

/* Others are added in one order, what the first stage has to what the last one has: near those
 * without stages, where each token's row is added by itself. */
static void its_bits_are_those_of_any_stages(void **state)
{
	static const struct {
		int64_t stages;
		const char *options;
	} plans[] = {{2, "FULL_SHARD"}, {2, "NO_SHARD pipeline_schedule=gpipe"},
		{2, "ZERO_1 wrap=model prefetch=post"}, {2, "SHARD_GRAD_OP wrap=size:1500"},
		{2, "FULL_SHARD pipeline_schedule=interleaved virtual_stages=2"},
		{3, "FULL_SHARD prefetch=none activation_checkpointing=full"}};
	static const char common[] = "micro_batch=1 grad_accum=4 clip=0.5";
	struct digest first;
	char options[256];

	(void)state;
	snprintf(options, sizeof(options), "strategy=FULL_SHARD %s", common);
	const struct outcome alone = train_staged(TIED_GPT2, 2, options, run_job(STAGED_STEPS));
	for (int i = 0; i < COUNT_OF(plans); i++) {
		snprintf(options, sizeof(options), "strategy=%s %s pipeline=%lld", plans[i].options,
			common, (long long)plans[i].stages);
		struct outcome out = train_staged(
			TIED_GPT2, 2 * plans[i].stages, options, run_job(STAGED_STEPS));
		if (i == 0)
			first = out.digest;
		if (strcmp(out.digest.hex, first.hex) != 0)
			fail_msg("%s: weights %s and %s", options, out.digest.hex, first.hex);
		for (int s = 0; s < STAGED_STEPS; s++) {
			assert_true(fabs(out.losses[s] / alone.losses[s] - 1) < 1e-6);
			assert_true(fabs(out.norms[s] / alone.norms[s] - 1) < 1e-5);
		}
	}
}

/* The control: one rank keeps its own gradient of the table. */
static void tables_that_differ_are_told(void **state)
{
	struct executor_job job = run_job(STAGED_STEPS);
	struct run run;

	(void)state;
	job.fault = "skip_replicate=1";
	run_plan(&run, TIED_GPT2, 4,
		"strategy=FULL_SHARD micro_batch=1 grad_accum=4 pipeline=2" ADDED_UP);
	assert_false(run_train(&run, &job));
	if (strstr(run.error.message, "the first and the last one hold other transformer.wte") ==
		NULL)
		fail_msg("%s", run.error.message);
	run_finish(&run);
}

/* One node a stage, and a node that has parts of both. */
static void over_nodes_too(void **state)
{
	(void)state;
	digest_over_nodes(FOUR_LLAMA,
		"micro_batch=1 grad_accum=4 sync_each_micro_batch=off clip=0.5 pipeline=2",
		STAGED_STEPS);
	digest_over_nodes(TIED_LLAMA,
		"micro_batch=1 grad_accum=4 sync_each_micro_batch=off clip=0.5 pipeline=4",
		STAGED_STEPS);
}

/* The control: a stage that reads other tokens, or misses a gradient, ends otherwise. */
static void what_breaks_a_stage_shows(void **state)
{
	static const char *const faults[] = {"scale_gradient=1", "drop_last_element=1"};
	const char *options = "strategy=NO_SHARD micro_batch=1 grad_accum=4 pipeline=2";
	struct outcome good = train_staged(FOUR_LLAMA, 2, options, run_job(STAGED_STEPS));

	(void)state;
	for (int i = 0; i < COUNT_OF(faults); i++) {
		struct executor_job job = run_job(STAGED_STEPS);

		job.fault = faults[i];
		struct outcome bad = train_staged(FOUR_LLAMA, 2, options, job);
		assert_string_not_equal(good.digest.hex, bad.digest.hex);
	}
}

static void a_stage_that_dies_is_named(void **state)
{
	struct executor_job killed = run_job(STAGED_STEPS), mixed = run_job(STAGED_STEPS);
	struct run run;

	(void)state;
	killed.fault = "kill_rank=1@step=1";
	run_plan(&run, FOUR_LLAMA, 2,
		"strategy=NO_SHARD micro_batch=1 grad_accum=4 pipeline=2" ADDED_UP);
	assert_false(run_train(&run, &killed));
	if (strstr(run.error.message, "rank 1 was killed by signal 9 (Killed) in step 1") == NULL)
		fail_msg("%s", run.error.message);
	mixed.fault = "mismatch_rank=0@step=1";
	run.error = (struct error){0};
	assert_false(run_train(&run, &mixed));
	if (strstr(run.error.message, "expects another message") == NULL)
		fail_msg("%s", run.error.message);
	run_finish(&run);
}

static void what_cannot_be_executed_is_refused(void **state)
{
	static const char options[] = "strategy=NO_SHARD micro_batch=1 grad_accum=4 pipeline=2 "
				      "pipeline_schedule=interleaved" ADDED_UP;
	struct executor_job on_gpus = run_job(1), over_tcp = run_job(1);
	struct run run;

	(void)state;
	on_gpus.device = "cuda";
	run_plan_nodes(&run, FOUR_LLAMA, 2, 1, options);
	assert_false(run_train(&run, &on_gpus));
	assert_int_equal(run.error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(run.error.message, "executed on CPUs only; use --device host"));
	over_tcp.launcher = (struct launcher){.name = "torchrun", .ranks = 2, .local_ranks = 1};
	run.error = (struct error){0};
	assert_false(run_train(&run, &over_tcp));
	assert_int_equal(run.error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(run.error.message, "start it by MPI"));
	run_finish(&run);
}

/* --- checkpoints --- */

static struct digest resumed(
	const char *model, int64_t ranks, const char *options, const char *folder, const char *from)
{
	struct executor_job job = run_job(STEPS);

	job.checkpoint = folder;
	job.checkpoint_every = EVERY;
	job.resume = from;
	return train_staged(model, ranks, options, job).digest;
}

static void expect_resumed(const char *model, const char *alone, const char *stages)
{
	char folder[64], path[128];
	struct digest whole = resumed(model, 2, alone, NULL, NULL);
	struct error error = {0};

	make_folder(folder);
	assert_string_equal(resumed(model, 4, stages, folder, NULL).hex, whole.hex);
	snprintf(path, sizeof(path), "%s/step-%08d", folder, EVERY);
	assert_string_equal(resumed(model, 4, stages, NULL, path).hex, whole.hex);
	assert_string_equal(resumed(model, 2, alone, NULL, path).hex, whole.hex);
	/* And back: what data parallelism has written. */
	remove_folder(folder);
	make_folder(folder);
	resumed(model, 2, alone, folder, NULL);
	snprintf(path, sizeof(path), "%s/step-%08d", folder, EVERY);
	assert_string_equal(resumed(model, 4, stages, NULL, path).hex, whole.hex);
	snprintf(path, sizeof(path), "%s/model.safetensors", folder);
	if (!executor_export_safetensors(folder, path, &error))
		fail_msg("%s", error.message);
	struct executor_job one = run_job(1), two = run_job(1);
	one.weights = two.weights = path;
	assert_string_equal(train_staged(model, 2, alone, one).digest.hex,
		train_staged(model, 4, stages, two).digest.hex);
	remove_folder(folder);
}

static void checkpoints_go_from_stages_to_others(void **state)
{
	(void)state;
	expect_resumed(FOUR_LLAMA, "strategy=FULL_SHARD micro_batch=1 grad_accum=4",
		"strategy=FULL_SHARD micro_batch=1 grad_accum=4 pipeline=2");
	expect_resumed(TIED_LLAMA,
		"strategy=FULL_SHARD micro_batch=1 grad_accum=4 gradient_sums=exact",
		"strategy=ZERO_1 micro_batch=1 grad_accum=4 gradient_sums=exact pipeline=2");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_stages_end_in_the_same_bits),
		cmocka_unit_test(more_stages_do),
		cmocka_unit_test(stages_of_several_ranks_do),
		cmocka_unit_test(in_any_arithmetic),
		cmocka_unit_test(a_tied_table_is_one),
		cmocka_unit_test(its_bits_are_those_of_any_stages),
		cmocka_unit_test(tables_that_differ_are_told),
		cmocka_unit_test(over_nodes_too),
		cmocka_unit_test(what_breaks_a_stage_shows),
		cmocka_unit_test(a_stage_that_dies_is_named),
		cmocka_unit_test(what_cannot_be_executed_is_refused),
		cmocka_unit_test(checkpoints_go_from_stages_to_others),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
