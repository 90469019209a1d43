/* Saved activations against sums measured in PyTorch 2.6 and the closed formulas. */
#include "tests/models/support.h"

static const struct activation_rules bf16 = {
	.dtype = DTYPE_BF16, .keeps_activated_gate = true, .alignment = 1};

/* What a block keeps: its input and what its leaves save. */
static int64_t block_bytes(const struct model *model, const struct activation_rules *rules,
	int64_t sequences, int64_t seq_len)
{
	for (int i = 0; i < model->n_modules; i++)
		if (model->modules[i].kind == MODULE_BLOCK)
			return model_residual_bytes(model, rules, sequences, seq_len) +
			       model_saved_bytes(
				       model, i, model->modules[i].end, rules, sequences, seq_len);
	fail_msg("no block");
	return 0;
}

/* One block of the shapes whose saved storages were summed: 2 sequences of 128, h 256, 4 heads. */
static void test_measured_llama(void **state)
{
	static const struct {
		enum attention_kind attention;
		bool unfused;
		int64_t measured;
	} cases[] = {
		{ATTENTION_FLASH, false, 2463744},
		{ATTENTION_FLASH, true, 2988032},
		{ATTENTION_EAGER, false, 3246080},
		{ATTENTION_EAGER, true, 3770368},
	};
	struct arena arena = {0};
	struct model *model = parse_model(&arena, "l.yaml",
		"shardplan: model/1\nfamily: llama\nlayers: 1\nhidden: 256\nheads: 4\nffn: 688\n"
		"vocab: 1000\ncontext: 128\n");

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct activation_rules rules = bf16;

		rules.attention = cases[i].attention;
		rules.norm_unfused = cases[i].unfused;
		rules.softmax_fp32 = true;
		assert_int_equal(block_bytes(model, &rules, 2, 128), cases[i].measured);
	}
	arena_finish(&arena);
}

/* The CPU run kept LayerNorm's four statistics per token in bf16; GPUs, and we, in fp32. */
static void test_measured_gpt2(void **state)
{
	enum { TOKENS = 256, STATISTICS = 4 * TOKENS * (4 - 2) };
	struct activation_rules rules = bf16;
	struct arena arena = {0};
	struct model *model = parse_model(&arena, "g.yaml",
		"shardplan: model/1\nfamily: gpt2\nlayers: 1\nhidden: 256\nheads: 4\nffn: 1024\n"
		"vocab: 1000\ncontext: 128\n");

	(void)state;
	assert_int_equal(block_bytes(model, &rules, 2, 128), 2103296 + STATISTICS);
	rules.attention = ATTENTION_EAGER;
	assert_int_equal(block_bytes(model, &rules, 2, 128), 2361344 + STATISTICS);
	arena_finish(&arena);
}

static void test_llama_2_7b(void **state)
{
	struct activation_rules rules = bf16;
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "llama-2-7b");
	int64_t flash = block_bytes(model, &rules, 1, 4096);

	(void)state;
	assert_in_range(flash, 629650000, 629750000);
	assert_int_equal(model_residual_bytes(model, &rules, 1, 4096), 33554432);
	rules.norm_unfused = true;
	assert_in_range(block_bytes(model, &rules, 1, 4096), 763850000, 763950000);
	rules.norm_unfused = false;
	rules.attention = ATTENTION_EAGER;
	rules.softmax_fp32 = true;
	assert_int_equal(block_bytes(model, &rules, 1, 4096),
		flash + INT64_C(6) * 32 * 4096 * 4096 - 4 * 32 * 4096);
	rules.drop_attention = true;
	assert_int_equal(block_bytes(model, &rules, 1, 4096), flash - 4 * 32 * 4096);
	arena_finish(&arena);
}

struct formula {
	int64_t tokens, seq_len, e;
	const struct activation_rules *rules;
};

static int64_t attention_formula(const struct architecture *a, const struct formula *f)
{
	int64_t heads = a->heads + a->kv_heads, bytes;

	bytes = f->tokens * a->head_dim * f->e * (a->heads + 2 * a->kv_heads + a->heads);
	if (a->qk_norm)
		bytes += f->tokens * heads * (4 + a->head_dim * f->e);
	if (a->qk_norm && f->rules->norm_unfused)
		bytes += f->tokens * heads * a->head_dim * 4;
	if (f->rules->attention == ATTENTION_FLASH)
		bytes += 4 * a->heads * f->tokens;
	else if (!f->rules->drop_attention)
		bytes += (f->rules->softmax_fp32 && f->e < 4 ? 4 + f->e : f->e) * a->heads *
			 f->seq_len * f->tokens;
	return bytes;
}

/* docs/models.md: the block without its input. */
static int64_t block_formula(const struct architecture *a, const struct formula *f)
{
	int64_t statistics = a->norm == NORM_LAYERNORM ? 8 : 4;
	int64_t norm = f->tokens * (a->hidden * f->e + statistics);
	int64_t wide = a->mlp == MLP_GELU ? 2 : f->rules->keeps_activated_gate ? 4 : 3;

	if (f->rules->norm_unfused)
		norm += 4 * f->tokens * a->hidden;
	return 2 * norm + attention_formula(a, f) + f->tokens * a->hidden * f->e +
	       wide * f->tokens * a->ffn * f->e;
}

static void test_random_sums(void **state)
{
	struct arena arena = {0};
	uint64_t seed = 11;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		struct architecture a = random_architecture(&seed);
		struct model *model = build_model(&arena, &a);
		struct activation_rules rules = {
			.dtype = random_below(&seed, 2) ? DTYPE_FP32 : DTYPE_BF16,
			.attention = (enum attention_kind)random_below(&seed, 2),
			.norm_unfused = random_below(&seed, 2),
			.keeps_activated_gate = random_below(&seed, 2),
			.softmax_fp32 = random_below(&seed, 2),
			.drop_attention = random_below(&seed, 2),
			.alignment = 1,
		};
		int64_t sequences = 1 + random_below(&seed, 4);
		int64_t seq_len = 1 + random_below(&seed, 64);
		struct formula f = {sequences * seq_len, seq_len, dtype_bytes(rules.dtype), &rules};
		int64_t residual = model_residual_bytes(model, &rules, sequences, seq_len);

		assert_int_equal(residual, f.tokens * a.hidden * f.e);
		assert_int_equal(block_bytes(model, &rules, sequences, seq_len) - residual,
			block_formula(&a, &f));
		arena_reset(&arena);
	}
	arena_finish(&arena);
}

static bool saves_nothing(enum module_kind kind)
{
	return !module_kind_is_leaf(kind) || kind == MODULE_EMBEDDING ||
	       kind == MODULE_POSITION_EMBEDDING || kind == MODULE_DOWN || kind == MODULE_HEAD;
}

static void assert_packed(const struct tensor *tensors, int n, int64_t bytes, int64_t alignment)
{
	int64_t end = 0;

	for (int i = 0; i < n; i++) {
		assert_int_equal(tensors[i].offset, end);
		assert_true(tensors[i].bytes > 0);
		end = round_up(tensors[i].offset + tensors[i].bytes, alignment);
	}
	assert_int_equal(bytes, end);
}

static void test_layout(void **state)
{
	struct activation_rules rules = bf16;
	struct arena arena = {0};
	uint64_t seed = 5;

	(void)state;
	rules.alignment = 64;
	for (int round = 0; round < 200; round++) {
		struct architecture a = random_architecture(&seed);
		struct model *model = build_model(&arena, &a);

		rules.norm_unfused = round % 2;
		rules.attention = (enum attention_kind)(round / 2 % 2);
		for (int i = 0; i < model->n_modules; i++) {
			struct tensor tensors[MODULE_TENSORS_MAX];
			int64_t bytes;
			int n = model_saved_tensors(model, i, &rules, 3, 7, tensors, &bytes);

			assert_true((n == 0) == saves_nothing(model->modules[i].kind));
			assert_packed(tensors, n, bytes, 64);
		}
		arena_reset(&arena);
	}
	arena_finish(&arena);
}

static void test_final_norm(void **state)
{
	struct tensor tensors[MODULE_TENSORS_MAX];
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "gpt2-124m");
	int64_t bytes;
	int n = model_saved_tensors(
		model, find_module(model, "transformer.ln_f"), &bf16, 1, 100, tensors, &bytes);

	(void)state;
	assert_int_equal(n, 2);
	assert_int_equal(tensors[0].role, TENSOR_NORM_STATISTICS);
	assert_int_equal(tensors[0].bytes, 100 * 8);
	assert_int_equal(tensors[1].role, TENSOR_NORM_OUT);
	assert_int_equal(tensors[1].bytes, 100 * 768 * 2);
	assert_string_equal(tensor_role_name(TENSOR_NORM_OUT), "norm_out");
	arena_finish(&arena);
}

static void assert_tensor(
	const struct tensor *tensor, enum tensor_role role, int64_t offset, int64_t bytes)
{
	assert_int_equal(tensor->role, role);
	assert_int_equal(tensor->offset, offset);
	assert_int_equal(tensor->bytes, bytes);
}

/* The attention part and the MLP part start at the same byte. */
static void test_backward(void **state)
{
	struct activation_rules rules = {.dtype = DTYPE_FP32, .alignment = 64};
	struct tensor t[BACKWARD_TENSORS_MAX];
	struct arena arena = {0};
	struct model *model = parse_model(&arena, "l.yaml",
		"shardplan: model/1\nfamily: llama\nlayers: 1\nhidden: 24\nheads: 4\nkv_heads: 2\n"
		"head_dim: 6\nffn: 50\nvocab: 10\ncontext: 16\n");
	int64_t bytes;

	(void)state;
	/* T = 10: 960 bytes a residual tensor, a multiple of 64. */
	assert_int_equal(model_backward_tensors(model, &rules, 2, 5, t, &bytes), 7);
	assert_tensor(&t[0], TENSOR_D_RESIDUAL, 0, 960);
	assert_tensor(&t[1], TENSOR_D_NORM, 960, 960);
	assert_tensor(&t[2], TENSOR_D_ATTENTION_OUT, 1920, 960);
	assert_tensor(&t[3], TENSOR_D_QKV, 2880, 1920);
	assert_tensor(&t[4], TENSOR_D_PRODUCT, 1920, 2000);
	assert_tensor(&t[5], TENSOR_D_GATE, 1920 + 2048, 2000);
	assert_tensor(&t[6], TENSOR_D_UP, 1920 + 2 * 2048, 2000);
	assert_int_equal(bytes, 1920 + 3 * 2048);
	/* GELU has no gate; a small MLP leaves the attention part the larger one. */
	model = parse_model(&arena, "g.yaml",
		"shardplan: model/1\nfamily: gpt2\nlayers: 1\nhidden: 16\nheads: 2\nffn: 16\n"
		"vocab: 10\ncontext: 16\n");
	rules.alignment = 1;
	assert_int_equal(model_backward_tensors(model, &rules, 1, 1, t, &bytes), 6);
	assert_tensor(&t[4], TENSOR_D_PRODUCT, 128, 64);
	assert_tensor(&t[5], TENSOR_D_UP, 192, 64);
	assert_int_equal(bytes, 128 + 64 + 192);
	arena_finish(&arena);
}

/* A batch beyond any machine is "too large", not a wrapped number. */
static void test_saturation(void **state)
{
	struct activation_rules rules = bf16;
	struct arena arena = {0};
	struct model *model = load_preset(&arena, "llama-3-405b");
	int64_t bytes;

	(void)state;
	rules.attention = ATTENTION_EAGER;
	bytes = model_saved_bytes(model, 0, model->n_modules, &rules, INT64_MAX, INT64_MAX);
	assert_int_equal(bytes, INT64_C(1) << 53);
	bytes = model_residual_bytes(model, &rules, INT64_C(1) << 40, INT64_C(1) << 40);
	assert_int_equal(bytes, INT64_C(1) << 53);
	/* Large but real: 131072 tokens of the 405B model. */
	rules.attention = ATTENTION_FLASH;
	bytes = model_saved_bytes(model, 0, model->n_modules, &rules, 1, 131072);
	assert_int_equal(bytes, INT64_C(9821514891264));
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_measured_llama),
		cmocka_unit_test(test_measured_gpt2),
		cmocka_unit_test(test_llama_2_7b),
		cmocka_unit_test(test_random_sums),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_final_norm),
		cmocka_unit_test(test_backward),
		cmocka_unit_test(test_saturation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
