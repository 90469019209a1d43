/* Training on GPUs that are none (fakes/cuda.h): every plan's schedule runs with the streams,
 * events and copies that a GPU would get, in an order that is drawn by chance where nothing orders
 * it, and must end in the weights that the CPU ends in, to the last bit. Races, uses of freed
 * memory and synchronisation inside a step end the run. With "slow" as argument many more plans. */
#include <math.h>
#include <stdlib.h>

#include "digest_cases.h"
#include "tests/executor/fakes/cuda.h"
#include "tests/sampled.h"

/* The second is captured, the third only launched. */
enum { STEPS = 3 };
/* Only every EVERYth variant of each group runs; sanitizers look for something else. */
enum { EVERY = SAMPLED_EACH > 1 ? 117 : 13, LEAST_GRAPHS = SAMPLED_EACH > 1 ? 2 : 10 };

static bool thorough, any_rounding, all_plans;
static enum graph_wish graphs;
static int most_blocks;             /* --nccl max-ctas */
static int n_graphs;                /* runs that used one */
static struct measurement measured; /* without its strings */
static double last_loss;
static const char *cluster; /* that plans are for; NULL: this machine */
static char how_registered[128];
static char how_chosen[128], how_attended[128];
static const struct calibration
	*calibrated; /* what a plan's topology knows of products; NULL: nothing */

/* One digest and its error. */
static struct digest train(const char *model, int64_t ranks, const char *options,
	const char *device, const char *transport, const char *fault, struct error *error)
{
	struct executor_job job = run_job(STEPS);
	struct digest digest = {""};
	struct run run;

	if (cluster != NULL)
		run_plan_on(&run, model, cluster, options);
	else
		run_plan(&run, model, ranks, options);
	if (calibrated != NULL)
		run.file.topology->calibration = *calibrated;
	job.device = device;
	job.transport = transport;
	job.kernels = "reference";
	job.fault = fault;
	job.any_rounding = any_rounding;
	job.all_plans = all_plans;
	job.cuda_graphs = graphs;
	job.nccl.max_ctas = most_blocks;
	if (run_train(&run, &job)) {
		snprintf(digest.hex, sizeof(digest.hex), "%s", run.measurement.weights_digest);
		const char *how = run.measurement.cuda_graphs;

		n_graphs += how != NULL && strcmp(how, "on") == 0;
		measured = run.measurement;
		last_loss = measured.losses[measured.n_losses - 1];
		how = run.measurement.nccl_buffers;
		snprintf(how_registered, sizeof(how_registered), "%s", how != NULL ? how : "");
		how = run.measurement.product_choices;
		snprintf(how_chosen, sizeof(how_chosen), "%s", how != NULL ? how : "");
		how = run.measurement.attention_choices;
		snprintf(how_attended, sizeof(how_attended), "%s", how != NULL ? how : "");
	} else {
		*error = run.error;
	}
	run_finish(&run);
	return digest;
}

/* Trains without an error. `where`: "cpu", "gpu", or the transport of GPUs. */
static struct digest trained(
	const char *model, int64_t ranks, const char *options, const char *where)
{
	bool cpu = strcmp(where, "cpu") == 0, any = strcmp(where, "gpu") == 0;
	struct error error = {0};
	struct digest digest = train(model, ranks, options, cpu ? "host" : "cuda",
		cpu || any ? NULL : where, NULL, &error);

	if (error.message[0] != '\0')
		fail_msg("%s on %lld ranks, %s, %s: %s", model, (long long)ranks, where, options,
			error.message);
	return digest;
}

/* On GPUs, with code (0: any) and words. */
static void expect_error(const char *model, int64_t ranks, const char *options,
	const char *transport, const char *fault, int code, const char *words)
{
	struct error error = {0};

	train(model, ranks, options, "cuda", transport, fault, &error);
	if ((code != 0 && (int)error.code != code) || strstr(error.message, words) == NULL)
		fail_msg("expected %d, \"%s\", got %d, \"%s\"", code, words, (int)error.code,
			error.message);
}

static void write_options(char options[512], const char *mode, const struct digest_variant *variant)
{
	char described[256];

	digest_describe(variant, described);
	snprintf(options, 512, "seq_len=11 %s %s", mode, described);
}

/* All variants against what the CPU makes of the first: one model, number of ranks and mode. */
static int check_group(const struct digest_model *model, int64_t ranks, int mode,
	const struct digest_variant *variants, int n, const char *transport)
{
	struct digest cpu = {""};
	char options[512];
	int plans = 0;

	for (int i = 0; i < n; i++) {
		write_options(options, digest_modes[mode], &variants[i]);
		if (i == 0)
			cpu = trained(model->text, ranks, options, "cpu");
		if (!thorough && i > 0 && (i + mode) % EVERY != 0)
			continue;
		struct digest gpu = trained(model->text, ranks, options, transport);
		if (strcmp(gpu.hex, cpu.hex) != 0)
			fail_msg("%s on %lld ranks, %s: %s on the GPU, %s on the CPU", model->name,
				(long long)ranks, options, gpu.hex, cpu.hex);
		plans++;
	}
	return plans;
}

static void every_strategy(const char *transport)
{
	struct digest_variant variants[64];
	int plans = 0, each = thorough ? SAMPLED_EACH : 2 * SAMPLED_EACH;

	n_graphs = 0;

	for (int m = 0; m < n_digest_models; m++)
		for (int r = 0; r < n_digest_ranks; r += 2)
			for (int mode = (m + r / 2) % each; mode < n_digest_modes; mode += each) {
				int64_t ranks = digest_ranks[r];
				int n = digest_some_variants(ranks, thorough ? 40 : 5,
					(uint32_t)(m * 31 + r * 7 + mode + 1), variants);

				n += digest_zero_variants(ranks, mode, variants + n);
				n += digest_unit_variants(
					ranks, digest_models[m].layers, variants + n);
				plans += check_group(
					&digest_models[m], ranks, mode, variants, n, transport);
			}
	print_message("%d plans, %d of them as graphs\n", plans, n_graphs);
}

static void ranks_that_share_a_gpu(void **state)
{
	(void)state;
	every_strategy("device");
}

static void ranks_with_a_gpu_each(void **state)
{
	(void)state;
	every_strategy("nccl");
	assert_true(n_graphs > LEAST_GRAPHS);
}

/* Rounded by chance where the weights are: the random bits are those of a CPU, also where a graph
 * is launched again and only the step's number changes. */
static void states_in_bf16(void **state)
{
	/* Gradients in bf16 of one sequence: of more, a GPU rounds an embedding's once. */
	static const char *const plans[] = {"strategy=FULL_SHARD clip=0.5 micro_batch=2",
		"strategy=NO_SHARD optimizer=sgd micro_batch=2",
		("strategy=HYBRID_SHARD shard_group=2 wrap=size:1500 reduce_dtype=bf16 "
		 "micro_batch=1"),
		"strategy=SHARD_GRAD_OP cpu_offload=optimizer micro_batch=2"};
	struct digest seen[COUNT_OF(plans)];

	(void)state;
	n_graphs = 0;
	for (int i = 0; i < COUNT_OF(plans); i++) {
		char options[256];

		snprintf(options, sizeof(options),
			"seq_len=11 param_dtype=bf16 master_dtype=bf16 %s", plans[i]);
		seen[i] = trained(TINY_GPT2, 4, options, "cpu");
		for (int transport = 0; transport < 2; transport++) {
			if (SAMPLED_EACH > 1 && transport != i % 2)
				continue;
			const char *where = transport == 0 ? "device" : "nccl";
			assert_string_equal(trained(TINY_GPT2, 4, options, where).hex, seen[i].hex);
		}
	}
	assert_int_equal(n_graphs, SAMPLED_EACH > 1 ? 1 : COUNT_OF(plans) - 1);
	assert_string_not_equal(seen[0].hex, seen[1].hex);
}

/* 550 tokens are two chunks, the second of which begins inside a sequence. */
static void heads_in_chunks(void **state)
{
	static const char *const plans[] = {"strategy=FULL_SHARD",
		"strategy=ZERO_1 param_dtype=bf16 micro_batch=101",
		"strategy=FULL_SHARD wrap=size:1500 grad_accum=2 sync_each_micro_batch=off"};

	(void)state;
	for (int i = 0; i < COUNT_OF(plans); i += SAMPLED_EACH) {
		char options[256];

		snprintf(options, sizeof(options), "seq_len=11 loss=fused-linear %s%s", plans[i],
			i == 1 ? "" : " micro_batch=50");
		assert_string_equal(trained(TINY_GPT2, 2, options, "device").hex,
			trained(TINY_GPT2, 2, options, "cpu").hex);
	}
}

/* Where any rounding will do: GELU as an epilogue, in every range that holds the projection too;
 * products for several projections, which a CPU has as well. */
static void products_of_any_rounding(void **state)
{
	static const struct {
		const char *model, *options;
		bool on_cpu;
	} plans[] = {{TINY_GPT2, "strategy=FULL_SHARD param_dtype=bf16", false},
		{TINY_GPT2, "strategy=FULL_SHARD activation_checkpointing=full", false},
		{TINY_GPT2, "strategy=SHARD_GRAD_OP activation_checkpointing=selective", false},
		{TINY_GPT2, "strategy=FULL_SHARD wrap=size:1500", false},
		{WHOLE_LLAMA, "strategy=FULL_SHARD activation_checkpointing=full", true}};

	(void)state;
	for (int i = 0; i < COUNT_OF(plans); i++) {
		char options[256];

		snprintf(options, sizeof(options), "seq_len=11 micro_batch=2 %s", plans[i].options);
		any_rounding = plans[i].on_cpu;
		struct digest cpu = trained(plans[i].model, 2, options, "cpu");
		any_rounding = true;
		struct digest gpu = trained(plans[i].model, 2, options, "device");
		any_rounding = false;
		assert_string_equal(gpu.hex, cpu.hex);
	}
}

/* All that is measured but times, with graphs and without. */
static void graphs_change_nothing(void **state)
{
	static const char *const plans[] = {"seq_len=11 micro_batch=2 strategy=FULL_SHARD",
		"seq_len=11 micro_batch=1 grad_accum=3 strategy=NO_SHARD clip=0.5 optimizer=sgd",
		("seq_len=11 micro_batch=1 grad_accum=2 strategy=FULL_SHARD wrap=size:1500 "
		 "limit_all_gathers=on prefetch=post clip=0.5")};
	static const struct {
		int64_t ranks;
		const char *transport;
	} machines[] = {{4, "nccl"}, {1, "device"}};

	(void)state;
	for (int i = 0; i<COUNT_OF(plans) * COUNT_OF(machines); i += SAMPLED_EACH> 1 ? 5 : 1) {
		const char *transport = machines[i % 2].transport;
		int64_t ranks = machines[i % 2].ranks;

		graphs = GRAPHS_ON;
		struct digest with = trained(TINY_GPT2, ranks, plans[i / 2], transport);
		struct measurement m = measured;
		graphs = GRAPHS_OFF;
		struct digest without = trained(TINY_GPT2, ranks, plans[i / 2], transport);
		graphs = GRAPHS_AUTO;
		assert_string_equal(with.hex, without.hex);
		assert_int_equal(m.values.ledger_peak_bytes, measured.values.ledger_peak_bytes);
		assert_true(m.values.wire_bytes_per_rank == measured.values.wire_bytes_per_rank);
		assert_memory_equal(m.values.collectives, measured.values.collectives,
			sizeof(m.values.collectives));
		assert_int_equal(
			m.values.model_states_gradients, measured.values.model_states_gradients);
		assert_true(m.values.time.compute > 0 && m.values.time.optimizer > 0);
	}
}

/* The GPU's own account: every rank's allocations, and what was there before; ranks with a GPU each
 * see the fake's only account, which is of all of them. */
static void the_gpus_own_account(void **state)
{
	static const char plan[] = "seq_len=11 micro_batch=2 strategy=FULL_SHARD";

	(void)state;
	for (int64_t ranks = 1; ranks <= 4; ranks += 3) {
		trained(TINY_GPT2, ranks, plan, "device");
		int64_t allocated = ranks * measured.pss_growth_bytes;

		assert_int_equal(measured.device_ranks, ranks);
		assert_true(measured.device_used_bytes >= allocated);
		assert_true(measured.device_used_bytes < allocated + (1 << 20));
	}
	trained(TINY_GPT2, 2, plan, "nccl");
	assert_int_equal(measured.device_ranks, 1);
	assert_true(measured.device_used_bytes >= measured.pss_growth_bytes);
	trained(TINY_GPT2, 2, plan, "cpu");
	assert_int_equal(measured.device_ranks, 0);
	assert_int_equal(measured.device_used_bytes, 0);
}

static void graphs_that_cannot_be(void **state)
{
	(void)state;
	graphs = GRAPHS_ON;
	expect_error(TINY_GPT2, 2, "seq_len=11 micro_batch=1 strategy=FULL_SHARD", "device", NULL,
		EXIT_CODE_USAGE, "--cuda-graphs on: ranks that share a GPU");
	expect_error(TINY_GPT2, 2,
		"seq_len=11 micro_batch=1 strategy=FULL_SHARD cpu_offload=optimizer", "nccl", NULL,
		EXIT_CODE_USAGE, "--cuda-graphs on: the host updates what is offloaded");
	graphs = GRAPHS_AUTO;
}

/* What NCCL registers depends on its version and on the GPUs; a rank is another process, which sees
 * the environment. */
static void buffers_that_nccl_knows(void **state)
{
	static const struct {
		const char *version, *windows, *how;
	} cases[] = {{"22809", "1", "symmetric windows"}, {"22809", "0", "registered"},
		{"22304", "1", "registered"}, {"21805", "1", "not registered: this NCCL has no "}};
	static const char plan[] =
		"seq_len=11 micro_batch=2 clip=0.5 strategy=HYBRID_SHARD shard_group=2";
	struct digest cpu = trained(TINY_GPT2, 4, plan, "cpu");

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		setenv("FAKE_NCCL_VERSION", cases[i].version, 1);
		setenv("NCCL_WIN_ENABLE", cases[i].windows, 1);
		assert_string_equal(trained(TINY_GPT2, 4, plan, "nccl").hex, cpu.hex);
		if (strncmp(how_registered, cases[i].how, strlen(cases[i].how)) != 0)
			fail_msg("NCCL %s: expected %s, got %s", cases[i].version, cases[i].how,
				how_registered);
	}
	unsetenv("FAKE_NCCL_VERSION");
	unsetenv("NCCL_WIN_ENABLE");
}

/* In every micro-batch, and with the CPU's bits. */
static void products_sum_biases(void **state)
{
	static const char plan[] = "seq_len=11 micro_batch=1 grad_accum=3 strategy=SHARD_GRAD_OP";

	(void)state;
	setenv("FAKE_NO_BIAS_PASS", "1", 1);
	assert_string_equal(
		trained(TINY_GPT2, 2, plan, "nccl").hex, trained(TINY_GPT2, 2, plan, "cpu").hex);
	unsetenv("FAKE_NO_BIAS_PASS");
}

static struct digest train_in(const char *recipe, const char *model, const char *how)
{
	char options[256];

	snprintf(options, sizeof(options),
		"seq_len=16 micro_batch=2 grad_accum=2 runtime=shardplan param_dtype=bf16 fp8=%s "
		"%s",
		recipe, how);
	return trained(model, 2, options, "nccl");
}

/* Every product of a block, also those that are computed again; bits do not depend on shards. */
static void products_in_fp8(void **state)
{
	static const char *const recipes[] = {"tensorwise", "rowwise"};
	static const char *const models[] = {WHOLE_GPT2, WHOLE_LLAMA};
	struct error error = {0};

	(void)state;
	cluster = TWO_GPUS;
	for (int i = 0; i < 4; i += thorough ? 1 : 3) {
		const char *recipe = recipes[i % 2], *model = models[i / 2];
		struct digest off = train_in("off", model, "strategy=FULL_SHARD");
		double loss = last_loss;

		setenv("FAKE_FP8", i % 2 == 0 ? "5" : "4", 1);
		any_rounding = true;
		struct digest one = train_in(recipe, model, "strategy=FULL_SHARD");
		any_rounding = false;
		assert_true(last_loss != loss && fabs(last_loss - loss) < 0.02 * loss);
		struct digest two =
			train_in(recipe, model, "strategy=NO_SHARD activation_checkpointing=full");
		unsetenv("FAKE_FP8");
		assert_string_equal(one.hex, two.hex);
		assert_string_not_equal(one.hex, off.hex);
	}
	train(WHOLE_GPT2, 2, "seq_len=16 runtime=shardplan param_dtype=bf16 fp8=rowwise", "host",
		NULL, NULL, &error);
	assert_non_null(strstr(error.message, "products in fp8 on CPUs; use --fp8 off"));
	cluster = NULL;
}

/* What kernels are told of collectives beside them. */
static void kernels_know_of_collectives(void **state)
{
	static const struct {
		const char *transport, *beside;
		int most;
	} cases[] = {{"nccl", "-1", 0}, {"nccl", "8", 8}, {"device", "0", 8}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		setenv("FAKE_BESIDE", cases[i].beside, 1);
		most_blocks = cases[i].most;
		trained(TINY_GPT2, 2, "seq_len=11 strategy=FULL_SHARD", cases[i].transport);
		most_blocks = 0;
		unsetenv("FAKE_BESIDE");
	}
}

/* What NCCL takes beyond what it was asked for is memory of the run. */
static void memory_that_nccl_rounds_up(void **state)
{
	enum { PIECE = 4 << 20 };
	static const char plan[] = "seq_len=11 micro_batch=2 strategy=FULL_SHARD";
	int64_t grown;

	(void)state;
	trained(TINY_GPT2, 4, plan, "nccl");
	grown = measured.pss_growth_bytes;
	setenv("FAKE_NCCL_PIECE", "4194304", 1);
	trained(TINY_GPT2, 4, plan, "nccl");
	unsetenv("FAKE_NCCL_PIECE");
	assert_true(measured.pss_growth_bytes > grown && measured.pss_growth_bytes - grown < PIECE);
	assert_true(measured.pss_growth_bytes > PIECE);
}

/* The control: a stream that does not wait for another is a race, wherever it is. */
static void a_dropped_wait_is_a_race(void **state)
{
	(void)state;
	expect_error(TINY_GPT2, 4, "seq_len=11 micro_batch=2 strategy=FULL_SHARD", "device",
		"drop_wait", 0, "race: ");
}

static void a_wild_token_is_told(void **state)
{
	static const char plan[] = "seq_len=11 micro_batch=2 strategy=FULL_SHARD";

	(void)state;
	expect_error(TINY_GPT2, 2, plan, "device", "wild_token=1@step=1", EXIT_CODE_INTERNAL,
		"step 1: the GPU met token ");
	/* Loaded for a launch. */
	expect_error(
		TINY_GPT2, 2, plan, "nccl", "wild_token=0@step=2", 0, "step 2: the GPU met token ");
}

static void what_is_missing_is_said(void **state)
{
	(void)state;
	expect_error(TINY_GPT2, 8, "seq_len=11 micro_batch=1", "nccl", NULL, EXIT_CODE_USAGE,
		"need a GPU each");
	all_plans = true;
	expect_error(TINY_GPT2, 2, "seq_len=11 micro_batch=1", "nccl", NULL, EXIT_CODE_USAGE,
		"NCCL adds in an order of its own");
	all_plans = false;
}

static struct digest trained_llama(const char *options)
{
	return trained(digest_models[1].text, 1, options, "gpu");
}

/* What the calibration chose for products: a shape of the model's, one of none; another library. */
static void products_that_were_chosen(void **state)
{
	static const char options[] = "seq_len=16 micro_batch=1 grad_accum=1";
	struct calibration_choice choices[] = {
		{.form = PRODUCT_FORWARD, .m = 16, .n = 20, .k = 24, .algorithm = 11},
		{.form = PRODUCT_FORWARD, .m = 16, .n = 41, .k = 24, .algorithm = 11},
	};
	struct calibration known = {
		.choices_library = 130100, .n_choices = COUNT_OF(choices), .choices = choices};

	(void)state;
	struct digest plain = trained_llama(options), chosen;
	assert_string_equal(how_chosen, "");
	calibrated = &known;
	chosen = trained_llama(options);
	assert_string_equal(how_chosen, "1 of 2 used");
	assert_string_equal(chosen.hex, plain.hex);
	known.choices_library = 120000;
	trained_llama(options);
	calibrated = NULL;
	assert_string_equal(how_chosen,
		"none used: chosen with cuBLASLt 120000, here is 130100 (calibrate again)");
}

/* Tests the same for attention, by cuDNN: of the model's heads and of none, with another version
 * and with none. */
static void attention_that_was_chosen(void **state)
{
	static const char options[] = "seq_len=16 micro_batch=1 grad_accum=1 param_dtype=bf16";
	struct calibration_attention ways[] = {{.head_dim = 6, .length = 16, .engine = 2},
		{.head_dim = 6, .length = 32, .engine = 2}};
	struct calibration known = {
		.attention_library = 91900, .n_attention = COUNT_OF(ways), .attention = ways};

	(void)state;
	setenv("FAKE_CUDNN_VERSION", "91900", 1);
	struct digest plain = trained_llama(options), chosen;
	assert_string_equal(how_attended, "");
	calibrated = &known;
	chosen = trained_llama(options);
	assert_string_equal(how_attended, "1 of 2 used");
	assert_string_equal(how_chosen, "");
	assert_string_equal(chosen.hex, plain.hex);
	setenv("FAKE_CUDNN_VERSION", "92600", 1);
	trained_llama(options);
	assert_string_equal(how_attended,
		"none used: chosen with cuDNN 91900, here is 92600 (calibrate again)");
	unsetenv("FAKE_CUDNN_VERSION");
	trained_llama(options);
	calibrated = NULL;
	assert_string_equal(how_attended, "none used: chosen with cuDNN 91900, here is none");
}

/* Its backward finds the workspace that the plan declares: for all heads of the micro-batch. */
static void backward_that_was_chosen(void **state)
{
	struct calibration_attention ways[] = {
		{.head_dim = 6, .length = 16, .pass = ATTENTION_IS_FORWARD, .engine = 2},
		{.head_dim = 6,
			.length = 16,
			.pass = ATTENTION_IS_BACKWARD,
			.engine = 2,
			.workspace_bytes = 8 << 20}};
	struct calibration known = {
		.attention_library = 91900, .n_attention = COUNT_OF(ways), .attention = ways};
	struct digest plain, chosen;

	(void)state;
	setenv("FAKE_CUDNN_VERSION", "91900", 1);
	for (int i = 0; i < 2; i++) {
		const char *options =
			i == 0 ? "seq_len=16 micro_batch=1 grad_accum=1 param_dtype=bf16"
			       : "seq_len=16 micro_batch=2 grad_accum=2 param_dtype=bf16";

		calibrated = NULL;
		unsetenv("FAKE_ATTENTION_WHOLE");
		plain = trained_llama(options);
		calibrated = &known;
		setenv("FAKE_ATTENTION_WHOLE", "1", 1);
		chosen = trained_llama(options);
		assert_string_equal(how_attended, "2 of 2 used");
		assert_string_equal(chosen.hex, plain.hex);
	}
	calibrated = NULL;
	unsetenv("FAKE_ATTENTION_WHOLE");
	unsetenv("FAKE_CUDNN_VERSION");
}

/* In the step, it is an error like any other of a kernel. */
static void attention_that_fails(void **state)
{
	struct calibration_attention way = {.head_dim = 6, .length = 16, .engine = 3};
	struct calibration known = {
		.attention_library = 91900, .n_attention = 1, .attention = &way};

	(void)state;
	setenv("FAKE_CUDNN_VERSION", "91900", 1);
	calibrated = &known;
	expect_error(digest_models[1].text, 1,
		"seq_len=16 micro_batch=1 grad_accum=1 param_dtype=bf16", NULL, NULL,
		EXIT_CODE_FAULT, "cudnnBackendExecute gave cudnnStatus 5000");
	calibrated = NULL;
	unsetenv("FAKE_CUDNN_VERSION");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_that_share_a_gpu),
		cmocka_unit_test(ranks_with_a_gpu_each),
		cmocka_unit_test(states_in_bf16),
		cmocka_unit_test(heads_in_chunks),
		cmocka_unit_test(products_of_any_rounding),
		cmocka_unit_test(graphs_change_nothing),
		cmocka_unit_test(the_gpus_own_account),
		cmocka_unit_test(graphs_that_cannot_be),
		cmocka_unit_test(buffers_that_nccl_knows),
		cmocka_unit_test(memory_that_nccl_rounds_up),
		cmocka_unit_test(kernels_know_of_collectives),
		cmocka_unit_test(products_sum_biases),
		cmocka_unit_test(products_in_fp8),
		cmocka_unit_test(a_dropped_wait_is_a_race),
		cmocka_unit_test(a_wild_token_is_told),
		cmocka_unit_test(what_is_missing_is_said),
		cmocka_unit_test(products_that_were_chosen),
		cmocka_unit_test(attention_that_was_chosen),
		cmocka_unit_test(backward_that_was_chosen),
		cmocka_unit_test(attention_that_fails),
	};

	fake_cuda_install(4, 1);
	fake_nccl_install();
	run_as_rank(argc, argv);
	if (argc > 1 && strcmp(argv[1], "slow") == 0)
		thorough = true;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
