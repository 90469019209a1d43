/* A mixture of experts, executed: several ranks compute the same bits as one; beside stages and
 * context ranks results differ by rounding only. Most experts have no rows of some sequence. */
#include "tests/executor/checkpoint_runs.h"
#include "tests/executor/digest_cases.h"

#define MANY_EXPERTS                                                                               \
	"shardplan: model/1\nname: many-experts\nfamily: mixtral\nlayers: 2\nhidden: 20\n"         \
	"heads: 4\nkv_heads: 2\nhead_dim: 6\nffn: 31\nvocab: 257\ncontext: 24\nexperts: 13\n"      \
	"experts_per_token: 3\nexpert_ffn: 23\n"

static struct outcome train_mixture(int64_t ranks, const char *options, struct executor_job job)
{
	char all[256];

	snprintf(all, sizeof(all), "seq_len=8 clip=0.5 %s", options);
	return outcome_of(MANY_EXPERTS, ranks, all, job);
}

static void bits_are_those_of_any_strategy(void **state)
{
	static const char *const plans[] = {"strategy=NO_SHARD activation_checkpointing=selective",
		"strategy=SHARD_GRAD_OP activation_checkpointing=full wrap=model",
		"strategy=ZERO_1 prefetch=post", "strategy=FULL_SHARD wrap=size:3000",
		"strategy=FULL_SHARD cpu_offload=optimizer",
		"strategy=FULL_SHARD cpu_offload=parameters activation_offload=all"};
	static const char *const dtypes[] = {"fp32", "bf16"};

	(void)state;
	for (int d = 0; d < COUNT_OF(dtypes); d++) {
		struct outcome first = {0};

		for (int i = 0; i < COUNT_OF(plans); i++) {
			char options[192];

			snprintf(options, sizeof(options),
				"micro_batch=2 grad_accum=2 sync_each_micro_batch=off "
				"param_dtype=%s %s",
				dtypes[d], plans[i]);
			struct outcome out = train_mixture(2, options, run_job(OUTCOME_STEPS));
			if (i == 0)
				first = out;
			expect_same(options, &out, &first);
		}
	}
}

/* Eight sequences a step. With exact sums it is the bits that are those of one rank. */
static void ranks_share_out_the_data(void **state)
{
	static const char *const sums[] = {"", "gradient_sums=exact"};
	static const struct {
		int64_t ranks;
		const char *options;
		bool same;
	} others[] = {{1, "micro_batch=8 grad_accum=1", true},
		{2, "micro_batch=2 grad_accum=2", true}, {4, "micro_batch=1 grad_accum=2", true},
		{2, "micro_batch=2 grad_accum=4 pipeline=2", true},
		{4, "micro_batch=2 grad_accum=2 context=2", false}};

	(void)state;
	for (int s = 0; s < COUNT_OF(sums); s++) {
		char options[128];

		snprintf(options, sizeof(options), "micro_batch=2 grad_accum=4 %s", sums[s]);
		struct outcome one = train_mixture(1, options, run_job(OUTCOME_STEPS));
		for (int i = 0; i < COUNT_OF(others); i++) {
			snprintf(options, sizeof(options), "strategy=FULL_SHARD %s %s",
				others[i].options, sums[s]);
			struct outcome out =
				train_mixture(others[i].ranks, options, run_job(OUTCOME_STEPS));
			expect_alike(options, &out, &one, 1e-6);
			if (s == 1 && others[i].same)
				expect_same(options, &out, &one);
		}
	}
}

static void checkpoints_go_to_any_number_of_ranks(void **state)
{
	static const char options[] = "micro_batch=4 grad_accum=1 gradient_sums=exact";
	static const char half[] = "micro_batch=2 grad_accum=1 gradient_sums=exact";
	struct executor_job saving = run_job(OUTCOME_STEPS), going_on = saving;
	char folder[64], path[128];

	(void)state;
	make_folder(folder);
	snprintf(path, sizeof(path), "%s/step-%08d", folder, OUTCOME_STEPS / 2);
	saving.checkpoint = folder;
	saving.checkpoint_every = OUTCOME_STEPS / 2;
	going_on.resume = path;
	struct outcome whole = train_mixture(1, options, saving);
	struct outcome out = train_mixture(2, half, going_on);
	assert_string_equal(out.digest.hex, whole.digest.hex);
	remove_folder(folder);
}

static void gpus_are_refused(void **state)
{
	struct executor_job job = run_job(1);
	struct run run;

	(void)state;
	job.device = "cuda";
	run_plan(&run, MANY_EXPERTS, 1, "strategy=NO_SHARD seq_len=8");
	assert_false(run_train(&run, &job));
	assert_int_equal(run.error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(run.error.message, "a mixture of experts is executed on CPUs only"));
	run_finish(&run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bits_are_those_of_any_strategy),
		cmocka_unit_test(ranks_share_out_the_data),
		cmocka_unit_test(checkpoints_go_to_any_number_of_ranks),
		cmocka_unit_test(gpus_are_refused),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
