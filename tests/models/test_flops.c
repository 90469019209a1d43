/* FLOPs and traffic against the closed formulas of docs/models.md. */
#include <math.h>

#include "tests/models/support.h"

static void assert_near(double got, double expected, double tolerance)
{
	if (!(fabs(got - expected) <= tolerance * fabs(expected)))
		fail_msg("expected %.10g within %g, got %.10g", expected, tolerance, got);
}

static double work_flops(const struct module_work *work)
{
	double flops = work->attention_flops;

	for (int i = 0; i < work->n_gemms; i++) {
		const struct gemm_shape *g = &work->gemms[i];

		flops += 2.0 * (double)g->m * (double)g->n * (double)g->k * (double)g->count;
	}
	return flops;
}

struct sums {
	double flops, attention, memory;
	int kernels;
};

static struct sums sum(const struct model *model, int first, enum pass pass, int64_t sequences,
	int64_t seq_len, enum attention_kind attention)
{
	struct sums sums = {0};

	for (int i = first; i < model->modules[first].end; i++) {
		struct module_work work;

		model_module_work(model, i, pass, sequences, seq_len, 2,
			(struct attending){attention, true}, &work);
		sums.flops += work_flops(&work);
		sums.attention += work.attention_flops;
		sums.memory += work.memory_bytes;
		sums.kernels += work.kernels;
		assert_true(work.kernels > 0 || !module_kind_is_leaf(model->modules[i].kind));
	}
	return sums;
}

/* The worked example: Llama-2-7B, one sequence of 4096. */
static void test_llama_2_7b(void **state)
{
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "llama-2-7b");
	int block = find_module(model, "model.layers.0");
	struct sums forward = sum(model, 0, PASS_FORWARD, 1, 4096, ATTENTION_FLASH);
	struct sums backward = sum(model, 0, PASS_BACKWARD, 1, 4096, ATTENTION_FLASH);
	struct sums one = sum(model, block, PASS_FORWARD, 1, 4096, ATTENTION_FLASH);
	struct sums head =
		sum(model, find_module(model, "lm_head"), PASS_FORWARD, 1, 4096, ATTENTION_FLASH);

	(void)state;
	assert_near(one.flops - one.attention, 1.658e12, 3e-4);
	assert_near(one.attention, 0.1374e12, 4e-4);
	assert_near(head.flops, 1.074e12, 3e-4);
	assert_near(forward.flops, 58.5e12, 1e-3);
	assert_near(forward.flops + backward.flops, 177.8e12, 3e-4);
	assert_near(32 * one.flops, 57.4e12, 1e-3);
	/* Exactly: 2 FLOPs for each weight but the embedding's, and the causal half. */
	assert_near(forward.flops,
		4096 * (2.0 * (6738415616 - 131072000 - 65 * 4096) + 32 * 2.0 * 4096 * 4096),
		1e-12);
	arena_finish(&arena);
}

static void test_mfu_flops(void **state)
{
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "llama-2-7b");

	(void)state;
	assert_near(model_flops_6n(model), 6.0 * 6738415616, 1e-15);
	assert_near(model_flops_per_token(model, 4096), 6.0 * 6738415616 + 12.0 * 32 * 4096 * 4096,
		1e-15);
	assert_near(
		model_flops_causal(model, 4096), 6.0 * 6738415616 + 6.0 * 32 * 4096 * 4096, 1e-15);
	/* a*d is not h here. */
	model = parse_model(&arena, "q.yaml",
		"shardplan: model/1\nfamily: qwen3\nlayers: 28\nhidden: 1024\nheads: 16\n"
		"kv_heads: 8\nhead_dim: 128\nffn: 3072\nvocab: 151936\ncontext: 40960\n"
		"tied_head: true\n");
	assert_near(model_flops_per_token(model, 1000), 6.0 * 596049920 + 12.0 * 28 * 2048 * 1000,
		1e-15);
	arena_finish(&arena);
}

/* What a token sees back, as the mean over blocks: counted token by token. */
static void test_windows(void **state)
{
	static const struct {
		const char *keys;
		int64_t window, chunk, every;
	} cases[] = {{"", 0, 0, 0}, {"attention_window: 300\n", 300, 0, 0},
		{"attention_window: 300\nfull_attention_every: 4\n", 300, 0, 4},
		{"attention_chunk: 512\nfull_attention_every: 2\n", 0, 512, 2},
		{"attention_window: 5000\nfull_attention_every: 2\n", 5000, 0, 2},
		{"attention_chunk: 4096\n", 0, 4096, 0}};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		const struct model *model = parse_model(&arena, "w.yaml",
			arena_printf(&arena,
				"shardplan: model/1\nfamily: llama\nlayers: 4\nhidden: 256\n"
				"heads: 4\nkv_heads: 4\nhead_dim: 64\nffn: 512\nvocab: 1000\n"
				"context: 2048\n%s",
				cases[i].keys));
		double sum = 0, mean = 0, square = 12.0 * 4 * 256;
		struct module_work core, whole;
		for (int layer = 1; layer <= 4; layer++)
			for (int64_t t = 1; t <= 2048; t++) {
				bool all = cases[i].every > 0 && layer % cases[i].every == 0;
				int64_t back = all                   ? t
					       : cases[i].chunk > 0  ? (t - 1) % cases[i].chunk + 1
					       : cases[i].window > 0 ? min_i64(t, cases[i].window)
								     : t;
				sum += (double)back;
			}
		mean = sum / (4 * 2048);
		assert_near(architecture_seen(&model->architecture, 2048), mean - 0.5, 2e-3);
		assert_near(model_flops_per_token(model, 2048) - model_flops_6n(model),
			square * 2 * architecture_seen(&model->architecture, 2048), 1e-12);
		assert_near(model_flops_causal(model, 2048) - model_flops_6n(model),
			square * architecture_seen(&model->architecture, 2048), 1e-12);
		int m = find_module(model, "model.layers.1.self_attn.core");
		model_module_work(model, m, PASS_FORWARD, 1, 2048, 2,
			(struct attending){ATTENTION_FLASH, true}, &core);
		model_module_work(model, m, PASS_FORWARD, 1, 2048, 2,
			(struct attending){ATTENTION_FLASH, false}, &whole);
		assert_near(core.attention_flops, 4.0 * 2048 * 256 * (mean - 0.5), 2e-3);
		assert_true(whole.attention_flops == 4.0 * 2048 * 256 * 1024);
		model_module_work(model, m, PASS_FORWARD, 1, 2048, 2,
			(struct attending){ATTENTION_EAGER, true}, &core);
		assert_true(core.attention_flops == 4.0 * 2048 * 256 * 2048);
	}
	arena_finish(&arena);
}

/* Several documents of a sequence cost what as many sequences of their length do, with windows or
 * without. Eager attention computes all of a sequence. */
static void test_documents(void **state)
{
	static const char *const presets[] = {"llama-3-8b", "mistral-7b", "gpt-oss-20b"};

	(void)state;
	for (int i = 0; i < COUNT_OF(presets); i++) {
		struct arena arena = {0};
		struct model *model = load_preset(&arena, presets[i]);
		int m = find_module(model, "model.layers.1.self_attn.core");

		for (int kind = 0; kind < 4; kind++) {
			struct attending attending = {
				kind / 2 ? ATTENTION_FLASH : ATTENTION_EAGER, kind % 2, 512};
			struct module_work packed, apart, whole;
			enum pass pass = PASS_BACKWARD;

			model_module_work(model, m, pass, 2, 4096, 2, attending, &packed);
			attending.document = 0;
			model_module_work(model, m, pass, 16, 512, 2, attending, &apart);
			model_module_work(model, m, pass, 2, 4096, 2, attending, &whole);
			assert_near(packed.attention_flops,
				(kind / 2 ? apart : whole).attention_flops, 1e-12);
		}
		arena_finish(&arena);
	}
}

static void test_gemm_shapes(void **state)
{
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "llama-3-8b");
	struct module_work work;
	int key = find_module(model, "model.layers.5.self_attn.k_proj");

	(void)state;
	model_module_work(model, key, PASS_FORWARD, 2, 512, 2,
		(struct attending){ATTENTION_FLASH, true}, &work);
	assert_int_equal(work.n_gemms, 1);
	assert_int_equal(work.gemms[0].m, 1024);
	assert_int_equal(work.gemms[0].n, 1024);
	assert_int_equal(work.gemms[0].k, 4096);
	model_module_work(model, key, PASS_BACKWARD, 2, 512, 2,
		(struct attending){ATTENTION_FLASH, true}, &work);
	assert_int_equal(work.n_gemms, 2);
	assert_int_equal(work.gemms[0].n, 4096); /* input gradient */
	assert_int_equal(work.gemms[0].k, 1024);
	assert_int_equal(work.gemms[1].n, 4096); /* weight gradient */
	assert_int_equal(work.gemms[1].k, 1024);
	assert_true(work.memory_bytes == 0);
	arena_finish(&arena);
}

/* The two parts of backward add up to it; all products of the weight part are dW, half of the
 * FLOPs. */
static void test_parts(void **state)
{
	static const char *const presets[] = {"llama-3-8b", "gpt2-124m", "mixtral-8x7b"};

	(void)state;
	for (int i = 0; i < COUNT_OF(presets); i++) {
		struct arena arena = {0};
		struct model *model = load_preset(&arena, presets[i]);

		for (int m = 0; m < model->n_modules; m++) {
			struct module_work whole, input, weight;

			model_module_work(model, m, PASS_BACKWARD, 1, 512, 2,
				(struct attending){ATTENTION_FLASH, true}, &whole);
			model_module_work(model, m, PASS_BACKWARD_INPUT, 1, 512, 2,
				(struct attending){ATTENTION_FLASH, true}, &input);
			model_module_work(model, m, PASS_BACKWARD_WEIGHT, 1, 512, 2,
				(struct attending){ATTENTION_FLASH, true}, &weight);
			assert_int_equal(input.n_gemms + weight.n_gemms, whole.n_gemms);
			assert_int_equal(input.n_gemms, weight.n_gemms);
			assert_int_equal(input.kernels + weight.kernels, whole.kernels);
			assert_int_equal(
				input.eager_kernels + weight.eager_kernels, whole.eager_kernels);
			assert_true(input.memory_bytes + weight.memory_bytes == whole.memory_bytes);
			assert_true(input.eager_bytes + weight.eager_bytes == whole.eager_bytes);
			assert_true(weight.attention_flops == 0 && weight.activations == 0);
			assert_true(input.attention_flops == whole.attention_flops);
			assert_true(2 * (work_flops(&weight) + input.attention_flops) ==
				    work_flops(&whole) + input.attention_flops);
		}
		arena_finish(&arena);
	}
}

static double linear_flops(const struct architecture *a, double tokens)
{
	double h = (double)a->hidden, q = (double)(a->heads * a->head_dim);
	double kv = (double)(a->kv_heads * a->head_dim), f = (double)a->ffn;

	return 2 * tokens *
	       ((double)a->layers *
			       (2 * h * q + 2 * h * kv + (a->mlp == MLP_SWIGLU ? 3 : 2) * h * f) +
		       h * (double)a->vocab);
}

/* docs/models.md, by fused kernels. A bias adds its gradient, a sum over the output's. */
static double block_traffic(const struct architecture *a, enum pass pass, double tokens)
{
	bool backward = pass == PASS_BACKWARD;
	double h = (double)a->hidden, d = (double)a->head_dim, f = (double)a->ffn;
	double rotated = (double)(a->heads + a->kv_heads) * d;
	double norm = backward ? 5 : 2;
	double activation = a->mlp == MLP_SWIGLU ? (backward ? 5 : 3) : (backward ? 3 : 2);
	double elements = 2 * norm * h + 2 * 3 * h + activation * f;

	elements += a->positions == POSITIONS_ROPE ? 2 * rotated : 0;
	elements += a->qk_norm ? norm * rotated : 0;
	if (backward) {
		elements += a->qkv_bias ? rotated + (double)a->kv_heads * d : 0;
		elements += a->output_bias ? h : 0;
		elements += a->mlp_bias ? (a->mlp == MLP_SWIGLU ? 2 : 1) * f + h : 0;
	}
	return 2 * tokens * elements;
}

static void assert_sums(const struct model *model, int64_t sequences, int64_t seq_len)
{
	const struct architecture *a = &model->architecture;
	double tokens = (double)(sequences * seq_len);
	double square = 4.0 * (double)a->layers * tokens * (double)seq_len *
			(double)(a->heads * a->head_dim);
	struct sums flash[2], eager[2];
	int block = find_module(model, "model.layers.0");

	for (int pass = 0; pass < 2; pass++) {
		flash[pass] = sum(model, 0, (enum pass)pass, sequences, seq_len, ATTENTION_FLASH);
		eager[pass] = sum(model, 0, (enum pass)pass, sequences, seq_len, ATTENTION_EAGER);
		assert_near(flash[pass].flops - flash[pass].attention,
			linear_flops(a, tokens) * (1 + pass), 1e-12);
		assert_near(sum(model, block, (enum pass)pass, sequences, seq_len, ATTENTION_FLASH)
				    .memory,
			block_traffic(a, (enum pass)pass, tokens), 1e-12);
		assert_true(eager[pass].memory > flash[pass].memory);
		assert_true(eager[pass].kernels > flash[pass].kernels);
	}
	assert_near(flash[0].attention, square / 2, 1e-12);
	assert_near(flash[1].attention, square / 2 * 2.5, 1e-12);
	assert_near(eager[0].attention, square, 1e-12);
	assert_near(eager[1].attention, square * 2, 1e-12);
}

static void test_random_sums(void **state)
{
	struct arena arena = {0};
	uint64_t seed = 3;

	(void)state;
	for (int round = 0; round < 500; round++) {
		struct architecture a = random_architecture(&seed);
		int64_t sequences = 1 + random_below(&seed, 4);
		int64_t seq_len = 1 + random_below(&seed, 64);

		a.family = FAMILY_LLAMA; /* for the block's name */
		assert_sums(build_model(&arena, &a), sequences, seq_len);
		arena_reset(&arena);
	}
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_llama_2_7b),
		cmocka_unit_test(test_mfu_flops),
		cmocka_unit_test(test_windows),
		cmocka_unit_test(test_documents),
		cmocka_unit_test(test_gemm_shapes),
		cmocka_unit_test(test_random_sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
