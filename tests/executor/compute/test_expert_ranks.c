/* Ranks that share out experts: with exact sums they end with the bits of one rank, under any
 * strategy, beside any other axis, and also if all tokens go to one of them. */
#include "tests/executor/checkpoint_runs.h"
#include "tests/executor/digest_cases.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Most experts have no rows of some sequence. */
#define TWELVE_EXPERTS                                                                             \
	"shardplan: model/1\nname: twelve-experts\nfamily: mixtral\nlayers: 2\nhidden: 20\n"       \
	"heads: 4\nkv_heads: 2\nhead_dim: 6\nffn: 31\nvocab: 257\ncontext: 24\nexperts: 12\n"      \
	"experts_per_token: 3\nexpert_ffn: 23\n"

static struct outcome train_experts(int64_t ranks, const char *options, struct executor_job job)
{
	char all[256];

	snprintf(all, sizeof(all), "seq_len=8 clip=0.5 %s", options);
	return outcome_of(TWELVE_EXPERTS, ranks, all, job);
}

/* Trains one rank with the eight sequences of a step. */
static struct outcome one_rank(const char *sums)
{
	char options[128];

	snprintf(options, sizeof(options), "strategy=FULL_SHARD micro_batch=2 grad_accum=4 %s",
		sums);
	return train_experts(1, options, run_job(OUTCOME_STEPS));
}

static const struct {
	int64_t ranks;
	const char *options;
} plans[] = {
	{2, "strategy=NO_SHARD expert=2 micro_batch=4 grad_accum=1"},
	{4, "strategy=NO_SHARD expert=2 micro_batch=1 grad_accum=2"},
	{4, "strategy=FULL_SHARD expert=4 micro_batch=2 grad_accum=1"},
	{4, "strategy=FULL_SHARD expert=2 micro_batch=2 grad_accum=1 "
	    "activation_checkpointing=full"},
	{4, "strategy=SHARD_GRAD_OP expert=2 micro_batch=1 grad_accum=2 "
	    "sync_each_micro_batch=off activation_checkpointing=selective"},
	{4, "strategy=HYBRID_SHARD shard_group=2 expert=2 micro_batch=1 grad_accum=2"},
	{4, "strategy=ZERO_1 expert=4 micro_batch=1 grad_accum=2"},
	{2, "strategy=ZERO_2 expert=2 micro_batch=1 grad_accum=4 wrap=model"},
	{2, "strategy=FULL_SHARD expert=2 micro_batch=2 grad_accum=2 cpu_offload=parameters "
	    "activation_offload=all"},
	{4, "strategy=FULL_SHARD expert=2 micro_batch=1 grad_accum=4 pipeline=2"},
	{4, "strategy=NO_SHARD expert=2 micro_batch=2 grad_accum=2 pipeline=2 "
	    "pipeline_schedule=gpipe activation_checkpointing=full"},
};

static void bits_are_those_of_one_rank(void **state)
{
	static const char *const sums[] = {"", "gradient_sums=exact"};

	(void)state;
	for (int s = 0; s < COUNT_OF(sums); s++) {
		struct outcome one = one_rank(sums[s]);

		for (int i = 0; i < COUNT_OF(plans); i++) {
			char options[256];

			snprintf(options, sizeof(options), "%s %s", plans[i].options, sums[s]);
			struct outcome out =
				train_experts(plans[i].ranks, options, run_job(OUTCOME_STEPS));
			expect_alike(options, &out, &one, 1e-6);
			if (s == 1)
				expect_same(options, &out, &one);
		}
	}
}

/* Two add up gradients in the order of the ranks' tree: bits are the same without exact sums, and
 * in bf16, whose master weights are rounded by chance. */
static void two_add_up_as_the_tree_does(void **state)
{
	static const char *const dtypes[] = {"fp32", "bf16", "bf16 master_dtype=bf16"};

	(void)state;
	for (int d = 0; d < COUNT_OF(dtypes); d++) {
		struct outcome outs[2];

		for (int e = 1; e <= 2; e++) {
			char options[192];

			snprintf(options, sizeof(options),
				"strategy=FULL_SHARD micro_batch=2 grad_accum=2 expert=%d "
				"param_dtype=%s",
				e, dtypes[d]);
			outs[e - 1] = train_experts(2, options, run_job(OUTCOME_STEPS));
		}
		expect_same(dtypes[d], &outs[1], &outs[0]);
	}
}

/* Attention of the same context ranks, of whom experts are shared out. */
static void beside_context_ranks(void **state)
{
	static const char *const methods[] = {"all-gather", "ring", "all-to-all"};

	(void)state;
	for (int m = 0; m < COUNT_OF(methods); m++) {
		struct outcome outs[2];

		for (int e = 0; e < 2; e++) {
			char options[192];

			snprintf(options, sizeof(options),
				"strategy=FULL_SHARD micro_batch=2 grad_accum=2 context=2 "
				"context_method=%s gradient_sums=exact %s",
				methods[m], e == 0 ? "" : "expert=4");
			outs[e] = train_experts(4, options, run_job(OUTCOME_STEPS));
		}
		expect_same(methods[m], &outs[1], &outs[0]);
	}
}

static void over_nodes(void **state)
{
	(void)state;
	digest_over_nodes(TWELVE_EXPERTS, "expert=4 seq_len=8 micro_batch=2 grad_accum=1", 2);
}

/* --- files --- */

static struct outcome go_on(const char *path, int64_t ranks, const char *options)
{
	struct executor_job job = run_job(OUTCOME_STEPS);

	job.resume = path;
	return train_experts(ranks, options, job);
}

static void checkpoints_go_to_other_expert_ranks(void **state)
{
	static const char four[] =
		"strategy=FULL_SHARD expert=4 micro_batch=1 grad_accum=2 gradient_sums=exact";
	static const char two[] =
		"strategy=NO_SHARD expert=2 micro_batch=1 grad_accum=4 gradient_sums=exact";
	static const char one[] =
		"strategy=FULL_SHARD micro_batch=2 grad_accum=4 gradient_sums=exact";
	struct executor_job saving = run_job(OUTCOME_STEPS);
	char folder[64], path[128];

	(void)state;
	make_folder(folder);
	snprintf(path, sizeof(path), "%s/step-%08d", folder, OUTCOME_STEPS / 2);
	saving.checkpoint = folder;
	saving.checkpoint_every = OUTCOME_STEPS / 2;
	struct outcome whole = train_experts(4, four, saving);
	struct outcome out = go_on(path, 1, one);
	assert_string_equal(out.digest.hex, whole.digest.hex);
	out = go_on(path, 2, two);
	assert_string_equal(out.digest.hex, whole.digest.hex);
	remove_folder(folder);
	make_folder(folder);
	snprintf(path, sizeof(path), "%s/step-%08d", folder, OUTCOME_STEPS / 2);
	saving.checkpoint = folder;
	train_experts(1, one, saving);
	out = go_on(path, 4, four);
	assert_string_equal(out.digest.hex, whole.digest.hex);
	remove_folder(folder);
}

/* Zeros in place of a tensor of a safetensors file. */
static void clear_tensor(char *file, const char *name)
{
	static const char offsets[] = "\"data_offsets\":[";
	int64_t header, begin, end;
	char *at;

	memcpy(&header, file, sizeof(header));
	at = strstr(file + sizeof(header), name);
	assert_non_null(at);
	at = strstr(at, offsets);
	assert_non_null(at);
	assert_int_equal(sscanf(at + sizeof(offsets) - 1, "%" SCNd64 ",%" SCNd64, &begin, &end), 2);
	memset(file + sizeof(header) + header + begin, 0, (size_t)(end - begin));
}

/* Routers that find all experts equal: the first ones get all tokens. */
static void clear_routers(const char *path)
{
	FILE *f = fopen(path, "r+b");
	struct stat info;
	char *file;

	assert_non_null(f);
	assert_int_equal(fstat(fileno(f), &info), 0);
	file = calloc(1, (size_t)info.st_size + 1);
	assert_int_equal(fread(file, 1, (size_t)info.st_size, f), info.st_size);
	for (int layer = 0; layer < 2; layer++) {
		char name[96];

		snprintf(name, sizeof(name), "model.layers.%d.block_sparse_moe.gate.weight\"",
			layer);
		clear_tensor(file, name);
	}
	rewind(f);
	assert_int_equal(fwrite(file, 1, (size_t)info.st_size, f), info.st_size);
	fclose(f);
	free(file);
}

/* There is memory for as many rows as can come. The weights are read by each rank, its part. */
static void all_tokens_go_to_one_rank(void **state)
{
	static const char options[] = "micro_batch=2 grad_accum=1 gradient_sums=exact";
	struct executor_job job = run_job(1);
	struct error error = {0};
	char folder[64], path[128];

	(void)state;
	make_folder(folder);
	snprintf(path, sizeof(path), "%s/model.safetensors", folder);
	job.checkpoint = folder;
	train_experts(4, "strategy=FULL_SHARD expert=2 micro_batch=2 grad_accum=1", job);
	assert_true(executor_export_safetensors(folder, path, &error));
	clear_routers(path);
	job = run_job(OUTCOME_STEPS);
	job.weights = path;
	struct outcome one = train_experts(
		1, "micro_batch=8 grad_accum=1 gradient_sums=exact strategy=NO_SHARD", job);
	for (int e = 2; e <= 4; e += 2) {
		char all[128];

		snprintf(all, sizeof(all), "strategy=FULL_SHARD expert=%d %s", e, options);
		struct outcome out = train_experts(4, all, job);
		expect_same(all, &out, &one);
	}
	remove_folder(folder);
}

/* Or for as many as the plan says: the first step with more ends the run, in one line. */
static void more_rows_than_the_plan_has_room_for(void **state)
{
	static const char plan[] = "strategy=FULL_SHARD micro_batch=4 grad_accum=1 expert=2";
	struct executor_job job = run_job(OUTCOME_STEPS);
	struct outcome all = train_experts(2, plan, job);
	char options[192];
	struct run run;

	(void)state;
	snprintf(options, sizeof(options), "%s expert_load=2", plan);
	struct outcome out = train_experts(2, options, job);
	expect_same("as many as can come", &out, &all);
	snprintf(options, sizeof(options), "seq_len=8 %s expert_load=1", plan);
	run_plan(&run, TWELVE_EXPERTS, 2, options);
	assert_false(run_train(&run, &job));
	assert_int_equal(run.error.code, EXIT_CODE_FAULT);
	assert_non_null(strstr(run.error.message, "--expert-load 1 has memory for 96; plan with"));
	run_finish(&run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_are_those_of_one_rank),
		cmocka_unit_test(two_add_up_as_the_tree_does),
		cmocka_unit_test(beside_context_ranks),
		cmocka_unit_test(over_nodes),
		cmocka_unit_test(checkpoints_go_to_other_expert_ranks),
		cmocka_unit_test(all_tokens_go_to_one_rank),
		cmocka_unit_test(more_rows_than_the_plan_has_room_for),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
