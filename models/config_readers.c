/* What each family's config.json says beyond its sizes: small readers, and the lists of them that
 * the rows in families.c name. */
#include <string.h>

#include "models/config.h"
#include "models/families.h"
#include "models/widths.h"

/* --- shared by many --------------------------------------------------------------------------- */

/* transformers 5 moved it into rope_parameters, by kind of layer in Gemma's. */
static bool rope(const struct node *config, struct architecture *a, struct error *error)
{
	const struct node *parameters = config_get(config, "rope_parameters");

	return config_double(parameters, "rope_theta", &a->rope_theta, error) &&
	       config_double(config_get(parameters, "full_attention"), "rope_theta", &a->rope_theta,
		       error) &&
	       config_double(config, "rotary_emb_base", &a->rope_theta, error) &&
	       config_double(config, "rope_theta", &a->rope_theta, error);
}

static bool epsilon(const struct node *config, struct architecture *a, struct error *error)
{
	const struct node *node =
		config_first(config, KEYS("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon",
					     "norm_epsilon", "norm_eps"));

	return node == NULL || node_double(node, &a->norm_epsilon, error);
}

static bool ffn_required(const struct node *config, struct architecture *a, struct error *error)
{
	return a->ffn > 0 || config_missing(config, "intermediate_size", error);
}

static bool ffn_4h(const struct node *config, struct architecture *a, struct error *error)
{
	(void)config;
	(void)error;
	if (a->ffn == 0)
		a->ffn = saturated_mul(4, a->hidden);
	return true;
}

/* The activation between two or three matrices: what it costs, and whether backward needs its
 * input, does not depend on which smooth function it is. relu2 keeps two tensors as they do: its
 * square needs the relu's result, the matrix behind it the square. */
static bool activation(const struct node *config, struct architecture *a, struct error *error)
{
	static const char *const gated[] = {
		"silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", NULL};
	static const char *const plain[] = {
		"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu", "relu", "relu2", NULL};
	static const char *const keys[] = {
		"hidden_activation", "hidden_act", "activation_function", NULL};
	bool gate = architecture_is_gated(a);
	const char *name = NULL;

	for (int i = 0; keys[i] != NULL && name == NULL; i++)
		if (!config_string(config, keys[i], gate ? gated : plain, &name, error))
			return false;
	if (name == NULL)
		return true;
	a->gelu_tanh = strncmp(name, "gelu", 4) == 0 && strcmp(name, "gelu") != 0;
	if (gate)
		a->mlp = name[0] == 's' ? MLP_SWIGLU : MLP_GEGLU;
	else
		a->mlp = strcmp(name, "relu") == 0 ? MLP_RELU : MLP_GELU;
	return true;
}

static bool all_biases(const struct node *config, const char *key, bool value,
	struct architecture *a, struct error *error)
{
	if (!config_bool(config, key, &value, error))
		return false;
	a->qkv_bias = a->output_bias = a->mlp_bias = value;
	return true;
}

/* On q, k, v and the output; the MLP has its own key. */
static bool biases(const struct node *config, struct architecture *a, struct error *error)
{
	bool attention = false;

	if (!config_bool(config, "attention_bias", &attention, error) ||
		!config_bool(config, "mlp_bias", &a->mlp_bias, error))
		return false;
	a->qkv_bias = a->output_bias = attention;
	return true;
}

/* GLM, Helium, Seed-OSS: attention_bias is of q, k and v, the output has its own key. */
static bool separate_biases(const struct node *config, struct architecture *a, struct error *error)
{
	return config_bool(config, "attention_bias", &a->qkv_bias, error) &&
	       config_bool(config, "attention_out_bias", &a->output_bias, error) &&
	       config_bool(config, "mlp_bias", &a->mlp_bias, error);
}

/* --- mixtures of experts ---------------------------------------------------------------------- */

/* One group is none. */
static bool expert_groups(const struct node *config, struct architecture *a, struct error *error)
{
	if (!config_int(config, KEYS("n_group"), false, &a->expert_groups, error) ||
		!config_int(config, KEYS("topk_group"), false, &a->groups_per_token, error))
		return false;
	if (a->expert_groups <= 1 || a->groups_per_token == a->expert_groups)
		a->expert_groups = a->groups_per_token = 0;
	return true;
}

static bool experts(const struct node *config, struct architecture *a, struct error *error)
{
	static const char *const counts[] = {
		"num_local_experts", "num_experts", "n_routed_experts", NULL};
	static const char *const chosen[] = {"num_experts_per_tok", "experts_per_token", NULL};

	if (a->expert_ffn == 0)
		a->expert_ffn = a->ffn;
	return expert_groups(config, a, error) &&
	       config_int(config, counts, true, &a->experts, error) &&
	       config_int(config, chosen, true, &a->experts_per_token, error) &&
	       config_int(config, KEYS("moe_intermediate_size"), false, &a->expert_ffn, error);
}

/* Only lists that start the model, 0 to n - 1, are known to exist. */
static bool dense_list(const struct node *config, struct architecture *a, struct error *error)
{
	const struct node *list = config_get(config, "mlp_only_layers");

	for (int i = 0; list != NULL && i < list->n_children; i++) {
		int64_t layer;

		if (!node_int(list->children[i], &layer, error))
			return false;
		if (layer != i)
			return node_error(list->children[i], error,
				"expected the first layers (0, 1, ...), which may be dense, got %s",
				list->children[i]->text);
		a->dense_layers = i + 1;
	}
	return config_int(config, KEYS("decoder_sparse_step"), false, &a->moe_every, error);
}

static bool first_dense(const struct node *config, struct architecture *a, struct error *error)
{
	int64_t shared = 0, every = 1;

	if (!config_int(config, KEYS("first_k_dense_replace"), false, &a->dense_layers, error) ||
		!config_int(config, KEYS("moe_layer_freq"), false, &every, error) ||
		!config_int(config, KEYS("n_shared_experts"), false, &shared, error))
		return false;
	if (every != 1)
		return node_error(config_get(config, "moe_layer_freq"), error,
			"expected 1, got %s, which is not supported",
			config_get(config, "moe_layer_freq")->text);
	a->shared_ffn = saturated_mul(shared, a->expert_ffn);
	return true;
}

static bool shared_expert(const struct node *config, struct architecture *a, struct error *error)
{
	return config_int(
		config, KEYS("shared_expert_intermediate_size"), true, &a->shared_ffn, error);
}

/* --- one family each -------------------------------------------------------------------------- */

static bool gpt2_rest(const struct node *config, struct architecture *a, struct error *error)
{
	(void)a;
	return config_refuse_true(config, "add_cross_attention", error);
}

static bool bigcode_rest(const struct node *config, struct architecture *a, struct error *error)
{
	bool multi_query = true;

	if (!config_bool(config, "multi_query", &multi_query, error))
		return false;
	a->kv_heads = multi_query ? 1 : a->heads;
	return true;
}

static bool neox_rest(const struct node *config, struct architecture *a, struct error *error)
{
	bool parallel = true, bias = true;

	if (!config_bool(config, "use_parallel_residual", &parallel, error) ||
		!config_bool(config, "attention_bias", &bias, error))
		return false;
	a->block = parallel ? BLOCK_PARALLEL_NORMS : BLOCK_PRE_NORM;
	a->qkv_bias = a->output_bias = bias;
	return true;
}

static bool falcon_heads(
	const struct node *config, bool new, struct architecture *a, struct error *error)
{
	bool multi_query = true;

	if (!config_bool(config, "multi_query", &multi_query, error))
		return false;
	/* num_kv_heads, which the sizes have read, counts in the new architecture only. */
	if (!new)
		a->kv_heads = multi_query ? 1 : a->heads;
	return true;
}

static bool falcon_rest(const struct node *config, struct architecture *a, struct error *error)
{
	bool new = false, parallel = true, alibi = false;
	int64_t norms = 2;

	if (!config_bool(config, "new_decoder_architecture", &new, error) ||
		!config_bool(config, "parallel_attn", &parallel, error) ||
		!config_bool(config, "alibi", &alibi, error) ||
		!config_int(config, KEYS("num_ln_in_parallel_attn"), false, &norms, error) ||
		!falcon_heads(config, new, a, error))
		return false;
	if (alibi)
		a->positions = POSITIONS_ALIBI;
	a->block = new &&norms == 2  ? BLOCK_PARALLEL_NORMS
		   : new || parallel ? BLOCK_PARALLEL
				     : BLOCK_PRE_NORM;
	return all_biases(config, "bias", false, a, error);
}

static bool opt_rest(const struct node *config, struct architecture *a, struct error *error)
{
	bool before = true, no_final = false;

	if (!config_bool(config, "do_layer_norm_before", &before, error) ||
		!config_bool(config, "_remove_final_layer_norm", &no_final, error) ||
		!config_int(config, KEYS("word_embed_proj_dim"), false, &a->embedding_width, error))
		return false;
	if (!before)
		a->block = BLOCK_POST_NORM;
	a->no_final_norm = !before || no_final;
	return all_biases(config, "enable_bias", true, a, error);
}

static bool phi_rest(const struct node *config, struct architecture *a, struct error *error)
{
	(void)a;
	return config_refuse_true(config, "qk_layernorm", error);
}

static bool stablelm_rest(const struct node *config, struct architecture *a, struct error *error)
{
	bool parallel = false;

	if (!config_bool(config, "use_qkv_bias", &a->qkv_bias, error) ||
		!config_bool(config, "qk_layernorm", &a->qk_norm, error) ||
		!config_bool(config, "use_parallel_residual", &parallel, error))
		return false;
	a->qk_norm_wide = a->qk_norm;
	a->block = parallel ? BLOCK_PARALLEL : BLOCK_PRE_NORM;
	return true;
}

static bool starcoder2_rest(const struct node *config, struct architecture *a, struct error *error)
{
	static const char *const norms[] = {"layer_norm", NULL};
	static const char *const mlps[] = {"default", NULL};
	const char *ignored = NULL;

	return config_string(config, "norm_type", norms, &ignored, error) &&
	       config_string(config, "mlp_type", mlps, &ignored, error) &&
	       all_biases(config, "use_bias", true, a, error);
}

static bool cohere_rest(const struct node *config, struct architecture *a, struct error *error)
{
	if (!config_bool(config, "use_qk_norm", &a->qk_norm, error))
		return false;
	a->qk_norm_wide = a->qk_norm; /* a weight for every head */
	return biases(config, a, error);
}

/* GLM-4's attention_bias is on q, k and v only. */
static bool glm_rest(const struct node *config, struct architecture *a, struct error *error)
{
	return config_bool(config, "attention_bias", &a->qkv_bias, error) &&
	       config_bool(config, "use_qk_norm", &a->qk_norm, error);
}

static bool ernie_rest(const struct node *config, struct architecture *a, struct error *error)
{
	return all_biases(config, "use_bias", false, a, error);
}

/* Of GLM-4.5, whose files may leave it out: it rounds down there. */
static bool head_dim_floor(const struct node *config, struct architecture *a, struct error *error)
{
	(void)config;
	(void)error;
	if (a->head_dim == 0 && a->heads > 0)
		a->head_dim = a->hidden / a->heads;
	return true;
}

/* Routed experts and a shared one, all as wide as the file's MLP; one number or one a block. */
static bool hunyuan_experts(const struct node *config, struct architecture *a, struct error *error)
{
	const struct node *chosen = config_get(config, "moe_topk");

	if (chosen == NULL)
		return config_missing(config, "moe_topk", error);
	if (chosen->kind == NODE_LIST && chosen->n_children > 0)
		chosen = chosen->children[0];
	a->expert_ffn = a->shared_ffn = a->ffn;
	return node_int(chosen, &a->experts_per_token, error) &&
	       config_int(config, KEYS("num_experts"), true, &a->experts, error);
}

static bool gpt_oss_rest(const struct node *config, struct architecture *a, struct error *error)
{
	bool bias = true;

	if (!config_bool(config, "attention_bias", &bias, error))
		return false;
	a->qkv_bias = a->output_bias = bias;
	return true;
}

static bool phimoe_bias(const struct node *config, struct architecture *a, struct error *error)
{
	return config_bool(config, "lm_head_bias", &a->head_bias, error);
}

/* The list of blocks with experts repeats the step. */
static bool llama4_list(const struct node *config, struct architecture *a, struct error *error)
{
	const struct node *list = config_get(config, "moe_layers");
	int64_t layer, every = max_i64(a->moe_every, 1);

	for (int i = 0; list != NULL && i < list->n_children; i++) {
		if (!node_int(list->children[i], &layer, error))
			return false;
		if (layer != (i + 1) * every - 1)
			return node_error(list->children[i], error,
				"expected every layer of interleave_moe_layer_step, got %s",
				list->children[i]->text);
	}
	return true;
}

static bool llama4_rest(const struct node *config, struct architecture *a, struct error *error)
{
	a->expert_ffn = a->shared_ffn = a->ffn;
	return config_int(config, KEYS("intermediate_size_mlp"), false, &a->ffn, error) &&
	       config_int(config, KEYS("interleave_moe_layer_step"), false, &a->moe_every, error) &&
	       experts(config, a, error) && llama4_list(config, a, error);
}

/* head_dim is the part without positions and the rotated part together. */
static bool latent(const struct node *config, struct architecture *a, struct error *error)
{
	int64_t without = 0;

	if (!config_int(config, KEYS("q_lora_rank"), false, &a->query_rank, error) ||
		!config_int(config, KEYS("kv_lora_rank"), true, &a->kv_rank, error) ||
		!config_int(config, KEYS("qk_nope_head_dim"), true, &without, error) ||
		!config_int(config, KEYS("qk_rope_head_dim"), true, &a->rope_dim, error) ||
		!config_int(config, KEYS("v_head_dim"), true, &a->value_dim, error))
		return false;
	a->head_dim = saturated_add(without, a->rope_dim);
	a->kv_heads = a->heads;
	return true;
}

/* "relu", "gated-gelu", ... */
static bool t5_ffn(const struct node *config, struct architecture *a, struct error *error)
{
	static const char *const known[] = {"relu", "gated-gelu", "gated-silu", NULL};
	const char *name = known[0];

	if (!config_string(config, "feed_forward_proj", known, &name, error))
		return false;
	a->mlp = name == known[0] || strcmp(name, "relu") == 0 ? MLP_RELU
		 : strcmp(name, "gated-silu") == 0             ? MLP_SWIGLU
							       : MLP_GEGLU;
	a->gelu_tanh = a->mlp == MLP_GEGLU;
	return true;
}

static bool t5_rest(const struct node *config, struct architecture *a, struct error *error)
{
	int64_t decoder = a->layers;

	a->relative_buckets = 32;
	if (!config_int(config, KEYS("num_decoder_layers"), false, &decoder, error) ||
		!config_int(config, KEYS("relative_attention_num_buckets"), false,
			&a->relative_buckets, error))
		return false;
	a->encoder_layers = a->layers;
	a->layers = saturated_add(a->layers, decoder);
	return true;
}

/* --- the lists -------------------------------------------------------------------------------- */

#define READERS(name, ...) config_reader *const read_##name[] = {__VA_ARGS__, NULL}
#define LLAMA              rope, epsilon, activation

READERS(llama, LLAMA, ffn_required, biases);
/* Qwen2 has biases on q, k, v and on nothing else, whatever the file says. */
READERS(qwen2, LLAMA, ffn_required);
READERS(gemma, LLAMA, ffn_required, biases);
READERS(stablelm, LLAMA, ffn_required, stablelm_rest);
READERS(cohere, LLAMA, ffn_required, cohere_rest);
READERS(glm, LLAMA, ffn_required, glm_rest);
READERS(separate, LLAMA, ffn_required, separate_biases);
READERS(ernie, LLAMA, ffn_required, ernie_rest);
READERS(gpt_neo, epsilon, activation, ffn_4h);
READERS(gpt2, epsilon, activation, ffn_4h, gpt2_rest);
READERS(bigcode, epsilon, activation, ffn_4h, bigcode_rest);
READERS(bloom, epsilon, ffn_4h);
READERS(gptj, epsilon, activation, ffn_4h);
READERS(neox, LLAMA, ffn_required, neox_rest);
READERS(falcon, rope, epsilon, activation, ffn_4h, falcon_rest);
READERS(opt, activation, ffn_4h, opt_rest);
READERS(phi, LLAMA, ffn_4h, phi_rest);
READERS(starcoder2, LLAMA, ffn_required, starcoder2_rest);
READERS(mpt, epsilon, read_mpt_rest);
READERS(t5, epsilon, t5_ffn, t5_rest);
READERS(mixtral, LLAMA, ffn_required, biases, experts, phimoe_bias);
READERS(olmoe, LLAMA, ffn_required, biases, experts);
READERS(qwen2_moe, LLAMA, ffn_required, experts, dense_list, shared_expert);
READERS(qwen3_moe, LLAMA, ffn_required, biases, experts, dense_list);
READERS(deepseek, LLAMA, ffn_required, biases, latent, experts, first_dense);
READERS(hunyuan_moe, LLAMA, ffn_required, biases, hunyuan_experts);
READERS(dbrx, read_dbrx_rest);
READERS(glm_moe, LLAMA, ffn_required, head_dim_floor, glm_rest, experts, first_dense);
READERS(gpt_oss, LLAMA, ffn_required, gpt_oss_rest, experts);
READERS(llama4, LLAMA, ffn_required, biases, llama4_rest);
