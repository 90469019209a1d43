/* One line for each mistake, with its place, what was expected, and what was found. */
#include "tests/models/support.h"

#define OWN   "shardplan: model/1\n"
#define SIZES "family: llama\nlayers: 2\nhidden: 64\nheads: 4\nffn: 128\nvocab: 10\ncontext: 16\n"
#define CONFIG                                                                                     \
	"\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"       \
	"\"intermediate_size\": 128, \"vocab_size\": 10, \"max_position_embeddings\": 16"
#define FAMILIES                                                                                   \
	"gpt2, mpt, llama, mistral, qwen2, qwen3, arcee, bloom, codegen, "                         \
	"cohere, cohere2, dbrx, deepseek_v2, deepseek_v3, ernie4_5, "                              \
	"exaone4, falcon, gemma, gemma2, gemma3_text, glm, glm4, glm4_moe, "                       \
	"gpt_bigcode, gpt_neo, gpt_neox, gpt_oss, gptj, granite, "                                 \
	"granitemoe, helium, hunyuan_v1_dense, hunyuan_v1_moe, "                                   \
	"llama4_text, mixtral, nemotron, olmo, olmo2, olmoe, opt, phi, "                           \
	"phi3, phimoe, qwen2_moe, qwen3_moe, seed_oss, smollm3, stablelm, "                        \
	"starcoder2, t5"
#define GPT2                                                                                       \
	"\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 64,\n"               \
	"\"vocab_size\": 10, \"n_positions\": 16"
#define MPT                                                                                        \
	"\"model_type\": \"mpt\", \"n_layers\": 2, \"n_heads\": 4, \"d_model\": 64,\n"             \
	"\"vocab_size\": 10, \"max_seq_len\": 16"

static const struct {
	const char *text, *message;
} cases[] = {
	{"", "f: the document is empty, expected YAML or JSON"},
	{"a: 1\n", "f:1:1: not a model: expected the key \"shardplan: model/1\" or a Hugging Face "
		   "config.json with \"model_type\""},
	{"- 1\n- 2\n", "f:1:1: not a model: expected the key \"shardplan: model/1\" or a Hugging "
		       "Face config.json with \"model_type\""},
	{"shardplan: plan/1\n" SIZES,
		"f:1:12: shardplan: expected a model file (model/1), got \"plan/1\"; "
		"`shardplan explain` shows a plan, `report` plans it again"},
	{"shardplan: [1]\n" SIZES, "f:1:12: shardplan: expected a string, got a list"},
	{OWN SIZES "bogus: 1\n",
		"f:9:1: bogus: unknown key; known here: name, family, layers, hidden, heads, "
		"kv_heads, head_dim, ffn, vocab, context, positions, norm, norm_bias, mlp, "
		"gelu_tanh, qkv_bias, output_bias, mlp_bias, fused_qkv, ..."},
	{OWN SIZES "kv_head: 2\n", "f:9:1: kv_head: unknown key, did you mean \"kv_heads\"?"},
	{OWN SIZES "layers: 3\n",
		"f:9:1: layers: duplicate key, already given in line 3; remove one of them"},
	{OWN "family: llama\nlayers: 2\n",
		"f:1:1: missing key \"hidden\", expected a whole number greater than 0"},
	{OWN "family: lama\nlayers: 2\n", "f:2:9: family: expected one of " FAMILIES ", got "
					  "\"lama\", did you mean \"llama\"?"},
	{OWN "layers: 2\nhidden: 64\n", "f:1:1: missing key \"family\", expected one of " FAMILIES},
	{OWN "family: llama\nlayers: 0\nhidden: 64\nheads: 4\nffn: 128\nvocab: 10\ncontext: 16\n",
		"f:3:9: layers: expected a whole number greater than 0, got \"0\""},
	{OWN "family: llama\nlayers: 20000\nhidden: 64\nheads: 4\nffn: 8\nvocab: 10\ncontext: 16\n",
		"f:3:9: layers: expected a whole number from 1 to 10000, got 20000"},
	{OWN "family: llama\nlayers: 2\nhidden: 64\nheads: 5\nffn: 128\nvocab: 10\ncontext: 16\n",
		"f:5:8: heads: expected a number that divides the hidden size 64, got 5; or give "
		"head_dim"},
	{OWN "family: llama\nlayers: two\nhidden: 64\nheads: 4\nffn: 128\nvocab: 1\ncontext: 1\n",
		"f:3:9: layers: expected a whole number greater than 0, got \"two\""},
	{OWN SIZES "kv_heads: 3\n",
		"f:9:11: kv_heads: expected a number that divides the 4 heads, got 3"},
	{OWN SIZES "kv_heads: 8\n",
		"f:9:11: kv_heads: expected a number that divides the 4 heads, got 8"},
	{OWN SIZES "kv_heads: 0\n",
		"f:9:11: kv_heads: expected a whole number greater than 0, got \"0\""},
	{OWN SIZES "head_dim: 7\n",
		"f:9:11: head_dim: expected an even number, because RoPE turns pairs, got 7"},
	{OWN SIZES "norm_bias: true\n",
		"f:9:12: norm_bias: expected false, because RMSNorm has no bias, got true"},
	{OWN SIZES "norm_epsilon: 2\n",
		"f:9:15: norm_epsilon: expected a number between 0 and 1, got 2"},
	{OWN SIZES "rope_theta: 0.5\n",
		"f:9:13: rope_theta: expected a number of at least 1, got 0.5"},
	{OWN SIZES "positions: absolute\n", "f:9:12: positions: expected one of learned, rope, "
					    "alibi, relative, got \"absolute\""},
	{OWN SIZES "tied_head: maybe\n",
		"f:9:12: tied_head: expected true, false, on or off, got \"maybe\""},
	{OWN SIZES "name: \"two\\nlines\"\n",
		"f:9:7: name: expected no control characters, got code 10 at 4"},
	{"{" CONFIG "}",
		"f:1:1: missing key \"hidden_size\", expected a config.json of a whole model"},
	{"{\"hidden_size\": null, " CONFIG "}",
		"f:1:1: missing key \"hidden_size\", expected a config.json of a whole model"},
	{"{\"hidden_size\": 66, " CONFIG "}",
		"f:1:91: num_attention_heads: expected a number that divides the hidden size 66, "
		"got 4; or give head_dim"},
	{"{\"hidden_size\": 0, " CONFIG "}",
		"f:1:17: hidden_size: expected a whole number from 1, got 0"},
	{"{\"hidden_size\": -64, " CONFIG "}",
		"f:1:17: hidden_size: expected a whole number from 1, got -64"},
	{"{\"hidden_size\": 64.5, " CONFIG "}",
		"f:1:17: hidden_size: expected a whole number, got \"64.5\""},
	{"{\"hidden_size\": \"64\", " CONFIG "}",
		"f:1:17: hidden_size: expected a whole number, got the string \"64\""},
	{"{\"hidden_size\": 64,\n\"num_key_value_heads\": 3, " CONFIG "}",
		"f:2:24: num_key_value_heads: expected a number that divides the 4 heads, got 3"},
	{"{\"hidden_size\": 64,\n\"hidden_act\": \"relu6\", " CONFIG "}",
		"f:2:15: hidden_act: expected silu, got \"relu6\", which is not supported"},
	{"{\"hidden_size\": 4000000000000, " CONFIG "}",
		"f:1:17: hidden_size: expected a whole number from 1 to 1000000000, got "
		"4000000000000"},
	{"{\"model_type\": \"persimmon\", \"hidden_size\": 64}",
		"f:1:16: model_type: expected a transformer that can be planned, got "
		"\"persimmon\": its norms of queries and keys have biases, which are not modelled"},
	{"{\"model_type\": \"xglm\", \"hidden_size\": 64}",
		"f:1:16: model_type: expected a transformer that can be planned, got \"xglm\": "
		"its sinusoidal positions are not modelled"},
	{"{\"model_type\": \"diffllama\", \"hidden_size\": 64}",
		"f:1:16: model_type: expected a transformer that can be planned, got "
		"\"diffllama\": its differential attention is not modelled"},
	{"{\"model_type\": \"apertus\", \"hidden_size\": 64}",
		"f:1:16: model_type: expected a transformer that can be planned, got \"apertus\": "
		"its activation (xIELU) has weights, which are not modelled"},
	{"{\"model_type\": \"bitnet\", \"hidden_size\": 64}",
		"f:1:16: model_type: expected a transformer that can be planned, got \"bitnet\": "
		"its norms inside attention and MLP and its ternary products are not modelled"},
	{"{\"model_type\": \"mamba\", \"hidden_size\": 64}",
		"f:1:16: model_type: expected a transformer that can be planned, got \"mamba\": a "
		"state-space model has no attention and its scan is not modelled; plan a "
		"transformer"},
	{"{\"model_type\": \"bert\", \"hidden_size\": 64}",
		"f:1:16: model_type: expected a transformer that can be planned, got \"bert\": an "
		"encoder without a decoder is not modelled; causal models and T5 are"},
	{"{\"model_type\": \"qwen3_mo\", \"hidden_size\": 64}",
		"f:1:16: model_type: expected a known family (`shardplan help models` lists them), "
		"got \"qwen3_mo\", did you mean \"qwen3_moe\"? If its blocks are made of the "
		"same parts, describe it in a model file (edit what `shardplan models show "
		"llama-2-7b` prints)"},
	{"{\"model_type\": \"wizard\", \"text_config\": {\"model_type\": \"jamba\"}}",
		"f:1:56: model_type: expected a transformer that can be planned, got \"jamba\": "
		"its blocks are of several kinds (state-space or linear attention beside softmax "
		"attention), which is not modelled"},
	{"{" CONFIG ", \"hidden_size\": 64, \"model_type\": \"mixtral\"}",
		"f:1:1: missing key \"num_local_experts\", expected a config.json of a whole "
		"model"},
	{"{" CONFIG ", \"hidden_size\": 64, \"model_type\": \"mixtral\",\n"
	 "\"num_local_experts\": 4, \"num_experts_per_tok\": 8}",
		"f:3:48: num_experts_per_tok: expected a whole number from 0 to 4, got 8"},
	{"{" CONFIG ", \"hidden_size\": 64, \"model_type\": \"mixtral\",\n"
	 "\"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"n_group\": 3, \"topk_group\": 2}",
		"f:3:62: n_group: expected a divisor of the 8 experts, got 3"},
	{"{" CONFIG ", \"hidden_size\": 64, \"model_type\": \"mixtral\",\n"
	 "\"num_local_experts\": 8, \"num_experts_per_tok\": 3, \"n_group\": 4, \"topk_group\": 1}",
		"f:3:79: topk_group: expected groups with the 3 experts of a token, got 1 of 2"},
	{"{" CONFIG ", \"hidden_size\": 64, \"model_type\": \"mixtral\",\n"
	 "\"num_local_experts\": 99999999999, \"num_experts_per_tok\": 8}",
		"f:3:22: num_local_experts: expected a whole number from 0 to 100000, got "
		"99999999999"},
	{"{" CONFIG ", \"hidden_size\": 64, \"model_type\": \"qwen3_moe\",\n"
	 "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"mlp_only_layers\": [1]}",
		"f:3:65: expected the first layers (0, 1, ...), which may be "
		"dense, got 1"},
	{OWN SIZES "experts: 4\n",
		"f:9:10: experts: expected experts_per_token and expert_ffn beside it, got 0 and "
		"0"},
	{OWN SIZES "shared_ffn: 4\n",
		"f:1:1: experts: expected a number above 0 beside experts_per_token, expert_ffn "
		"and shared_ffn, got 0"},
	{OWN SIZES "encoder_layers: 2\n",
		"f:9:17: encoder_layers: expected a whole number from 0 to 1, got 2"},
	{OWN SIZES "kv_rank: 8\n",
		"f:9:10: kv_rank: latent attention expects value_dim and rope_dim, rope_dim below "
		"head_dim, kv_heads = heads, no fused_qkv and no qk_norm"},
	{"{\"model_type\": [\"llama\"], \"hidden_size\": 64}",
		"f:1:16: model_type: expected a string, got a list"},
	{"{\"architectures\": [\"WizardForCausalLM\"], \"hidden_size\": 64}",
		"f:1:19: architectures: expected a known family (`shardplan help models` lists "
		"them), got \"WizardForCausalLM\"; if its blocks are made of the same parts, "
		"describe it in a model file (edit what `shardplan models show llama-2-7b` "
		"prints)"},
	{"{\"architectures\": [], \"hidden_size\": 64}",
		"f:1:1: missing key \"model_type\", expected a config.json of a whole model"},
	{"{" GPT2 ",\n\"activation_function\": \"tanh\"}",
		"f:3:24: activation_function: expected gelu_new, got \"tanh\", which is not "
		"supported"},
	{"{" GPT2 ",\n\"add_cross_attention\": true}",
		"f:3:24: add_cross_attention: expected false, got true, which is not supported"},
	{"{" MPT ",\n\"expansion_ratio\": 0.01}",
		"f:3:20: expansion_ratio: expected a ratio up to 1024 that gives a whole number of "
		"columns, got 0.01"},
	{"{" MPT ",\n\"attn_config\": {\"qk_ln\": true}}",
		"f:3:26: qk_ln: expected false, got true, which is not supported"},
	{"{" MPT ",\n\"attn_config\": {\"alibi\": false}, \"learned_pos_emb\": false}",
		"f:3:16: attn_config: no positions: expected one of alibi, rope, learned_pos_emb "
		"to be true"},
	{"{" MPT ",\n\"attn_config\": {\"attn_type\": \"grouped_query_attention\"}}",
		"f:3:16: attn_config: missing key \"kv_n_heads\", expected a config.json of a "
		"whole model"},
	{"{" MPT ",\n\"ffn_config\": {\"ffn_type\": \"mptglu\"}}",
		"f:3:28: ffn_type: expected mptmlp, got \"mptglu\", which is not supported"},
	{"{" MPT ",\n\"n_heads\": 4611686018427387904}",
		"f:3:12: n_heads: expected a whole number from 1 to 1000000000, got "
		"4611686018427387904"},
};

static void test_messages(void **state)
{
	struct arena arena = {0};
	int wrong = 0;

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct error error = {0};
		struct model *model;
		const char *text = cases[i].text;

		if (model_parse(&arena, "f", text, strlen(text), &model, &error))
			fail_msg("accepted:\n%s", text);
		assert_int_equal(error.code, EXIT_CODE_INPUT);
		if (strcmp(error.message, cases[i].message) != 0) {
			print_error("%s\nexpected: %s\ngot:      %s\n", text, cases[i].message,
				error.message);
			wrong++;
		}
	}
	assert_int_equal(wrong, 0);
	arena_finish(&arena);
}

/* Inside a plan the position is the plan's. */
static void test_inside_a_plan(void **state)
{
	static const char plan[] =
		"shardplan: plan/1\nmodel:\n  family: gpt2\n  layers: 2\n"
		"  hidden: 64\n  heads: 5\n  ffn: 64\n  vocab: 10\n  context: 8\n";
	struct arena arena = {0};
	struct error error = {0};
	struct model *model;
	const struct node *root =
		document_parse(&arena, "plan.yaml", plan, strlen(plan), 0, &error);

	(void)state;
	assert_non_null(root);
	assert_false(model_read(&arena, node_get(root, "model"), &model, &error));
	assert_string_equal(error.message,
		"plan.yaml:6:10: heads: expected a number that divides the hidden size 64, got 5; "
		"or give head_dim");
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_inside_a_plan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
