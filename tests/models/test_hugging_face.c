/* config.json of each family with its traps. The sizes are those of the named models. */
#include "tests/models/support.h"

/* Duplicate keys, a null, no name: the last key counts and the file's folder names the model. */
static const char llama_3_8b[] =
	"{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false,\n"
	" \"bos_token_id\": 128000, \"eos_token_id\": [128001, 128008], \"hidden_act\": \"silu\",\n"
	" \"hidden_size\": 4096, \"intermediate_size\": 14336, \"max_position_embeddings\": 4096,\n"
	" \"max_position_embeddings\": 8192, \"model_type\": \"llama\",\n"
	" \"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8,\n"
	" \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, \"rope_theta\": 500000.0,\n"
	" \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"vocab_size\": 128256}";

static const char llama_3_2_1b[] =
	"{\"_name_or_path\": \"meta-llama/Llama-3.2-1B\", \"dtype\": \"bfloat16\",\n"
	" \"head_dim\": 64, \"hidden_size\": 2048, \"intermediate_size\": 8192,\n"
	" \"max_position_embeddings\": 131072, \"mlp_bias\": false, \"model_type\": \"llama\",\n"
	" \"num_attention_heads\": 32, \"num_hidden_layers\": 16, \"num_key_value_heads\": 8,\n"
	" \"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"llama3\"},\n"
	" \"tie_word_embeddings\": true, \"vocab_size\": 128256}";

/* head_dim * heads is not hidden; no tie_word_embeddings. */
static const char mistral_nemo[] =
	"{\"head_dim\": 128, \"hidden_size\": 5120, \"intermediate_size\": 14336,\n"
	" \"max_position_embeddings\": 128000, \"model_type\": \"mistral\",\n"
	" \"num_attention_heads\": 32, \"num_hidden_layers\": 40, \"num_key_value_heads\": 8,\n"
	" \"rope_theta\": 1000000.0, \"sliding_window\": null, \"vocab_size\": 131072}";

static const char qwen2_7b[] =
	"{\"hidden_act\": \"silu\", \"hidden_size\": 3584, \"intermediate_size\": 18944,\n"
	" \"max_position_embeddings\": 131072, \"model_type\": \"qwen2\",\n"
	" \"num_attention_heads\": 28, \"num_hidden_layers\": 28, \"num_key_value_heads\": 4,\n"
	" \"sliding_window\": 131072, \"use_sliding_window\": false, \"vocab_size\": 152064}";

static const char qwen2_0_5b[] =
	"{\"hidden_size\": 896, \"intermediate_size\": 4864, \"max_position_embeddings\": 32768,\n"
	" \"model_type\": \"qwen2\", \"num_attention_heads\": 14, \"num_hidden_layers\": 24,\n"
	" \"num_key_value_heads\": 2, \"tie_word_embeddings\": true, \"vocab_size\": 151936}";

static const char qwen3_8b[] =
	"{\"attention_bias\": false, \"head_dim\": 128, \"hidden_size\": 4096,\n"
	" \"intermediate_size\": 12288, \"max_position_embeddings\": 40960,\n"
	" \"model_type\": \"qwen3\", \"num_attention_heads\": 32, \"num_hidden_layers\": 36,\n"
	" \"num_key_value_heads\": 8, \"rope_theta\": 1000000, \"tie_word_embeddings\": false,\n"
	" \"vocab_size\": 151936}";

static const char qwen3_0_6b[] =
	"{\"head_dim\": 128, \"hidden_size\": 1024, \"intermediate_size\": 3072,\n"
	" \"max_position_embeddings\": 40960, \"model_type\": \"qwen3\",\n"
	" \"num_attention_heads\": 16, \"num_hidden_layers\": 28, \"num_key_value_heads\": 8,\n"
	" \"rope_theta\": 1000000, \"tie_word_embeddings\": true, \"vocab_size\": 151936}";

/* No n_inner, no tie_word_embeddings. */
static const char gpt2_large[] =
	"{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"],\n"
	" \"attn_pdrop\": 0.1, \"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\",\n"
	" \"n_ctx\": 1024, \"n_embd\": 1280, \"n_head\": 20, \"n_inner\": null,\n"
	" \"n_layer\": 36, \"n_positions\": 1024, \"vocab_size\": 50257}";

/* ALiBi and learned_pos_emb are both true: ALiBi wins and there is no table. */
static const char mpt_7b[] =
	"{\"attn_config\": {\"alibi\": true, \"attn_type\": \"multihead_attention\",\n"
	"  \"clip_qkv\": null, \"qk_ln\": false}, \"d_model\": 4096, \"expansion_ratio\": 4,\n"
	" \"learned_pos_emb\": true, \"max_seq_len\": 2048, \"model_type\": \"mpt\",\n"
	" \"n_heads\": 32, \"n_layers\": 32, \"no_bias\": true,\n"
	" \"norm_type\": \"low_precision_layernorm\", \"vocab_size\": 50432}";

/* The model_type is missing, the class tells. */
static const char by_class[] =
	"{\"architectures\": [\"MistralForCausalLM\"], \"hidden_size\": 4096,\n"
	" \"intermediate_size\": 14336, \"max_position_embeddings\": 32768,\n"
	" \"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8,\n"
	" \"vocab_size\": 32000}";

static const struct {
	const char *name, *text;
	int64_t parameters;
} configs[] = {
	{"llama-3-8b", llama_3_8b, 8030261248},
	{"meta-llama/Llama-3.2-1B", llama_3_2_1b, 1235814400},
	{"mistral-nemo", mistral_nemo, 12247782400},
	{"qwen2.5-7b", qwen2_7b, 7615616512},
	{"qwen2.5-0.5b", qwen2_0_5b, 494032768},
	{"qwen3-8b", qwen3_8b, 8190735360},
	{"qwen3-0.6b", qwen3_0_6b, 596049920},
	{"gpt2-large", gpt2_large, 774030080},
	{"mpt-7b", mpt_7b, 6649286656},
	{"mistral", by_class, 7241732096},
};

static void test_counts(void **state)
{
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(configs); i++) {
		const char *name = arena_printf(&arena, "models/%s/config.json", configs[i].name);
		struct model *model = parse_model(&arena, name, configs[i].text);

		assert_string_equal(model->architecture.name, configs[i].name);
		if (model->parameter_count != configs[i].parameters)
			fail_msg("%s: expected %" PRId64 ", got %" PRId64, configs[i].name,
				configs[i].parameters, model->parameter_count);
	}
	arena_finish(&arena);
}

static void test_details(void **state)
{
	struct arena arena = {0};
	const struct architecture *a;

	(void)state;
	a = &parse_model(&arena, "config.json", llama_3_8b)->architecture;
	assert_string_equal(a->name, "config");
	assert_int_equal(a->context, 8192);
	assert_true(a->rope_theta == 500000 && a->norm_epsilon == 1e-5);
	a = &parse_model(&arena, "x.json", llama_3_2_1b)->architecture;
	assert_true(a->rope_theta == 500000 && a->norm_epsilon == 1e-6);
	assert_true(a->tied_head);
	a = &parse_model(&arena, "x.json", mistral_nemo)->architecture;
	assert_int_equal(a->head_dim, 128);
	assert_false(a->tied_head);
	a = &parse_model(&arena, "x.json", qwen2_7b)->architecture;
	assert_true(a->qkv_bias && !a->output_bias && !a->qk_norm);
	a = &parse_model(&arena, "x.json", qwen3_0_6b)->architecture;
	assert_true(a->qk_norm && !a->qkv_bias);
	a = &parse_model(&arena, "x.json", gpt2_large)->architecture;
	assert_true(a->tied_head && a->gelu_tanh && a->fused_qkv && a->mlp_bias);
	assert_int_equal(a->ffn, 5120);
	a = &parse_model(&arena, "x.json", mpt_7b)->architecture;
	assert_true(a->tied_head && !a->gelu_tanh && a->positions == POSITIONS_ALIBI);
	arena_finish(&arena);
}

/* What a sparse MPT file leaves out, and grouped queries. */
static void test_mpt_attention(void **state)
{
	static const char sparse[] =
		"{\"model_type\": \"mpt\", \"d_model\": 64, \"n_layers\": 2, \"n_heads\": 8,\n"
		" \"max_seq_len\": 16, \"vocab_size\": 100}";
	static const char grouped[] =
		"{\"model_type\": \"mpt\", \"d_model\": 64, \"n_layers\": 2, \"n_heads\": 8,\n"
		" \"max_seq_len\": 16, \"vocab_size\": 100, \"expansion_ratio\": 2.5,\n"
		" \"attn_config\": {\"alibi\": false, \"rope\": true, \"rope_theta\": 5e4,\n"
		"  \"attn_type\": \"grouped_query_attention\", \"kv_n_heads\": 2}}";
	struct arena arena = {0};
	const struct architecture *a;

	(void)state;
	a = &parse_model(&arena, "m.json", sparse)->architecture;
	assert_int_equal(a->positions, POSITIONS_ALIBI);
	assert_int_equal(a->kv_heads, 8);
	assert_int_equal(a->ffn, 256);
	assert_true(a->tied_head && !a->norm_bias && !a->qkv_bias);
	a = &parse_model(&arena, "m.json", grouped)->architecture;
	assert_int_equal(a->positions, POSITIONS_ROPE);
	assert_int_equal(a->kv_heads, 2);
	assert_int_equal(a->ffn, 160);
	assert_true(a->rope_theta == 5e4);
	arena_finish(&arena);
}

/* llm-foundry's benchmarks: biases everywhere, a learned table, 2048 positions. */
static void test_mpt_with_learned_positions(void **state)
{
	static const struct {
		int layers, hidden, heads;
		int64_t parameters;
	} published[] = {
		{12, 768, 12, 125311488},
		{24, 1024, 16, 355985408},
		{24, 1536, 12, 760470528},
		{24, 2048, 16, 1315950592},
		{32, 2560, 20, 2651837440},
		{32, 4096, 32, 6658859008},
		{40, 5120, 40, 12853954560},
	};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(published); i++) {
		const char *text = arena_printf(&arena,
			"{\"model_type\": \"mpt\", \"d_model\": %d, \"n_layers\": %d,\n"
			" \"n_heads\": %d, \"max_seq_len\": 2048, \"vocab_size\": 50368,\n"
			" \"no_bias\": false, \"attn_config\": {\"alibi\": false}}",
			published[i].hidden, published[i].layers, published[i].heads);
		struct model *model = parse_model(&arena, "mpt.json", text);

		assert_int_equal(model->parameter_count, published[i].parameters);
	}
	arena_finish(&arena);
}

/* Every prefix and every changed byte of every file: a model or one error, never a crash. */
static void test_damaged(void **state)
{
	struct arena arena = {0};
	int errors = 0;

	(void)state;
	for (int i = 0; i < COUNT_OF(configs); i++) {
		char *copy = arena_strdup(&arena, configs[i].text);
		struct arena scratch = {0};

		for (size_t at = 0; at < strlen(configs[i].text); at += 3) {
			struct model *model;
			struct error cut = {0}, changed = {0};

			assert_false(model_parse(
				&scratch, "cut.json", configs[i].text, at, &model, &cut));
			assert_true(strncmp(cut.message, "cut.json:", 9) == 0);
			copy[at] ^= (char)(1 << (at % 7));
			if (!model_parse(&scratch, "changed.json", copy, strlen(copy), &model,
				    &changed)) {
				assert_int_equal(changed.code, EXIT_CODE_INPUT);
				assert_null(strchr(changed.message, '\n'));
				errors++;
			}
			copy[at] = configs[i].text[at];
			arena_reset(&scratch);
		}
		arena_finish(&scratch);
	}
	assert_true(errors > 100);
	arena_finish(&arena);
}

/* Which blocks have a window, as transformers 4.57 reads each family's file. */
static void test_which_windows(void **state)
{
	static const struct {
		const char *keys;
		int64_t window, chunk, every;
	} cases[] = {
		{"\"model_type\": \"mistral\", \"sliding_window\": 4096", 4096, 0, 0},
		{"\"model_type\": \"mistral\", \"sliding_window\": null", 0, 0, 0},
		{"\"model_type\": \"gemma3_text\", \"sliding_window\": 1024", 1024, 0, 6},
		{"\"model_type\": \"gemma3_text\", \"sliding_window\": 1024, "
		 "\"sliding_window_pattern\": 4",
			1024, 0, 4},
		{"\"model_type\": \"gemma2\", \"sliding_window\": 4096", 4096, 0, 2},
		{"\"model_type\": \"cohere2\", \"sliding_window\": 4096", 4096, 0, 4},
		{"\"model_type\": \"exaone4\", \"sliding_window\": 4096, "
		 "\"sliding_window_pattern\": \"LLLG\"",
			4096, 0, 4},
		{"\"model_type\": \"llama4_text\", \"attention_chunk_size\": 8192", 0, 8192, 4},
		{"\"model_type\": \"llama\", \"sliding_window\": 128, \"layer_types\": "
		 "[\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
		 "\"full_attention\"]",
			128, 0, 2},
		{"\"model_type\": \"llama\", \"sliding_window\": 128, \"layer_types\": "
		 "[\"full_attention\", \"full_attention\", \"full_attention\", "
		 "\"full_attention\"]",
			0, 0, 0},
		{"\"model_type\": \"qwen2\", \"sliding_window\": 128", 0, 0, 0},
		{"\"model_type\": \"qwen2\", \"sliding_window\": 128, \"use_sliding_window\": "
		 "true",
			0, 0, 0},
		{"\"model_type\": \"qwen2\", \"sliding_window\": 128, \"use_sliding_window\": "
		 "true, \"max_window_layers\": 2",
			128, 0, 2},
		{"\"model_type\": \"qwen2\", \"sliding_window\": 128, \"use_sliding_window\": "
		 "true, \"max_window_layers\": 0",
			128, 0, 0},
	};
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		const struct architecture *a = &parse_model(&arena, "x.json",
			arena_printf(&arena,
				"{\"hidden_size\": 256, \"intermediate_size\": 512, "
				"\"max_position_embeddings\": 8192, \"num_attention_heads\": 4, "
				"\"num_key_value_heads\": 4, \"head_dim\": 64, "
				"\"num_hidden_layers\": 4, \"vocab_size\": 1000, "
				"\"num_local_experts\": 4, \"num_experts_per_tok\": 1, "
				"\"intermediate_size_mlp\": 512, %s}",
				cases[i].keys))
							->architecture;
		if (a->attention_window != cases[i].window ||
			a->attention_chunk != cases[i].chunk ||
			a->full_attention_every != cases[i].every)
			fail_msg("%s: window %d, chunk %d, every %d", cases[i].keys,
				(int)a->attention_window, (int)a->attention_chunk,
				(int)a->full_attention_every);
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_details),
		cmocka_unit_test(test_which_windows),
		cmocka_unit_test(test_mpt_attention),
		cmocka_unit_test(test_mpt_with_learned_positions),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
