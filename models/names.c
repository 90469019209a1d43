/* How Hugging Face calls the modules of each layout. What a layout does not name is called as in
 * Llama. The names are what state dicts and safetensors files have, so that a reader finds them
 * again; containers that only hold others are part of a name with dots. */
#include "models/families.h"

const struct module_names llama_names = {
	.of =
		{
			[MODULE_MODEL] = "model",
			[MODULE_EMBEDDING] = "embed_tokens",
			[MODULE_POSITION_EMBEDDING] = "embed_positions",
			[MODULE_EMBEDDING_PROJECTION] = "project_in",
			[MODULE_HEAD_PROJECTION] = "project_out",
			[MODULE_EMBEDDING_NORM] = "embed_norm",
			[MODULE_LAYERS] = "layers",
			[MODULE_NORM] = "input_layernorm",
			[MODULE_ATTENTION] = "self_attn",
			[MODULE_CROSS_ATTENTION] = "cross_attn",
			[MODULE_RELATIVE_BIAS] = "relative_attention_bias",
			[MODULE_QKV] = "qkv_proj",
			[MODULE_QUERY_DOWN] = "q_a_proj",
			[MODULE_QUERY_DOWN_NORM] = "q_a_layernorm",
			[MODULE_QUERY] = "q_proj",
			[MODULE_KEY] = "k_proj",
			[MODULE_VALUE] = "v_proj",
			[MODULE_KV_DOWN] = "kv_a_proj_with_mqa",
			[MODULE_KV_DOWN_NORM] = "kv_a_layernorm",
			[MODULE_KV_UP] = "kv_b_proj",
			[MODULE_QUERY_NORM] = "q_norm",
			[MODULE_KEY_NORM] = "k_norm",
			[MODULE_ATTENTION_CORE] = "core",
			[MODULE_ATTENTION_OUTPUT] = "o_proj",
			[MODULE_MLP] = "mlp",
			[MODULE_GATE] = "gate_proj",
			[MODULE_UP] = "up_proj",
			[MODULE_GATE_UP] = "gate_up_proj",
			[MODULE_ACTIVATION] = "act",
			[MODULE_DOWN] = "down_proj",
			[MODULE_ROUTER] = "gate",
			[MODULE_EXPERTS] = "experts",
			[MODULE_EXPERTS_GATE] = "gate_proj",
			[MODULE_EXPERTS_UP] = "up_proj",
			[MODULE_EXPERTS_ACTIVATION] = "act",
			[MODULE_EXPERTS_DOWN] = "down_proj",
			[MODULE_SHARED_EXPERT] = "shared_experts",
			[MODULE_SHARED_GATE] = "gate_proj",
			[MODULE_SHARED_UP] = "up_proj",
			[MODULE_SHARED_ACTIVATION] = "act",
			[MODULE_SHARED_DOWN] = "down_proj",
			[MODULE_SHARED_WEIGHT] = "shared_expert_gate",
			[MODULE_HEAD] = "lm_head",
		},
	.second_norm = "post_attention_layernorm",
	.third_norm = "post_feedforward_layernorm",
	.fourth_norm = "post_feedforward_layernorm",
	.final_norm = "norm",
};

const struct module_names gpt2_names = {
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
			[MODULE_ATTENTION_OUTPUT] = "c_proj",
			[MODULE_GATE] = "c_gate",
			[MODULE_UP] = "c_fc",
			[MODULE_DOWN] = "c_proj",
		},
	.second_norm = "ln_2",
	.final_norm = "ln_f",
};

const struct module_names mpt_names = {
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
			[MODULE_ATTENTION_OUTPUT] = "out_proj",
			[MODULE_MLP] = "ffn",
		},
	.second_norm = "norm_2",
	.final_norm = "norm_f",
};

const struct module_names neox_names = {
	.of =
		{
			[MODULE_MODEL] = "gpt_neox",
			[MODULE_EMBEDDING] = "embed_in",
			[MODULE_ATTENTION] = "attention",
			[MODULE_QKV] = "query_key_value",
			[MODULE_ATTENTION_OUTPUT] = "dense",
			[MODULE_UP] = "dense_h_to_4h",
			[MODULE_DOWN] = "dense_4h_to_h",
			[MODULE_HEAD] = "embed_out",
		},
	.second_norm = "post_attention_layernorm",
	.final_norm = "final_layer_norm",
};

const struct module_names falcon_names = {
	.of =
		{
			[MODULE_MODEL] = "transformer",
			[MODULE_EMBEDDING] = "word_embeddings",
			[MODULE_LAYERS] = "h",
			[MODULE_ATTENTION] = "self_attention",
			[MODULE_QKV] = "query_key_value",
			[MODULE_ATTENTION_OUTPUT] = "dense",
			[MODULE_UP] = "dense_h_to_4h",
			[MODULE_DOWN] = "dense_4h_to_h",
		},
	.second_norm = "post_attention_layernorm",
	.final_norm = "ln_f",
};

const struct module_names bloom_names = {
	.of =
		{
			[MODULE_MODEL] = "transformer",
			[MODULE_EMBEDDING] = "word_embeddings",
			[MODULE_EMBEDDING_NORM] = "word_embeddings_layernorm",
			[MODULE_LAYERS] = "h",
			[MODULE_ATTENTION] = "self_attention",
			[MODULE_QKV] = "query_key_value",
			[MODULE_ATTENTION_OUTPUT] = "dense",
			[MODULE_UP] = "dense_h_to_4h",
			[MODULE_DOWN] = "dense_4h_to_h",
		},
	.second_norm = "post_attention_layernorm",
	.final_norm = "ln_f",
};

const struct module_names gptj_names = {
	.of =
		{
			[MODULE_MODEL] = "transformer",
			[MODULE_EMBEDDING] = "wte",
			[MODULE_LAYERS] = "h",
			[MODULE_NORM] = "ln_1",
			[MODULE_ATTENTION] = "attn",
			[MODULE_ATTENTION_OUTPUT] = "out_proj",
			[MODULE_UP] = "fc_in",
			[MODULE_DOWN] = "fc_out",
		},
	.final_norm = "ln_f",
};

const struct module_names opt_names = {
	.of =
		{
			[MODULE_MODEL] = "model.decoder",
			[MODULE_NORM] = "self_attn_layer_norm",
			[MODULE_ATTENTION_OUTPUT] = "out_proj",
			[MODULE_UP] = "fc1",
			[MODULE_DOWN] = "fc2",
		},
	.second_norm = "final_layer_norm",
	.final_norm = "final_layer_norm",
};

const struct module_names phi_names = {
	.of =
		{
			[MODULE_ATTENTION_OUTPUT] = "dense",
			[MODULE_UP] = "fc1",
			[MODULE_DOWN] = "fc2",
		},
	.final_norm = "final_layernorm",
};

const struct module_names mixtral_names = {
	.of =
		{
			[MODULE_MLP] = "block_sparse_moe",
			[MODULE_EXPERTS_GATE] = "w1",
			[MODULE_EXPERTS_UP] = "w3",
			[MODULE_EXPERTS_DOWN] = "w2",
		},
	.second_norm = "post_attention_layernorm",
	.final_norm = "norm",
};

const struct module_names granite_moe_names = {
	.of =
		{
			[MODULE_MLP] = "block_sparse_moe",
			[MODULE_ROUTER] = "router.layer",
			[MODULE_EXPERTS_GATE] = "input_linear.gate",
			[MODULE_EXPERTS_UP] = "input_linear.up",
			[MODULE_EXPERTS_DOWN] = "output_linear",
		},
	.second_norm = "post_attention_layernorm",
	.final_norm = "norm",
};

const struct module_names qwen2_moe_names = {
	.of = {[MODULE_SHARED_EXPERT] = "shared_expert"},
	.second_norm = "post_attention_layernorm",
	.final_norm = "norm",
};

const struct module_names llama4_names = {
	.of =
		{
			[MODULE_MLP] = "feed_forward",
			[MODULE_ROUTER] = "router",
			[MODULE_SHARED_EXPERT] = "shared_expert",
		},
	.second_norm = "post_attention_layernorm",
	.final_norm = "norm",
};

const struct module_names gpt_oss_names = {
	.of = {[MODULE_ROUTER] = "router"},
	.second_norm = "post_attention_layernorm",
	.final_norm = "norm",
};

const struct module_names starcoder2_names = {
	.of = {[MODULE_UP] = "c_fc", [MODULE_DOWN] = "c_proj"},
	.second_norm = "post_attention_layernorm",
	.final_norm = "norm",
};

const struct module_names olmo2_names = {
	.of = {[MODULE_NORM] = "post_attention_layernorm"},
	.second_norm = "post_feedforward_layernorm",
	.final_norm = "norm",
};

const struct module_names gemma2_names = {
	.second_norm = "post_attention_layernorm",
	.third_norm = "pre_feedforward_layernorm",
	.fourth_norm = "post_feedforward_layernorm",
	.final_norm = "norm",
};

const struct module_names glm4_names = {
	.second_norm = "post_self_attn_layernorm",
	.third_norm = "post_attention_layernorm",
	.fourth_norm = "post_mlp_layernorm",
	.final_norm = "norm",
};

/* The decoder's blocks number their layers 0, 1, 2: the MLP is layer 2 there and 1 in the encoder,
 * which tree.c writes. */
const struct module_names t5_names = {
	.of =
		{
			[MODULE_MODEL] = "encoder",
			[MODULE_EMBEDDING] = "shared",
			[MODULE_LAYERS] = "block",
			[MODULE_NORM] = "layer.0.layer_norm",
			[MODULE_ATTENTION] = "layer.0.SelfAttention",
			[MODULE_CROSS_ATTENTION] = "layer.1.EncDecAttention",
			[MODULE_QUERY] = "q",
			[MODULE_KEY] = "k",
			[MODULE_VALUE] = "v",
			[MODULE_ATTENTION_OUTPUT] = "o",
			[MODULE_GATE] = "wi_0",
			[MODULE_UP] = "wi_1",
			[MODULE_DOWN] = "wo",
		},
	.second_norm = "layer.1.layer_norm",
	.third_norm = "layer.2.layer_norm",
	.final_norm = "final_layer_norm",
};

const char *module_name_of(const struct module_names *names, enum module_kind kind)
{
	return names->of[kind] != NULL ? names->of[kind] : llama_names.of[kind];
}
