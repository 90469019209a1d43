/* The families: what each takes for granted, and how Hugging Face names its modules. A family that
 * is made of the same parts is one more entry here (docs/models.md). */
#include "models/families.h"

static const struct module_names llama_names = {
	.of =
		{
			[MODULE_MODEL] = "model",
			[MODULE_EMBEDDING] = "embed_tokens",
			[MODULE_POSITION_EMBEDDING] = "embed_positions",
			[MODULE_LAYERS] = "layers",
			[MODULE_NORM] = "input_layernorm",
			[MODULE_ATTENTION] = "self_attn",
			[MODULE_QKV] = "qkv_proj",
			[MODULE_QUERY] = "q_proj",
			[MODULE_KEY] = "k_proj",
			[MODULE_VALUE] = "v_proj",
			[MODULE_QUERY_NORM] = "q_norm",
			[MODULE_KEY_NORM] = "k_norm",
			[MODULE_ATTENTION_CORE] = "core",
			[MODULE_ATTENTION_OUTPUT] = "o_proj",
			[MODULE_MLP] = "mlp",
			[MODULE_GATE] = "gate_proj",
			[MODULE_UP] = "up_proj",
			[MODULE_ACTIVATION] = "act",
			[MODULE_DOWN] = "down_proj",
			[MODULE_HEAD] = "lm_head",
		},
	.second_norm = "post_attention_layernorm",
	.final_norm = "norm",
};

static const struct module_names gpt2_names = {
	.of =
		{
			[MODULE_MODEL] = "transformer",
			[MODULE_EMBEDDING] = "wte",
			[MODULE_POSITION_EMBEDDING] = "wpe",
			[MODULE_LAYERS] = "h",
			[MODULE_NORM] = "ln_1",
			[MODULE_ATTENTION] = "attn",
			[MODULE_QKV] = "c_attn",
			[MODULE_QUERY] = "q_attn",
			[MODULE_KEY] = "k_attn",
			[MODULE_VALUE] = "v_attn",
			[MODULE_QUERY_NORM] = "q_norm",
			[MODULE_KEY_NORM] = "k_norm",
			[MODULE_ATTENTION_CORE] = "core",
			[MODULE_ATTENTION_OUTPUT] = "c_proj",
			[MODULE_MLP] = "mlp",
			[MODULE_GATE] = "c_gate",
			[MODULE_UP] = "c_fc",
			[MODULE_ACTIVATION] = "act",
			[MODULE_DOWN] = "c_proj",
			[MODULE_HEAD] = "lm_head",
		},
	.second_norm = "ln_2",
	.final_norm = "ln_f",
};

static const struct module_names mpt_names = {
	.of =
		{
			[MODULE_MODEL] = "transformer",
			[MODULE_EMBEDDING] = "wte",
			[MODULE_POSITION_EMBEDDING] = "wpe",
			[MODULE_LAYERS] = "blocks",
			[MODULE_NORM] = "norm_1",
			[MODULE_ATTENTION] = "attn",
			[MODULE_QKV] = "Wqkv",
			[MODULE_QUERY] = "Wq",
			[MODULE_KEY] = "Wk",
			[MODULE_VALUE] = "Wv",
			[MODULE_QUERY_NORM] = "q_norm",
			[MODULE_KEY_NORM] = "k_norm",
			[MODULE_ATTENTION_CORE] = "core",
			[MODULE_ATTENTION_OUTPUT] = "out_proj",
			[MODULE_MLP] = "ffn",
			[MODULE_GATE] = "gate_proj",
			[MODULE_UP] = "up_proj",
			[MODULE_ACTIVATION] = "act",
			[MODULE_DOWN] = "down_proj",
			[MODULE_HEAD] = "lm_head",
		},
	.second_norm = "norm_2",
	.final_norm = "norm_f",
};

#define LLAMA_DEFAULTS                                                                             \
	.positions = POSITIONS_ROPE, .norm = NORM_RMSNORM, .mlp = MLP_SWIGLU,                      \
	.norm_epsilon = 1e-5, .rope_theta = 10000

const struct family model_families[] = {
	[FAMILY_GPT2] =
		{
			.defaults = {.family = FAMILY_GPT2,
				.positions = POSITIONS_LEARNED,
				.norm = NORM_LAYERNORM,
				.norm_bias = true,
				.mlp = MLP_GELU,
				.gelu_tanh = true,
				.qkv_bias = true,
				.output_bias = true,
				.mlp_bias = true,
				.fused_qkv = true,
				.tied_head = true,
				.norm_epsilon = 1e-5,
				.rope_theta = 10000},
			.dialect = DIALECT_GPT2,
			.config_norm_epsilon = 1e-5,
			.config_class = "GPT2LMHeadModel",
			.names = &gpt2_names,
		},
	[FAMILY_MPT] =
		{
			.defaults = {.family = FAMILY_MPT,
				.positions = POSITIONS_ALIBI,
				.norm = NORM_LAYERNORM,
				.mlp = MLP_GELU,
				.fused_qkv = true,
				.tied_head = true,
				.norm_epsilon = 1e-5,
				.rope_theta = 10000},
			.dialect = DIALECT_MPT,
			.config_norm_epsilon = 1e-5,
			.config_class = "MptForCausalLM",
			.names = &mpt_names,
		},
	[FAMILY_LLAMA] =
		{
			.defaults = {.family = FAMILY_LLAMA, LLAMA_DEFAULTS},
			.dialect = DIALECT_LLAMA,
			.config_norm_epsilon = 1e-6,
			.config_class = "LlamaForCausalLM",
			.names = &llama_names,
		},
	[FAMILY_MISTRAL] =
		{
			.defaults = {.family = FAMILY_MISTRAL, LLAMA_DEFAULTS},
			.dialect = DIALECT_LLAMA,
			.config_norm_epsilon = 1e-6,
			.config_class = "MistralForCausalLM",
			.names = &llama_names,
		},
	[FAMILY_QWEN2] =
		{
			.defaults = {.family = FAMILY_QWEN2, LLAMA_DEFAULTS, .qkv_bias = true},
			.dialect = DIALECT_LLAMA,
			.config_norm_epsilon = 1e-6,
			.config_class = "Qwen2ForCausalLM",
			.names = &llama_names,
		},
	[FAMILY_QWEN3] =
		{
			.defaults = {.family = FAMILY_QWEN3, LLAMA_DEFAULTS, .qk_norm = true},
			.dialect = DIALECT_LLAMA,
			.config_norm_epsilon = 1e-6,
			.config_class = "Qwen3ForCausalLM",
			.names = &llama_names,
		},
};
const int n_model_families = COUNT_OF(model_families);

const char *const model_family_names[] = {
	[FAMILY_GPT2] = "gpt2",
	[FAMILY_MPT] = "mpt",
	[FAMILY_LLAMA] = "llama",
	[FAMILY_MISTRAL] = "mistral",
	[FAMILY_QWEN2] = "qwen2",
	[FAMILY_QWEN3] = "qwen3",
	NULL,
};
_Static_assert(COUNT_OF(model_families) + 1 == COUNT_OF(model_family_names), "one name a family");
