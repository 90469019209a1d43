/* Tensor ranks, executed: the results equal those of one rank except for rounding, with the same
 * bits under every strategy; the whole model's weights are those of any mesh. */
#include "checkpoint_runs.h"
#include "digest_cases.h"
#include "tests/sampled.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Vocabularies that no number of ranks divides; biases, queries that share keys. */
#define CUT_LLAMA                                                                                  \
	"shardplan: model/1\nname: cut-llama\nfamily: llama\nlayers: 2\nhidden: 20\nheads: 4\n"    \
	"kv_heads: 2\nhead_dim: 6\nffn: 32\nvocab: 257\ncontext: 24\n"
#define CUT_DEEP                                                                                   \
	"shardplan: model/1\nname: cut-deep\nfamily: llama\nlayers: 4\nhidden: 20\nheads: 4\n"     \
	"kv_heads: 4\nhead_dim: 6\nffn: 32\nvocab: 257\ncontext: 24\n"
#define CUT_GPT2                                                                                   \
	"shardplan: model/1\nname: cut-gpt2\nfamily: gpt2\nlayers: 2\nhidden: 24\nheads: 4\n"      \
	"ffn: 40\nvocab: 259\ncontext: 16\n"
#define CUT_QWEN                                                                                   \
	"shardplan: model/1\nname: cut-qwen\nfamily: qwen3\nlayers: 2\nhidden: 20\nheads: 4\n"     \
	"kv_heads: 4\nhead_dim: 6\nffn: 32\nvocab: 257\ncontext: 24\ntied_head: true\n"            \
	"qkv_bias: true\n"

enum { CUT_STEPS = 4 };

static struct outcome train_cut(
	const char *model, int64_t ranks, const char *options, struct executor_job job)
{
	char all[512];

	snprintf(all, sizeof(all), "seq_len=8 %s", options);
	return outcome_of(model, ranks, all, job);
}

/* --- training --- */

static const struct {
	const char *model;
	int64_t tensor;
} cuts[] = {{CUT_LLAMA, 2}, {CUT_GPT2, 2}, {CUT_GPT2, 4}, {CUT_QWEN, 4}};

/* One rank, tensor ranks that have all tokens, and those that share them out; whose forward pass
 * adds up the same parts, and ends in the same bits. */
static void expect_parity(const char *model, int64_t tensor, int64_t data)
{
	/* Parts of the stream begin and end inside of sequences. */
	const char *common = "micro_batch=3 grad_accum=2 clip=0.5";
	char alone[128], cut[192];
	struct outcome outs[2];

	snprintf(alone, sizeof(alone), "strategy=%s %s", data == 1 ? "NO_SHARD" : "FULL_SHARD",
		common);
	struct outcome one = train_cut(model, data, alone, run_job(CUT_STEPS));
	for (int i = 0; i < 2; i++) {
		snprintf(cut, sizeof(cut), "%s tensor=%lld sequence_parallel=%s", alone,
			(long long)tensor, i == 0 ? "off" : "on");
		outs[i] = train_cut(model, data * tensor, cut, run_job(CUT_STEPS));
		expect_alike(cut, &outs[i], &one, 1e-6);
	}
	assert_memory_equal(&outs[0].losses[0], &outs[1].losses[0], sizeof(double));
}

static void losses_and_norms_are_those_of_one_rank(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(cuts); i++)
		for (int64_t data = 1; data <= 2; data++)
			if (SAMPLED_EACH == 1 || (i + data) % 2 == 0)
				expect_parity(cuts[i].model, cuts[i].tensor, data);
}

/* Two tensor ranks of two, or of four that share out the data. */
static void bits_are_those_of_any_strategy(void **state)
{
	static const char *const plans[] = {"strategy=FULL_SHARD",
		"strategy=NO_SHARD activation_checkpointing=selective",
		"strategy=SHARD_GRAD_OP activation_checkpointing=full wrap=model",
		"strategy=ZERO_1 prefetch=post", "strategy=FULL_SHARD wrap=blocks:2 prefetch=none",
		"strategy=FULL_SHARD cpu_offload=optimizer",
		"strategy=FULL_SHARD cpu_offload=parameters activation_offload=all"};
	static const char common[] =
		"micro_batch=2 grad_accum=2 sync_each_micro_batch=off tensor=2 clip=0.5";

	(void)state;
	for (int m = 0; m < 2; m++) {
		const char *model = m == 0 ? CUT_LLAMA : CUT_GPT2;
		struct outcome first = {0};

		for (int i = 0; i < COUNT_OF(plans); i++) {
			char options[256];

			if (i > 0 && i % SAMPLED_EACH != m)
				continue;
			snprintf(options, sizeof(options), "%s %s sequence_parallel=%s", common,
				plans[i], m == 0 ? "on" : "off");
			struct outcome out = train_cut(model, 4, options, run_job(CUT_STEPS));
			if (i == 0)
				first = out;
			if (strcmp(out.digest.hex, first.digest.hex) != 0)
				fail_msg("%s: weights %s and %s", options, out.digest.hex,
					first.digest.hex);
		}
	}
}

/* Partial sums are added before a stage's output is sent: the same bits as without stages. */
static void stages_beside_tensor_ranks(void **state)
{
	static const struct {
		const char *options, *stages;
		int64_t n_stages;
		const char *model; /* NULL: CUT_DEEP */
	} plans[] = {{"strategy=FULL_SHARD sequence_parallel=off", "", 2},
		{"strategy=SHARD_GRAD_OP", "", 2},
		{"strategy=FULL_SHARD activation_checkpointing=full", "", 2},
		{"strategy=NO_SHARD activation_checkpointing=selective", "", 2},
		{"strategy=FULL_SHARD", "pipeline_schedule=gpipe", 2},
		{"strategy=FULL_SHARD", "pipeline_schedule=interleaved", 2},
		{"strategy=ZERO_1 sequence_parallel=off", "", 4},
		{"strategy=FULL_SHARD", "pipeline_schedule=interleaved layers_per_stage=0,2,1,1",
			2},
		{"strategy=FULL_SHARD sequence_parallel=off gradient_sums=exact", "", 2, CUT_QWEN}};

	(void)state;
	for (int i = 0; i < COUNT_OF(plans); i++) {
		char alone[192], all[256];
		int64_t ranks = 4, n = plans[i].n_stages;
		const char *model = plans[i].model != NULL ? plans[i].model : CUT_DEEP;

		if (i % SAMPLED_EACH != SAMPLED_EACH / 2)
			continue;
		snprintf(alone, sizeof(alone),
			"micro_batch=1 grad_accum=4 sync_each_micro_batch=off clip=0.5 tensor=2 "
			"%s",
			plans[i].options);
		snprintf(all, sizeof(all), "%s %s pipeline=%lld", alone, plans[i].stages,
			(long long)n);
		struct outcome one = train_cut(model, ranks, alone, run_job(CUT_STEPS));
		struct outcome out = train_cut(model, n * ranks, all, run_job(CUT_STEPS));
		expect_alike(all, &out, &one, 1e-12);
		assert_string_equal(out.digest.hex, one.digest.hex);
	}
}

static void bits_are_those_of_hybrid_groups(void **state)
{
	static const char common[] = "micro_batch=1 grad_accum=1 tensor=2";
	struct outcome outs[2];
	char options[256];

	(void)state;
	snprintf(options, sizeof(options), "strategy=HYBRID_SHARD shard_group=2 %s", common);
	outs[0] = train_cut(CUT_LLAMA, 8, options, run_job(CUT_STEPS));
	snprintf(
		options, sizeof(options), "strategy=FULL_SHARD reshard_after_forward=2 %s", common);
	outs[1] = train_cut(CUT_LLAMA, 8, options, run_job(CUT_STEPS));
	assert_string_equal(outs[0].digest.hex, outs[1].digest.hex);
}

/* In bf16 parts of sums are rounded; stochastic roundings of cut parameters have other numbers.
 * `joined`: the rank's parts of projections have the gradient of their input in one product. */
static void other_arithmetic_is_near(void **state)
{
	static const struct {
		const char *options;
		double most;
		bool joined;
	} kinds[] = {{"gradient_sums=exact sequence_parallel=off", 1e-6, false}, {"", 1e-6, true},
		{"param_dtype=bf16", 1e-2, false},
		{"param_dtype=bf16 reduce_dtype=bf16 master_dtype=bf16", 1e-2, false}};

	(void)state;
	for (int i = 0; i < COUNT_OF(kinds); i++) {
		char alone[128], cut[192];
		struct executor_job job = run_job(CUT_STEPS);

		job.any_rounding = kinds[i].joined;
		snprintf(alone, sizeof(alone), "strategy=NO_SHARD micro_batch=2 grad_accum=2 %s",
			kinds[i].options);
		snprintf(cut, sizeof(cut), "%s tensor=2", alone);
		struct outcome one = train_cut(CUT_LLAMA, 1, alone, run_job(CUT_STEPS));
		struct outcome other = train_cut(CUT_LLAMA, 2, cut, job);
		expect_alike(cut, &other, &one, kinds[i].most);
	}
}

/* A machine each, and the ranks of a model on both. */
static void over_nodes_too(void **state)
{
	(void)state;
	digest_over_nodes(CUT_LLAMA, "micro_batch=2 grad_accum=2 clip=0.5 tensor=2", CUT_STEPS);
}

/* --- weights --- */

/* Trains without moments, and with steps of length 0, so the digest is that of the initial
 * weights. */
static struct digest initial_digest(const char *model, int64_t tensor, const char *weights)
{
	struct executor_job job = run_job(1);
	char options[128];

	job.training.learning_rate = 0;
	job.weights = weights;
	snprintf(options, sizeof(options),
		"strategy=%s micro_batch=1 grad_accum=1 optimizer=sgd tensor=%lld",
		tensor > 1 ? "FULL_SHARD" : "NO_SHARD", (long long)tensor);
	return train_cut(model, tensor > 1 ? 2 * tensor : 1, options, job).digest;
}

/* A file of weights that one rank has trained for a step. */
static void write_weights(const char *model, const char *folder, const char *path)
{
	struct executor_job job = run_job(1);
	struct error error = {0};

	job.checkpoint = folder;
	train_cut(model, 1, "strategy=NO_SHARD micro_batch=1 grad_accum=1", job);
	if (!executor_export_safetensors(folder, path, &error))
		fail_msg("%s", error.message);
}

static void weights_are_those_of_the_whole_model(void **state)
{
	(void)state;
	for (int i = 0; i<COUNT_OF(cuts); i += SAMPLED_EACH> 1 ? 3 : 1) {
		const char *model = cuts[i].model;
		char folder[64], path[128];

		make_folder(folder);
		snprintf(path, sizeof(path), "%s/model.safetensors", folder);
		write_weights(model, folder, path);
		const struct digest random = initial_digest(model, 1, NULL);
		const struct digest read = initial_digest(model, 1, path);
		assert_string_not_equal(read.hex, random.hex);
		assert_string_equal(initial_digest(model, cuts[i].tensor, NULL).hex, random.hex);
		assert_string_equal(initial_digest(model, cuts[i].tensor, path).hex, read.hex);
		remove_folder(folder);
	}
}

/* --- checkpoints --- */

/* Two ranks share out the data of each. */
static const struct {
	int64_t tensor, stages;
	const char *options;
} meshes[] = {{1, 1, "strategy=FULL_SHARD"}, {2, 1, "strategy=FULL_SHARD wrap=model"},
	{4, 1, "strategy=SHARD_GRAD_OP cpu_offload=optimizer"}, {2, 2, "strategy=FULL_SHARD"}};

static struct outcome train_mesh(const char *model, int mesh, struct executor_job job)
{
	char options[192];

	snprintf(options, sizeof(options),
		"%s micro_batch=1 grad_accum=2 tensor=%lld pipeline=%lld", meshes[mesh].options,
		(long long)meshes[mesh].tensor, (long long)meshes[mesh].stages);
	return train_cut(model, 2 * meshes[mesh].tensor * meshes[mesh].stages, options, job);
}

static struct outcome resumed(const char *model, int mesh, const char *folder, const char *from)
{
	struct executor_job job = run_job(CUT_STEPS);

	job.checkpoint = folder;
	job.checkpoint_every = CUT_STEPS / 2;
	job.resume = from;
	return train_mesh(model, mesh, job);
}

/* Under AdamW, whose moments decide the third and fourth step. */
static void expect_resumed(const char *model, int from, int to, const char *path,
	const struct outcome *whole, const struct outcome *own)
{
	struct outcome out = resumed(model, to, NULL, path);

	for (int s = CUT_STEPS / 2; s < CUT_STEPS; s++)
		expect_near(path, out.losses[s - CUT_STEPS / 2], whole->losses[s], 1e-6);
	if (to == from)
		assert_string_equal(out.digest.hex, own->digest.hex);
}

static void checkpoints_go_from_any_mesh_to_any_other(void **state)
{
	static const char *const models[] = {CUT_GPT2, CUT_DEEP}; /* half of the pairs, and all */

	(void)state;
	for (int c = 0; c < COUNT_OF(models); c++) {
		const char *model = models[c];
		struct outcome whole = resumed(model, 0, NULL, NULL);

		for (int from = 0; from < COUNT_OF(meshes); from++) {
			char folder[64], path[128];

			if (SAMPLED_EACH > 1 && (c + from) % 2 != 0)
				continue;
			make_folder(folder);
			struct outcome own = resumed(model, from, folder, NULL);
			snprintf(path, sizeof(path), "%s/step-%08d", folder, CUT_STEPS / 2);
			for (int to = 0; to < COUNT_OF(meshes); to++)
				if ((c + from + to) % (SAMPLED_EACH > 1 ? 3 : 2 - c) == 0)
					expect_resumed(model, from, to, path, &whole, &own);
			remove_folder(folder);
		}
	}
}

/* Steps have length 0, so what is written is the initial weights, which are those of any mesh. */
static void files_of_any_mesh_are_the_same(void **state)
{
	char folders[COUNT_OF(meshes)][64], command[256];
	struct error error = {0};

	(void)state;
	for (int mesh = 0; mesh < COUNT_OF(meshes); mesh++) {
		struct executor_job job = run_job(1);
		char path[96];

		make_folder(folders[mesh]);
		job.checkpoint = folders[mesh];
		job.training.learning_rate = 0;
		train_mesh(CUT_QWEN, mesh, job);
		snprintf(path, sizeof(path), "%s/model.safetensors", folders[mesh]);
		if (!executor_export_safetensors(folders[mesh], path, &error))
			fail_msg("%s", error.message);
		snprintf(command, sizeof(command), "cmp %s/model.safetensors %s", folders[0], path);
		assert_int_equal(system(command), 0);
	}
	for (int mesh = 0; mesh < COUNT_OF(meshes); mesh++)
		remove_folder(folders[mesh]);
}

/* --- gradients --- */

/* One window of text, of which a small step along the gradient takes lr |g|^2 off the loss. */
static void a_step_takes_off_the_loss_what_the_norm_says(void **state)
{
	static const double lr = 1e-3;
	char path[] = "/tmp/shardplan-tensor-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "Of Man's ", 9), 9);
	close(fd);
	for (int i = 0; i < COUNT_OF(cuts); i++) {
		struct executor_job job = run_job(CUT_STEPS);
		char options[128];

		job.data = path;
		job.training.learning_rate = lr;
		job.training.weight_decay = 0;
		job.training.warmup = 0;
		snprintf(options, sizeof(options),
			"strategy=NO_SHARD micro_batch=1 grad_accum=1 optimizer=sgd tensor=%lld",
			(long long)cuts[i].tensor);
		struct outcome out = train_cut(cuts[i].model, cuts[i].tensor, options, job);
		/* The mean of the squares at both ends: the second order is gone. */
		for (int s = 0; s + 1 < CUT_STEPS; s++)
			expect_near(options, (out.losses[s] - out.losses[s + 1]) / lr,
				out.norms[s] * (out.norms[s] + out.norms[s + 1]) / 2, 2e-3);
	}
	unlink(path);
}

/* --- the controls --- */

static void what_breaks_a_part_shows(void **state)
{
	static const char *const faults[] = {
		"scale_gradient=1", "drop_last_element=1", "wrong_sequence=2"};
	const char *options = "strategy=FULL_SHARD micro_batch=2 grad_accum=1 tensor=2";
	struct outcome good = train_cut(CUT_GPT2, 4, options, run_job(CUT_STEPS));

	(void)state;
	for (int i = 0; i < COUNT_OF(faults); i++) {
		struct executor_job job = run_job(CUT_STEPS);
		struct run run;
		char all[256];

		job.fault = faults[i];
		snprintf(all, sizeof(all), "seq_len=8 %s", options);
		run_plan(&run, CUT_GPT2, 4, all);
		/* Norms that tensor ranks have alike must stay so. */
		if (run_train(&run, &job))
			assert_string_not_equal(run.measurement.weights_digest, good.digest.hex);
		else if (strstr(run.error.message, "tensor ranks differ") == NULL &&
			 strstr(run.error.message, "replicas differ") == NULL)
			fail_msg("%s: %s", faults[i], run.error.message);
		run_finish(&run);
	}
}

static void what_cannot_be_executed_is_refused(void **state)
{
	struct executor_job job = run_job(1);
	struct run run;

	(void)state;
	job.device = "cuda";
	run_plan(&run, CUT_LLAMA, 2,
		"strategy=NO_SHARD micro_batch=1 grad_accum=1 seq_len=8 tensor=2");
	assert_false(run_train(&run, &job));
	assert_int_equal(run.error.code, EXIT_CODE_USAGE);
	assert_non_null(strstr(run.error.message, "executed on CPUs only; use --device host"));
	run_finish(&run);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(losses_and_norms_are_those_of_one_rank),
		cmocka_unit_test(bits_are_those_of_any_strategy),
		cmocka_unit_test(stages_beside_tensor_ranks),
		cmocka_unit_test(bits_are_those_of_hybrid_groups),
		cmocka_unit_test(other_arithmetic_is_near),
		cmocka_unit_test(over_nodes_too),
		cmocka_unit_test(weights_are_those_of_the_whole_model),
		cmocka_unit_test(checkpoints_go_from_any_mesh_to_any_other),
		cmocka_unit_test(files_of_any_mesh_are_the_same),
		cmocka_unit_test(a_step_takes_off_the_loss_what_the_norm_says),
		cmocka_unit_test(what_breaks_a_part_shows),
		cmocka_unit_test(what_cannot_be_executed_is_refused),
	};

	run_as_rank(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
