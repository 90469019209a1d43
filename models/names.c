/* How Hugging Face calls the modules of each layout. What a layout does not name is called as in
 * Llama. The names are what state dicts and safetensors files have, so that a reader finds them
 * again; containers that only hold others are part of a name with dots. */
#include "models/families.h"

#define N(kind, name) [MODULE_##kind] = name
#define LLAMA_NORMS   .second_norm = "post_attention_layernorm", .final_norm = "norm"

const struct module_names llama_names = {
	.of = {N(MODEL, "model"), N(EMBEDDING, "embed_tokens"),
		N(POSITION_EMBEDDING, "embed_positions"), N(EMBEDDING_PROJECTION, "project_in"),
		N(HEAD_PROJECTION, "project_out"), N(NEXT_PROJECTION, "eh_proj"),
		N(EMBEDDING_NORM, "embed_norm"), N(LAYERS, "layers"), N(NORM, "input_layernorm"),
		N(ATTENTION, "self_attn"), N(CROSS_ATTENTION, "cross_attn"),
		N(RELATIVE_BIAS, "relative_attention_bias"), N(QKV, "qkv_proj"),
		N(QUERY_DOWN, "q_a_proj"), N(QUERY_DOWN_NORM, "q_a_layernorm"), N(QUERY, "q_proj"),
		N(KEY, "k_proj"), N(VALUE, "v_proj"), N(KV_DOWN, "kv_a_proj_with_mqa"),
		N(KV_DOWN_NORM, "kv_a_layernorm"), N(KV_UP, "kv_b_proj"), N(QUERY_NORM, "q_norm"),
		N(KEY_NORM, "k_norm"), N(ATTENTION_CORE, "core"), N(ATTENTION_OUTPUT, "o_proj"),
		N(MLP, "mlp"), N(GATE, "gate_proj"), N(UP, "up_proj"), N(GATE_UP, "gate_up_proj"),
		N(ACTIVATION, "act"), N(DOWN, "down_proj"), N(ROUTER, "gate"),
		N(EXPERTS, "experts"), N(EXPERTS_GATE, "gate_proj"), N(EXPERTS_UP, "up_proj"),
		N(EXPERTS_ACTIVATION, "act"), N(EXPERTS_DOWN, "down_proj"),
		N(SHARED_EXPERT, "shared_experts"), N(SHARED_GATE, "gate_proj"),
		N(SHARED_UP, "up_proj"), N(SHARED_ACTIVATION, "act"), N(SHARED_DOWN, "down_proj"),
		N(SHARED_WEIGHT, "shared_expert_gate"), N(HEAD, "lm_head")},
	.second_norm = "post_attention_layernorm",
	.third_norm = "post_feedforward_layernorm",
	.fourth_norm = "post_feedforward_layernorm",
	.final_norm = "norm",
};

const struct module_names gpt2_names = {
	.of = {N(MODEL, "transformer"), N(EMBEDDING, "wte"), N(POSITION_EMBEDDING, "wpe"),
		N(LAYERS, "h"), N(NORM, "ln_1"), N(ATTENTION, "attn"), N(QKV, "c_attn"),
		N(QUERY, "q_attn"), N(KEY, "k_attn"), N(VALUE, "v_attn"),
		N(ATTENTION_OUTPUT, "c_proj"), N(GATE, "c_gate"), N(UP, "c_fc"), N(DOWN, "c_proj")},
	.second_norm = "ln_2",
	.final_norm = "ln_f",
};

const struct module_names mpt_names = {
	.of = {N(MODEL, "transformer"), N(EMBEDDING, "wte"), N(POSITION_EMBEDDING, "wpe"),
		N(LAYERS, "blocks"), N(NORM, "norm_1"), N(ATTENTION, "attn"), N(QKV, "Wqkv"),
		N(QUERY, "Wq"), N(KEY, "Wk"), N(VALUE, "Wv"), N(ATTENTION_OUTPUT, "out_proj"),
		N(MLP, "ffn")},
	.second_norm = "norm_2",
	.final_norm = "norm_f",
};

const struct module_names neox_names = {
	.of = {N(MODEL, "gpt_neox"), N(EMBEDDING, "embed_in"), N(ATTENTION, "attention"),
		N(QKV, "query_key_value"), N(ATTENTION_OUTPUT, "dense"), N(UP, "dense_h_to_4h"),
		N(DOWN, "dense_4h_to_h"), N(HEAD, "embed_out")},
	.second_norm = "post_attention_layernorm",
	.final_norm = "final_layer_norm",
};

const struct module_names falcon_names = {
	.of = {N(MODEL, "transformer"), N(EMBEDDING, "word_embeddings"), N(LAYERS, "h"),
		N(ATTENTION, "self_attention"), N(QKV, "query_key_value"),
		N(ATTENTION_OUTPUT, "dense"), N(UP, "dense_h_to_4h"), N(DOWN, "dense_4h_to_h")},
	.second_norm = "post_attention_layernorm",
	.final_norm = "ln_f",
};

const struct module_names bloom_names = {
	.of = {N(MODEL, "transformer"), N(EMBEDDING, "word_embeddings"),
		N(EMBEDDING_NORM, "word_embeddings_layernorm"), N(LAYERS, "h"),
		N(ATTENTION, "self_attention"), N(QKV, "query_key_value"),
		N(ATTENTION_OUTPUT, "dense"), N(UP, "dense_h_to_4h"), N(DOWN, "dense_4h_to_h")},
	.second_norm = "post_attention_layernorm",
	.final_norm = "ln_f",
};

const struct module_names gptj_names = {
	.of = {N(MODEL, "transformer"), N(EMBEDDING, "wte"), N(LAYERS, "h"), N(NORM, "ln_1"),
		N(ATTENTION, "attn"), N(ATTENTION_OUTPUT, "out_proj"), N(UP, "fc_in"),
		N(DOWN, "fc_out")},
	.final_norm = "ln_f",
};

const struct module_names codegen_names = {
	.of = {N(MODEL, "transformer"), N(EMBEDDING, "wte"), N(LAYERS, "h"), N(NORM, "ln_1"),
		N(ATTENTION, "attn"), N(ATTENTION_OUTPUT, "out_proj"), N(UP, "fc_in"),
		N(DOWN, "fc_out")},
	.final_norm = "ln_f",
};

const struct module_names dbrx_names = {
	.of = {N(MODEL, "transformer"), N(EMBEDDING, "wte"), N(LAYERS, "blocks"),
		N(NORM, "norm_attn_norm.norm_1"), N(ATTENTION, "norm_attn_norm.attn"),
		N(QKV, "Wqkv"), N(ATTENTION_OUTPUT, "out_proj"), N(MLP, "ffn"),
		N(ROUTER, "router.layer"), N(EXPERTS, "experts.mlp"), N(EXPERTS_GATE, "w1"),
		N(EXPERTS_UP, "v1"), N(EXPERTS_DOWN, "w2")},
	.second_norm = "norm_attn_norm.norm_2",
	.final_norm = "norm_f",
};

const struct module_names gpt_neo_names = {
	.of = {N(MODEL, "transformer"), N(EMBEDDING, "wte"), N(POSITION_EMBEDDING, "wpe"),
		N(LAYERS, "h"), N(NORM, "ln_1"), N(ATTENTION, "attn.attention"),
		N(ATTENTION_OUTPUT, "out_proj"), N(UP, "c_fc"), N(DOWN, "c_proj")},
	.second_norm = "ln_2",
	.final_norm = "ln_f",
};

const struct module_names hunyuan_names = {
	.of = {N(QUERY_NORM, "query_layernorm"), N(KEY_NORM, "key_layernorm"), N(ROUTER, "gate.wg"),
		N(SHARED_EXPERT, "shared_mlp")},
	LLAMA_NORMS,
};

const struct module_names opt_names = {
	.of = {N(MODEL, "model.decoder"), N(NORM, "self_attn_layer_norm"),
		N(ATTENTION_OUTPUT, "out_proj"), N(UP, "fc1"), N(DOWN, "fc2")},
	.second_norm = "final_layer_norm",
	.final_norm = "final_layer_norm",
};

const struct module_names phi_names = {
	.of = {N(ATTENTION_OUTPUT, "dense"), N(UP, "fc1"), N(DOWN, "fc2")},
	.final_norm = "final_layernorm",
};

const struct module_names mixtral_names = {
	.of = {N(MLP, "block_sparse_moe"), N(EXPERTS_GATE, "w1"), N(EXPERTS_UP, "w3"),
		N(EXPERTS_DOWN, "w2")},
	LLAMA_NORMS,
};

const struct module_names granite_moe_names = {
	.of = {N(MLP, "block_sparse_moe"), N(ROUTER, "router.layer"),
		N(EXPERTS_GATE, "input_linear.gate"), N(EXPERTS_UP, "input_linear.up"),
		N(EXPERTS_DOWN, "output_linear")},
	LLAMA_NORMS,
};

const struct module_names qwen2_moe_names = {
	.of = {N(SHARED_EXPERT, "shared_expert")},
	LLAMA_NORMS,
};

const struct module_names llama4_names = {
	.of = {N(MLP, "feed_forward"), N(ROUTER, "router"), N(SHARED_EXPERT, "shared_expert")},
	LLAMA_NORMS,
};

const struct module_names gpt_oss_names = {
	.of = {N(ROUTER, "router")},
	LLAMA_NORMS,
};

const struct module_names starcoder2_names = {
	.of = {N(UP, "c_fc"), N(DOWN, "c_proj")},
	LLAMA_NORMS,
};

const struct module_names olmo2_names = {
	.of = {N(NORM, "post_attention_layernorm")},
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
	.of = {N(MODEL, "encoder"), N(EMBEDDING, "shared"), N(LAYERS, "block"),
		N(NORM, "layer.0.layer_norm"), N(ATTENTION, "layer.0.SelfAttention"),
		N(CROSS_ATTENTION, "layer.1.EncDecAttention"), N(QUERY, "q"), N(KEY, "k"),
		N(VALUE, "v"), N(ATTENTION_OUTPUT, "o"), N(GATE, "wi_0"), N(UP, "wi_1"),
		N(DOWN, "wo")},
	.second_norm = "layer.1.layer_norm",
	.third_norm = "layer.2.layer_norm",
	.final_norm = "final_layer_norm",
};

const char *module_name_of(const struct module_names *names, enum module_kind kind)
{
	return names->of[kind] != NULL ? names->of[kind] : llama_names.of[kind];
}
