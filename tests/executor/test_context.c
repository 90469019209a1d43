/* Context ranks, executed: each has two chunks of every sequence. The results equal those of ranks
 * with whole sequences except for rounding, with the same bits under every strategy; a checkpoint
 * of one can be resumed by the other. */
#include "checkpoint_runs.h"
#include "digest_cases.h"
#include "tests/sampled.h"

#include <math.h>
#include <stdlib.h>

#define LONG_LLAMA                                                                                 \
	"shardplan: model/1\nname: long-llama\nfamily: llama\nlayers: 2\nhidden: 20\nheads: 4\n"   \
	"kv_heads: 2\nhead_dim: 6\nffn: 32\nvocab: 257\ncontext: 2000\n"
#define LONG_GPT2                                                                                  \
	"shardplan: model/1\nname: long-gpt2\nfamily: gpt2\nlayers: 2\nhidden: 24\nheads: 4\n"     \
	"ffn: 40\nvocab: 259\ncontext: 64\n"
#define LONG_QWEN                                                                                  \
	"shardplan: model/1\nname: long-qwen\nfamily: qwen3\nlayers: 2\nhidden: 20\nheads: 4\n"    \
	"kv_heads: 4\nhead_dim: 6\nffn: 32\nvocab: 257\ncontext: 64\ntied_head: true\n"            \
	"qkv_bias: true\n"

enum { CHUNK_STEPS = 3 };

static const char *const methods[] = {"all-gather", "all-to-all", "ring"};

/* Heads are whole: three ranks do not share out four, nor two the one that tensor ranks leave. */
static bool shares_heads(const char *model, const char *parts)
{
	return strstr(parts, "context=3") == NULL &&
	       (strcmp(model, LONG_LLAMA) != 0 || strstr(parts, "tensor=2") == NULL);
}

/* So many ranks with whole sequences, and as many times `more` with parts, by every method. */
static void expect_parts(const char *model, int64_t ranks, int64_t more, const char *common,
	const char *parts, double most, struct executor_job job)
{
	char alone[256], all[384];

	snprintf(alone, sizeof(alone), "strategy=%s %s", ranks == 1 ? "NO_SHARD" : "FULL_SHARD",
		common);
	struct outcome one = outcome_of(model, ranks, alone, run_job(CHUNK_STEPS));
	for (int m = 0; m < COUNT_OF(methods); m++) {
		if (strcmp(methods[m], "all-to-all") == 0 && !shares_heads(model, parts))
			continue;
		snprintf(all, sizeof(all), "%s %s context_method=%s", parts, common, methods[m]);
		struct outcome other = outcome_of(model, ranks * more, all, job);
		for (int s = 0; s < CHUNK_STEPS; s++) {
			expect_near(all, other.losses[s], one.losses[s], most);
			expect_near(all, other.norms[s], one.norms[s], 10 * most);
		}
	}
}

static void losses_and_norms_are_those_of_whole_sequences(void **state)
{
	static const struct {
		const char *model;
		int64_t ranks, context;
		const char *common;
	} rows[] = {{LONG_LLAMA, 1, 2, "seq_len=12 micro_batch=2 grad_accum=2 clip=0.5"},
		{LONG_GPT2, 1, 2, "seq_len=8 micro_batch=3 grad_accum=1"},
		{LONG_GPT2, 2, 4, "seq_len=16 micro_batch=2 grad_accum=2 clip=0.5"},
		{LONG_QWEN, 2, 2, "seq_len=20 micro_batch=2 grad_accum=1"},
		{LONG_QWEN, 1, 3, "seq_len=6 micro_batch=1 grad_accum=2"}};

	(void)state;
	for (int i = SAMPLED_EACH - 1; i < COUNT_OF(rows); i += SAMPLED_EACH) {
		char parts[64];

		snprintf(parts, sizeof(parts), "strategy=FULL_SHARD context=%lld",
			(long long)rows[i].context);
		expect_parts(rows[i].model, rows[i].ranks, rows[i].context, rows[i].common, parts,
			1e-6, run_job(CHUNK_STEPS));
	}
}

/* Chunks are more and less than the tiles of attention: 270 tokens, then 100. */
static void chunks_of_any_length_do(void **state)
{
	static const char *const lengths[] = {"seq_len=1080 micro_batch=1 grad_accum=1",
		"seq_len=400 micro_batch=2 grad_accum=1"};

	(void)state;
	for (int i = 0; i < COUNT_OF(lengths); i++)
		expect_parts(LONG_LLAMA, 1, 2, lengths[i], "strategy=NO_SHARD context=2", 1e-6,
			run_job(CHUNK_STEPS));
}

static void expect_bits_of_any_strategy(const char *method)
{
	static const char *const plans[] = {"strategy=FULL_SHARD",
		"strategy=NO_SHARD activation_checkpointing=selective",
		"strategy=SHARD_GRAD_OP activation_checkpointing=full wrap=model",
		"strategy=ZERO_1 prefetch=post", "strategy=FULL_SHARD wrap=blocks:2 prefetch=none",
		"strategy=FULL_SHARD cpu_offload=optimizer",
		"strategy=FULL_SHARD cpu_offload=parameters activation_offload=all",
		"strategy=FULL_SHARD pipeline=2",
		"strategy=NO_SHARD pipeline=2 pipeline_schedule=gpipe"};
	static const char common[] = "seq_len=8 micro_batch=2 grad_accum=2 "
				     "sync_each_micro_batch=off context=2 clip=0.5";
	struct digest first = {""};

	for (int i = 0; i < COUNT_OF(plans); i++) {
		bool staged = strstr(plans[i], "pipeline") != NULL;
		char options[256];

		if (i > 0 && i % SAMPLED_EACH != 0)
			continue;
		snprintf(options, sizeof(options), "%s context_method=%s %s", common, method,
			plans[i]);
		struct outcome out =
			outcome_of(LONG_LLAMA, staged ? 8 : 4, options, run_job(CHUNK_STEPS));
		if (i == 0)
			first = out.digest;
		if (strcmp(out.digest.hex, first.hex) != 0)
			fail_msg("%s: weights %s and %s", options, out.digest.hex, first.hex);
	}
}

static void bits_are_those_of_any_strategy(void **state)
{
	(void)state;
	for (int m = 0; m < COUNT_OF(methods); m++)
		expect_bits_of_any_strategy(methods[m]);
}

/* Beside tensor ranks, in other arithmetic, with products of one input joined. */
static void mixes_are_near(void **state)
{
	static const struct {
		const char *model, *common, *parts;
		int64_t more;
		double most;
		bool joined;
	} rows[] = {{LONG_LLAMA, "", "tensor=2 sequence_parallel=on", 4, 1e-6, false},
		{LONG_GPT2, "", "tensor=2 sequence_parallel=off", 4, 1e-6, false},
		{LONG_QWEN, "activation_checkpointing=full", "tensor=2 sequence_parallel=on", 4,
			1e-6, false},
		{LONG_QWEN, "activation_checkpointing=selective", "tensor=2 pipeline=2", 8, 1e-6,
			false},
		{LONG_QWEN, "gradient_sums=exact", "", 2, 1e-6, false},
		{LONG_GPT2, "gradient_sums=exact", "", 2, 1e-6, false},
		{LONG_LLAMA, "param_dtype=bf16", "", 2, 1e-2, false},
		{LONG_LLAMA, "loss=fused-linear", "", 2, 1e-6, true}};

	(void)state;
	for (int i = SAMPLED_EACH / 2; i < COUNT_OF(rows); i += SAMPLED_EACH) {
		char common[192], parts[128];
		struct executor_job job = run_job(CHUNK_STEPS);

		job.any_rounding = rows[i].joined;
		snprintf(common, sizeof(common),
			"seq_len=16 micro_batch=2 grad_accum=2 sync_each_micro_batch=off %s",
			rows[i].common);
		snprintf(parts, sizeof(parts), "strategy=FULL_SHARD context=2 %s", rows[i].parts);
		expect_parts(rows[i].model, 1, rows[i].more, common, parts, rows[i].most, job);
	}
}

/* A machine each, and chunks of a sequence on both. */
static void over_nodes_too(void **state)
{
	(void)state;
	for (int m = 0; m < COUNT_OF(methods); m++) {
		char options[128];

		snprintf(options, sizeof(options),
			"seq_len=12 micro_batch=2 grad_accum=2 clip=0.5 context=2 "
			"context_method=%s",
			methods[m]);
		digest_over_nodes(LONG_LLAMA, options, CHUNK_STEPS);
	}
}

static struct outcome resumed(
	int64_t ranks, const char *options, const char *folder, const char *from)
{
	struct executor_job job = run_job(4);
	char all[256];

	job.checkpoint = folder;
	job.checkpoint_every = EVERY;
	job.resume = from;
	snprintf(all, sizeof(all), "seq_len=8 micro_batch=1 grad_accum=2 %s", options);
	return outcome_of(LONG_GPT2, ranks, all, job);
}

/* Replicas of all kinds share out what is written. */
static void checkpoints_go_to_any_mesh(void **state)
{
	static const struct {
		int64_t ranks;
		const char *options;
	} meshes[] = {{2, "strategy=FULL_SHARD"},
		{4, "strategy=NO_SHARD context=2 context_method=all-to-all"},
		{4, "strategy=FULL_SHARD context=2"},
		{8, "strategy=HYBRID_SHARD shard_group=1 context=2 tensor=2"}};
	struct outcome whole = resumed(2, meshes[0].options, NULL, NULL);

	(void)state;
	for (int from = 0; from < COUNT_OF(meshes); from++) {
		char folder[64], path[128];
		int to = (from + 1) % COUNT_OF(meshes);

		make_folder(folder);
		struct outcome own =
			resumed(meshes[from].ranks, meshes[from].options, folder, NULL);
		snprintf(path, sizeof(path), "%s/step-%08d", folder, EVERY);
		assert_string_equal(
			resumed(meshes[from].ranks, meshes[from].options, NULL, path).digest.hex,
			own.digest.hex);
		struct outcome out = resumed(meshes[to].ranks, meshes[to].options, NULL, path);
		for (int s = EVERY; s < 4; s++)
			expect_near(
				meshes[to].options, out.losses[s - EVERY], whole.losses[s], 1e-6);
		remove_folder(folder);
	}
}

/* The control: a rank that leaves something out, or has other tokens, ends otherwise. */
static void what_breaks_a_part_shows(void **state)
{
	static const char *const faults[] = {
		"scale_gradient=1", "drop_last_element=1", "wrong_sequence=3"};
	const char *options = "strategy=FULL_SHARD seq_len=8 micro_batch=2 grad_accum=1 context=2";
	struct outcome good = outcome_of(LONG_GPT2, 4, options, run_job(CHUNK_STEPS));

	(void)state;
	for (int i = 0; i < COUNT_OF(faults); i++) {
		struct executor_job job = run_job(CHUNK_STEPS);

		job.fault = faults[i];
		assert_string_not_equal(
			outcome_of(LONG_GPT2, 4, options, job).digest.hex, good.digest.hex);
	}
}

static void what_cannot_be_executed_is_refused(void **state)
{
	struct executor_job job = run_job(1);
	struct run run;

	(void)state;
	job.device = "cuda";
	run_plan(&run, LONG_LLAMA, 2,
		"strategy=NO_SHARD micro_batch=1 grad_accum=1 seq_len=8 context=2");
	assert_false(run_train(&run, &job));
	assert_int_equal(run.error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(run.error.message, "context ranks are executed on CPUs only"));
	run_finish(&run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(losses_and_norms_are_those_of_whole_sequences),
		cmocka_unit_test(chunks_of_any_length_do),
		cmocka_unit_test(bits_are_those_of_any_strategy),
		cmocka_unit_test(mixes_are_near),
		cmocka_unit_test(over_nodes_too),
		cmocka_unit_test(checkpoints_go_to_any_mesh),
		cmocka_unit_test(what_breaks_a_part_shows),
		cmocka_unit_test(what_cannot_be_executed_is_refused),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
