/* config.json of every family: sizes of published models, counts that their authors or the sum of
 * their safetensors files give. What follows from a count is checked for each: what is active, the
 * matrix products, and that our own file format says the same model. */
#include <math.h>

#include "tests/models/support.h"

#define H(h, l, a, f, v)                                                                           \
	"\"hidden_size\": " #h ", \"num_hidden_layers\": " #l ", \"num_attention_heads\": " #a     \
	", \"intermediate_size\": " #f ", \"vocab_size\": " #v ", "
#define KV(n)      "\"num_key_value_heads\": " #n ", "
#define CONTEXT(n) "\"max_position_embeddings\": " #n ", "
#define TYPE(name) "\"model_type\": \"" name "\""
#define GLM_MOE                                                                                    \
	"\"n_routed_experts\": 128, \"n_shared_experts\": 1, \"num_experts_per_tok\": 8, "         \
	"\"moe_intermediate_size\": 1408, \"first_k_dense_replace\": 1, "
#define DEEPSEEK                                                                                   \
	"\"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, "             \
	"\"v_head_dim\": 128, \"moe_layer_freq\": 1, "

static const struct {
	const char *text;
	int64_t parameters, active; /* active 0: all */
} rows[] = {
	/* 7B, 46.7B with 12.9B active, 30.5B with 3.35B (Qwen says 30.5B and 3.3B). */
	{"{" H(4096, 32, 32, 14336, 32000) KV(8)
			CONTEXT(32768) "\"num_local_experts\": 8, \"num_experts_per_tok\": "
				       "2, " TYPE("mixtral") "}",
		46702792704, 12879925248},
	{"{" H(2048, 48, 32, 6144, 151936) KV(4) CONTEXT(
		 40960) "\"head_dim\": 128, \"num_experts\": 128, \"num_experts_per_tok\": 8, "
			"\"moe_intermediate_size\": 768, \"mlp_only_layers\": [], "
			"\"decoder_sparse_step\": 1, " TYPE("qwen3_moe") "}",
		30532122624, 3353032704},
	/* Mixtral-8x22B, Qwen3-235B-A22B. */
	{"{" H(6144, 56, 48, 16384, 32768) KV(8)
			CONTEXT(65536) "\"num_local_experts\": 8, \"num_experts_per_tok\": "
				       "2, " TYPE("mixtral") "}",
		140630071296, 39161468928},
	{"{" H(4096, 94, 64, 12288, 151936) KV(4) CONTEXT(
		 40960) "\"head_dim\": 128, \"num_experts\": 128, \"num_experts_per_tok\": 8, "
			"\"moe_intermediate_size\": 1536, " TYPE("qwen3_moe") "}",
		235093634560, 22190763520},
	/* Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B */
	{"{" H(2048, 24, 16, 5632, 151936) KV(16) CONTEXT(
		 8192) "\"num_experts\": 60, \"num_experts_per_tok\": 4, "
		       "\"moe_intermediate_size\": 1408, "
		       "\"shared_expert_intermediate_size\": 5632, " TYPE("qwen2_moe") "}",
		14315784192, 2689173504},
	{"{" H(3584, 28, 28, 18944, 151936) KV(4) CONTEXT(
		 131072) "\"num_experts\": 64, \"num_experts_per_tok\": 8, "
			 "\"moe_intermediate_size\": 2560, "
			 "\"shared_expert_intermediate_size\": 20480, " TYPE("qwen2_moe") "}",
		57408658944, 14249270784},
	/* DeepSeek-V3 without its multi-token-prediction module: 671B, 37B active. */
	{"{" H(7168, 61, 128, 18432, 129280) KV(128) CONTEXT(163840) DEEPSEEK
		"\"q_lora_rank\": 1536, \"n_routed_experts\": 256, "
		"\"n_shared_experts\": 1, \"num_experts_per_tok\": 8, "
		"\"moe_intermediate_size\": 2048, \"first_k_dense_replace\": 3, "
		"\"num_nextn_predict_layers\": 1, " TYPE("deepseek_v3") "}",
		671026404352, 37552282624},
	/* DeepSeek-V2-Lite: queries straight from the hidden state. */
	{"{" H(2048, 27, 16, 10944, 102400) KV(16) CONTEXT(163840) DEEPSEEK
		"\"q_lora_rank\": null, \"n_routed_experts\": 64, "
		"\"n_shared_experts\": 2, \"num_experts_per_tok\": 6, "
		"\"moe_intermediate_size\": 1408, \"first_k_dense_replace\": 1, " TYPE(
			"deepseek_v2") "}",
		15706484224, 2661150208},
	/* DeepSeek-V2 */
	{"{" H(5120, 60, 128, 12288, 102400) KV(128) CONTEXT(163840) DEEPSEEK
		"\"q_lora_rank\": 1536, \"n_routed_experts\": 160, "
		"\"n_shared_experts\": 2, \"num_experts_per_tok\": 6, "
		"\"moe_intermediate_size\": 1536, \"first_k_dense_replace\": 1, " TYPE(
			"deepseek_v2") "}",
		235741434880, 21375800320},
	/* Kimi-K2: one trillion, 32B active. */
	{"{" H(7168, 61, 64, 18432, 163840) KV(64) CONTEXT(131072) DEEPSEEK
		"\"q_lora_rank\": 1536, \"n_routed_experts\": 384, "
		"\"n_shared_experts\": 1, \"num_experts_per_tok\": 8, "
		"\"moe_intermediate_size\": 2048, \"first_k_dense_replace\": 1, " TYPE(
			"kimi_k2") "}",
		1026408209408, 32861477888},
	/* gpt-oss-20b: biases in attention and experts, sinks. */
	{"{" H(2880, 24, 64, 2880, 201088) KV(8) CONTEXT(
		 131072) "\"head_dim\": 64, \"num_local_experts\": 32, \"num_experts_per_tok\": 4, "
			 "\"experts_per_token\": 4, \"attention_bias\": true, " TYPE("gpt_oss") "}",
		20914757184, 4187440704},
	/* Llama 4 Scout, the text part: nested, with a shared expert beside the routed ones. */
	{"{" TYPE("llama4") ", \"text_config\": {" H(5120, 48, 40, 8192, 202048) KV(8)
			CONTEXT(10485760) "\"head_dim\": 128, \"intermediate_size_mlp\": 16384, "
					  "\"interleave_moe_layer_step\": 1, "
					  "\"num_local_experts\": 16, "
					  "\"num_experts_per_tok\": 1, " TYPE("llama4_text") "}}",
		107769861120, 17172894720},
	/* Llama 4 Maverick: experts in every second block. */
	{"{" H(5120, 48, 40, 8192, 202048) KV(8)
			CONTEXT(1048576) "\"head_dim\": 128, \"intermediate_size_mlp\": 16384, "
					 "\"interleave_moe_layer_step\": 2, "
					 "\"num_local_experts\": 128, "
					 "\"num_experts_per_tok\": 1, " TYPE("llama4_text") "}",
		400711848960, 17184691200},
	/* OLMoE-1B-7B */
	{"{" H(2048, 16, 16, 1024, 50304) KV(16) CONTEXT(
		 4096) "\"num_experts\": 64, \"num_experts_per_tok\": 8, " TYPE("olmoe") "}",
		6919161856, 1282017280},
	/* Granite-3.0-1B-A400M */
	{"{" H(1024, 24, 16, 512, 49155) KV(8)
			CONTEXT(4096) "\"num_local_experts\": 32, \"num_experts_per_tok\": 8, "
				      "\"tie_word_embeddings\": true, " TYPE("granitemoe") "}",
		1334628352, 428658688},
	/* Phi-3.5-MoE: LayerNorms, biases in attention and head. */
	{"{" H(4096, 32, 32, 6400, 32064) KV(8) CONTEXT(
		 131072) "\"num_local_experts\": 16, \"num_experts_per_tok\": 2, "
			 "\"attention_bias\": true, \"lm_head_bias\": true, " TYPE("phimoe") "}",
		41873153344, 6640999744},
	{"{" H(2048, 18, 8, 16384, 256000) KV(1)
			CONTEXT(8192) "\"head_dim\": 256, " TYPE("gemma") "}",
		2506172416, 0},
	{"{" H(3584, 42, 16, 14336, 256000) KV(8) CONTEXT(
		 8192) "\"hidden_activation\": \"gelu_pytorch_tanh\", " TYPE("gemma2") "}",
		9241705984, 0},
	/* Gemma 3 4B: its file leaves out heads and vocabulary. */
	{"{" TYPE("gemma3") ", \"vision_config\": {}, \"text_config\": {\"hidden_size\": 2560, "
			    "\"intermediate_size\": 10240, \"num_hidden_layers\": 34, " TYPE(
				    "gemma3_text") "}}",
		3880263168, 0},
	{"{" H(4096, 40, 32, 13696, 151552) KV(2) CONTEXT(
		 32768) "\"head_dim\": 128, \"attention_bias\": true, " TYPE("glm4") "}",
		9400279040, 0},
	{"{\"n_embd\": 6144, \"n_layer\": 40, \"n_head\": 48, \"n_inner\": 24576, "
	 "\"vocab_size\": 49152, \"n_positions\": 8192, " TYPE("gpt_bigcode") "}",
		15517456384, 0}, /* StarCoder */
	{"{" H(5120, 36, 40, 20480, 50688) CONTEXT(2048) TYPE("gpt_neox") "}", 11846072320,
		0}, /* Pythia-12b */
	{"{\"n_embd\": 4096, \"n_layer\": 28, \"n_head\": 16, \"n_inner\": null, "
	 "\"vocab_size\": 50400, \"n_positions\": 2048, \"tie_word_embeddings\": false, " TYPE(
		 "gptj") "}",
		6050882784, 0},
	{"{\"hidden_size\": 768, \"num_hidden_layers\": 12, \"num_attention_heads\": 12, "
	 "\"ffn_dim\": 3072, \"vocab_size\": 50272, \"word_embed_proj_dim\": 768, " CONTEXT(2048)
			TYPE("opt") "}",
		125239296, 0},
	/* OPT-350m: a narrower embedding, norms after the parts and none at the end. */
	{"{\"hidden_size\": 1024, \"num_hidden_layers\": 24, \"num_attention_heads\": 16, "
	 "\"ffn_dim\": 4096, \"vocab_size\": 50272, \"word_embed_proj_dim\": 512, "
	 "\"do_layer_norm_before\": false, " CONTEXT(2048) TYPE("opt") "}",
		331196416, 0},
	{"{\"n_embed\": 14336, \"n_layer\": 70, \"num_attention_heads\": 112, "
	 "\"vocab_size\": 250880, \"seq_length\": 2048, " TYPE("bloom") "}",
		176247271424, 0},
	{"{\"hidden_size\": 4544, \"num_hidden_layers\": 32, \"num_attention_heads\": 71, "
	 "\"vocab_size\": 65024, \"multi_query\": true, \"parallel_attn\": true, " TYPE(
		 "falcon") "}",
		6921720704, 0},
	{"{\"hidden_size\": 8192, \"n_layer\": 60, \"n_head\": 128, \"num_kv_heads\": 8, "
	 "\"vocab_size\": 65024, \"new_decoder_architecture\": true, " TYPE("falcon") "}",
		41303293952, 0},
	/* Falcon-RW-1B: ALiBi, one after the other, biases. */
	{"{\"hidden_size\": 2048, \"num_hidden_layers\": 24, \"num_attention_heads\": 32, "
	 "\"vocab_size\": 50304, \"multi_query\": false, \"parallel_attn\": false, "
	 "\"alibi\": true, \"bias\": true, " TYPE("falcon") "}",
		1311625216, 0},
	{"{" H(2560, 32, 32, 10240, 51200) KV(32) CONTEXT(2048) TYPE("phi") "}", 2779683840, 0},
	{"{" H(3072, 32, 32, 8192, 32064) KV(32) CONTEXT(4096) TYPE("phi3") "}", 3821079552, 0},
	{"{" H(2048, 24, 32, 5632, 100352) KV(32)
			CONTEXT(4096) "\"use_qkv_bias\": true, " TYPE("stablelm") "}",
		1644515328, 0},
	{"{" H(3072, 30, 24, 12288, 49152) KV(2)
			CONTEXT(16384) "\"use_bias\": true, " TYPE("starcoder2") "}",
		3030371328, 0},
	{"{" H(8192, 40, 64, 22528, 256000) KV(64) CONTEXT(131072) TYPE("cohere") "}", 34980831232,
		0}, /* Command-R */
	{"{" H(4096, 32, 32, 14336, 256000) KV(8) CONTEXT(8192) TYPE("cohere2") "}", 8028033024,
		0}, /* Command-R7B */
	{"{" H(4096, 32, 32, 11008, 50304) CONTEXT(2048) TYPE("olmo") "}", 6888095744, 0},
	{"{" H(4096, 32, 32, 11008, 100352) CONTEXT(4096) TYPE("olmo2") "}", 7298617344, 0},
	{"{" H(4096, 40, 32, 12800, 49155) KV(8)
			CONTEXT(4096) "\"tie_word_embeddings\": true, " TYPE("granite") "}",
		8170848256, 0}, /* Granite-3.1-8B */
	{"{" H(2048, 36, 16, 11008, 128256) KV(4) CONTEXT(65536) TYPE("smollm3") "}", 3075098624,
		0},
	/* Counted by transformers 5.23.0 on the meta device; what is active of mixtures by hand.
	 * The router's correction of DeepSeek and GLM-4.5 is a buffer there. */
	{"{" H(4096, 40, 32, 13696, 151552) KV(2) CONTEXT(
		 131072) "\"head_dim\": 128, \"attention_bias\": true, " TYPE("glm") "}",
		9399951360, 0},
	{"{" H(3072, 32, 24, 9216, 256000) KV(8) CONTEXT(
		 4096) "\"head_dim\": 128, \"hidden_act\": \"relu2\", " TYPE("nemotron") "}",
		4190509056, 0},
	{"{\"n_layers\": 40, \"d_model\": 6144, \"n_heads\": 48, \"vocab_size\": 100352, "
	 "\"max_seq_len\": 32768, \"attn_config\": {\"kv_n_heads\": 8, \"clip_qkv\": 8, "
	 "\"rope_theta\": 500000}, \"ffn_config\": {\"ffn_hidden_size\": 10752, "
	 "\"moe_num_experts\": 16, \"moe_top_k\": 4}, " TYPE("dbrx") "}",
		131596523520, 36469708800},
	{"{" H(5120, 64, 40, 27392, 102400) KV(8)
			CONTEXT(131072) "\"head_dim\": 128, " TYPE("exaone4") "}",
		32003216384, 0},
	{"{" H(1024, 18, 16, 3072, 103424) KV(2) CONTEXT(131072) TYPE("ernie4_5") "}", 360748032,
		0},
	{"{" H(1024, 18, 16, 3072, 103424) KV(2)
			CONTEXT(131072) "\"use_bias\": true, \"tie_word_embeddings\": false, " TYPE(
				"ernie4_5") "}",
		466847744, 0},
	{"{" H(4096, 32, 32, 14336, 128167) KV(8)
			CONTEXT(32768) "\"head_dim\": 128, \"tie_word_embeddings\": true, " TYPE(
				"hunyuan_v1_dense") "}",
		7504568320, 0},
	{"{" H(4096, 32, 32, 3072, 128167) KV(8) CONTEXT(
		 32768) "\"head_dim\": 128, \"num_experts\": 64, \"moe_topk\": [8, 8], "
			"\"tie_word_embeddings\": true, " TYPE("hunyuan_v1_moe") "}",
		80393183232, 12747448320},
	{"{" H(2560, 24, 20, 7040, 48000) KV(20) CONTEXT(4096) TYPE("helium") "}", 2172643840, 0},
	{"{" H(2560, 24, 20, 7040, 48000) KV(20) CONTEXT(
		 4096) "\"attention_bias\": true, \"mlp_bias\": true, " TYPE("helium") "}",
		2173227520, 0},
	{"{\"n_embd\": 4096, \"n_layer\": 28, \"n_head\": 16, \"vocab_size\": 50400, "
	 "\"n_positions\": 2048, " TYPE("codegen") "}",
		6050882784, 0},
	{"{\"hidden_size\": 2048, \"num_layers\": 24, \"num_heads\": 16, \"vocab_size\": 50257, "
	 "\"intermediate_size\": null, " CONTEXT(2048) TYPE("gpt_neo") "}",
		1315575808, 0},
	{"{" H(2560, 36, 20, 18432, 128004) KV(4) CONTEXT(
		 4096) "\"head_dim\": 128, \"hidden_act\": \"relu2\", " TYPE("arcee") "}",
		4619184640, 0},
	{"{" H(5120, 64, 80, 27648, 155136) KV(8)
			CONTEXT(524288) "\"head_dim\": 128, " TYPE("seed_oss") "}",
		36151104512, 0},
	{"{" H(5120, 64, 80, 27648, 155136) KV(8)
			CONTEXT(524288) "\"head_dim\": 128, \"attention_out_bias\": true, "
					"\"mlp_bias\": true, " TYPE("seed_oss") "}",
		36155298816, 0},
	{"{" H(4096, 36, 32, 12288, 131072) KV(8)
			CONTEXT(131072) "\"head_dim\": 128, " TYPE("ministral") "}",
		8019808256, 0},
	/* Its defaults: 4096 / 96 heads is rounded down. */
	{"{" H(4096, 46, 96, 10944, 151552) KV(8) CONTEXT(131072) GLM_MOE TYPE("glm4_moe") "}",
		103481200640, 10053079040},
	{"{" H(4096, 46, 96, 10944, 151552) KV(8)
			CONTEXT(131072) "\"head_dim\": 128, \"attention_bias\": true, " GLM_MOE
				TYPE("glm4_moe") "}",
		106852245504, 13424123904},
	/* GLM-4.5 */
	{"{" H(5120, 92, 96, 12288, 151552) KV(8) CONTEXT(
		 131072) "\"head_dim\": 128, \"attention_bias\": true, \"use_qk_norm\": true, "
			 "\"n_routed_experts\": 160, \"n_shared_experts\": 1, "
			 "\"num_experts_per_tok\": 8, \"moe_intermediate_size\": 1536, "
			 "\"first_k_dense_replace\": 3, " TYPE("glm4_moe") "}",
		352797814784, 33632251904},
	{"{\"d_model\": 512, \"num_layers\": 6, \"num_heads\": 8, \"d_kv\": 64, \"d_ff\": 2048, "
	 "\"vocab_size\": 32128, \"n_positions\": 512, " TYPE("t5") "}",
		60506624, 0},
	/* d_kv * heads is 16 times d_model. */
	{"{\"d_model\": 1024, \"num_layers\": 24, \"num_heads\": 128, \"d_kv\": 128, "
	 "\"d_ff\": 65536, \"vocab_size\": 32128, " TYPE("t5") "}",
		11307321344, 0},
	{"{\"d_model\": 4096, \"num_layers\": 24, \"num_decoder_layers\": 24, \"num_heads\": 64, "
	 "\"d_kv\": 64, \"d_ff\": 10240, \"vocab_size\": 32128, \"feed_forward_proj\": "
	 "\"gated-gelu\", \"tie_word_embeddings\": false, " TYPE("t5") "}",
		11135332352, 0},
};

static void test_counts(void **state)
{
	struct arena arena = {0};
	int wrong = 0;

	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct model *m = parse_model(&arena, "x/config.json", rows[i].text);
		int64_t active = rows[i].active > 0 ? rows[i].active : rows[i].parameters;

		if (m->parameter_count != rows[i].parameters ||
			m->active_parameter_count != active) {
			print_error("%s: expected %" PRId64 " and %" PRId64 " active, got %" PRId64
				    " and %" PRId64 "\n",
				model_family_names[m->architecture.family], rows[i].parameters,
				active, m->parameter_count, m->active_parameter_count);
			wrong++;
		}
	}
	assert_int_equal(wrong, 0);
	arena_finish(&arena);
}

/* Weights of matrix products that one token meets; a tied head has none of its own. */
static double active_weights(const struct model *model)
{
	const struct architecture *a = &model->architecture;
	double total = 0;

	for (int i = 0; i < model->n_modules; i++) {
		int64_t out, in;

		if (!module_linear_shape(a, model->modules[i].kind, &out, &in))
			continue;
		total += (double)out * (double)in *
			 (double)(module_kind_is_of_experts(model->modules[i].kind)
					  ? a->experts_per_token
					  : 1);
	}
	return total;
}

static double product_flops(const struct model *model, enum pass pass, int64_t seq_len)
{
	double total = 0;

	for (int i = 0; i < model->n_modules; i++) {
		struct module_work work;

		model_module_work(model, i, pass, 1, seq_len, 2,
			(struct attending){ATTENTION_FLASH, true}, &work);
		for (int g = 0; g < work.n_gemms; g++)
			total += 2.0 * (double)work.gemms[g].m * (double)work.gemms[g].n *
				 (double)work.gemms[g].k * (double)work.gemms[g].count;
	}
	return total;
}

/* 2 FLOPs per active weight and token forward, 4 backward: experts that a token does not meet cost
 * nothing. 3840 tokens spread evenly over 60, 64, 128, ... experts (384 of them: within 2 %). */
static void test_products(void **state)
{
	struct arena arena = {0};
	const int64_t tokens = 3840;

	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct model *m = parse_model(&arena, "x.json", rows[i].text);
		double expected = 2.0 * (double)tokens * active_weights(m);
		double forward = product_flops(m, PASS_FORWARD, tokens);
		double backward = product_flops(m, PASS_BACKWARD, tokens);

		if (!(fabs(forward / expected - 1) < 0.02 && fabs(backward / forward - 2) < 1e-9))
			fail_msg("%s: forward %g, backward %g, expected %g",
				model_family_names[m->architecture.family], forward, backward,
				expected);
	}
	arena_finish(&arena);
}

static const char *details(struct arena *arena, const struct model *model)
{
	struct text text = {0};
	struct writer writer;

	writer_init(&writer, &text, WRITER_JSON);
	model_write_details(model, &writer);
	writer_finish(&writer);
	const char *copy = arena_strdup(arena, text_string(&text));
	text_finish(&text);
	return copy;
}

/* A plan file holds the architecture only, and must mean the same model. */
static void test_round_trip(void **state)
{
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++) {
		struct model *m = parse_model(&arena, "x.json", rows[i].text);
		struct text text = {0};
		struct writer writer;

		writer_init(&writer, &text, WRITER_YAML);
		writer_string(&writer, "shardplan", "model/1");
		model_write(m, &writer);
		writer_finish(&writer);
		struct model *again = parse_model(&arena, "y.yaml", text_string(&text));
		assert_string_equal(details(&arena, m), details(&arena, again));
		text_finish(&text);
	}
	arena_finish(&arena);
}

/* One family, one row at least. */
static void test_every_family(void **state)
{
	struct arena arena = {0};
	bool seen[MODEL_FAMILY_COUNT] = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(rows); i++)
		seen[parse_model(&arena, "x.json", rows[i].text)->architecture.family] = true;
	/* The first six have a file of their own, test_hugging_face.c. */
	for (int i = FAMILY_QWEN3 + 1; i < MODEL_FAMILY_COUNT; i++)
		if (!seen[i])
			fail_msg("no row of %s", model_family_names[i]);
	arena_finish(&arena);
}

static int64_t saved(const struct model *model, int first, int64_t tokens)
{
	const struct activation_rules rules = {.dtype = DTYPE_BF16};

	return model_saved_bytes(model, first, model->modules[first].end, &rules, 1, tokens);
}

/* Mixtral's block against Mistral's, by hand: the router's probabilities in fp32, two copies of
 * each token in and out, and the MLP's tensors twice. */
static void test_experts_activations(void **state)
{
	struct arena arena = {0};
	struct model *experts = parse_model(&arena, "x.json", rows[0].text);
	struct model *dense = load_preset(&arena, "mistral-7b");
	const int64_t t = 1024, h = 4096, f = 14336, k = 2;
	int64_t mlp = 2 * t * 3 * f;
	int64_t extra = saved(experts, find_module(experts, "model.layers.0"), t) -
			saved(dense, find_module(dense, "model.layers.0"), t);

	(void)state;
	assert_int_equal(extra, (k - 1) * mlp + 4 * t * 8 + 2 * 2 * t * k * h);
	arena_finish(&arena);
}

/* torchtitan 0.3.0's router multiplies in fp32, and results are weighed in fp32: what these
 * products keep is as wide (bench/torch/memory.py). */
static void test_experts_in_fp32(void **state)
{
	struct arena arena = {0};
	struct model *model = parse_model(&arena, "x.json", rows[0].text);
	struct activation_rules rules = {.dtype = DTYPE_BF16, .alignment = 1};
	const int64_t t = 1024, h = 4096, k = 2;
	int block = find_module(model, "model.layers.0"), end = model->modules[block].end;
	int64_t before = model_saved_bytes(model, block, end, &rules, 1, t);

	(void)state;
	rules.routes_in_fp32 = true;
	assert_int_equal(model_saved_bytes(model, block, end, &rules, 1, t) - before,
		4 * t * h + (4 - 2) * t * k * h);
	arena_finish(&arena);
}

/* Where attention sees every position it costs twice the causal one. */
static void test_encoder_attention(void **state)
{
	struct arena arena = {0};
	struct model *t5 = parse_model(&arena, "x.json", rows[COUNT_OF(rows) - 3].text);
	static const struct {
		const char *name;
		double square; /* share of 4*T*s*a*d */
	} cores[] = {
		{"encoder.block.0.layer.0.SelfAttention.core", 1},
		{"decoder.block.0.layer.0.SelfAttention.core", 0.5},
		{"decoder.block.5.layer.1.EncDecAttention.core", 1},
	};

	(void)state;
	for (int i = 0; i < COUNT_OF(cores); i++) {
		struct module_work work;

		model_module_work(t5, find_module(t5, cores[i].name), PASS_FORWARD, 1, 512, 2,
			(struct attending){ATTENTION_FLASH, true}, &work);
		assert_true(work.attention_flops == cores[i].square * 4 * 512 * 512 * 8 * 64);
	}
	/* 6 encoder and 6 decoder blocks, the latter with two attentions, one of them causal. */
	assert_true(model_flops_per_token(t5, 512) - model_flops_6n(t5) == 18.0 * 12 * 512 * 512);
	assert_true(model_flops_causal(t5, 512) - model_flops_6n(t5) == 15.0 * 12 * 512 * 512);
	arena_finish(&arena);
}

static void test_parts(void **state)
{
	struct arena arena = {0};
	struct model *m;
	int llama4 = 0;

	(void)state;
	while (strstr(rows[llama4].text, "\"llama4\"") == NULL)
		llama4++;
	m = parse_model(&arena, "x.json", rows[llama4].text);
	assert_non_null(m->part);
	assert_non_null(strstr(m->part, "the text part of llama4"));
	m = parse_model(&arena, "x.json", rows[0].text);
	assert_null(m->part);
	assert_null(architecture_not_trainable(&m->architecture));
	m = parse_model(&arena, "x.json", rows[1].text);
	assert_string_equal(
		architecture_not_trainable(&m->architecture), "this mixture of experts");
	assert_null(architecture_not_trainable(&load_preset(&arena, "mpt-125m")->architecture));
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_products),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_every_family),
		cmocka_unit_test(test_experts_activations),
		cmocka_unit_test(test_experts_in_fp32),
		cmocka_unit_test(test_encoder_attention),
		cmocka_unit_test(test_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
