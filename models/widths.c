/* The sizes that leaves are made of, and the questions about an architecture that follow. */
#include "models/widths.h"

static int64_t attention_width(const struct architecture *a)
{
	return a->heads * (a->value_dim > 0 ? a->value_dim : a->head_dim);
}

static int64_t value_width(const struct architecture *a)
{
	return a->value_dim > 0 ? a->heads * a->value_dim : a->kv_heads * a->head_dim;
}

static int64_t rotated_width(const struct architecture *a)
{
	return a->kv_rank > 0 ? (a->heads + 1) * a->rope_dim
			      : (a->heads + a->kv_heads) * a->head_dim;
}

/* All blocks have experts, or some have the dense width. */
static int64_t widest_ffn(const struct architecture *a)
{
	int64_t routed = a->experts_per_token * a->expert_ffn + a->shared_ffn;
	bool dense = a->experts == 0 || a->dense_layers > 0 || a->moe_every > 1;

	return max_i64(routed, dense ? a->ffn : 0);
}

int64_t architecture_width(const struct architecture *a, enum width width)
{
	int64_t query = a->heads * a->head_dim, key = a->kv_heads * a->head_dim;
	const int64_t widths[WIDTH_COUNT] = {
		[WIDTH_ONE] = 1,
		[WIDTH_HIDDEN] = a->hidden,
		[WIDTH_EMBEDDING] = a->embedding_width > 0 ? a->embedding_width : a->hidden,
		[WIDTH_QUERY] = query,
		[WIDTH_QUERY_INPUT] = a->query_rank > 0 ? a->query_rank : a->hidden,
		[WIDTH_KEY] = key,
		[WIDTH_VALUE] = value_width(a),
		[WIDTH_ATTENTION] = attention_width(a),
		[WIDTH_QKV] = query + key + value_width(a),
		[WIDTH_ROTATED] = rotated_width(a),
		[WIDTH_QUERY_RANK] = a->query_rank,
		[WIDTH_KV_RANK] = a->kv_rank,
		[WIDTH_KV_DOWN] = a->kv_rank + a->rope_dim,
		[WIDTH_KV_UP] = a->heads * (a->head_dim - a->rope_dim + a->value_dim),
		[WIDTH_FFN] = a->ffn,
		[WIDTH_GATE_UP] = 2 * a->ffn,
		[WIDTH_VOCAB] = a->vocab,
		[WIDTH_HEADS] = a->heads,
		[WIDTH_KV_HEADS] = a->kv_heads,
		[WIDTH_NORM_STATISTICS] = a->norm == NORM_RMSNORM ? 1 : 2,
		[WIDTH_QUERY_STATISTICS] = a->qk_norm_wide ? 1 : a->heads,
		[WIDTH_KEY_STATISTICS] = a->qk_norm_wide ? 1 : a->kv_heads,
		[WIDTH_EXPERTS] = a->experts,
		[WIDTH_EXPERT_FFN] = a->expert_ffn,
		[WIDTH_ROUTED_HIDDEN] = a->experts_per_token * a->hidden,
		[WIDTH_ROUTED_FFN] = a->experts_per_token * a->expert_ffn,
		[WIDTH_SHARED_FFN] = a->shared_ffn,
		[WIDTH_WIDEST_FFN] = widest_ffn(a),
		[WIDTH_WIDEST_ROUTED] = a->experts_per_token * a->hidden,
	};
	return widths[width];
}

bool architecture_is_gated(const struct architecture *architecture)
{
	return architecture->mlp == MLP_SWIGLU || architecture->mlp == MLP_GEGLU;
}

bool architecture_has_experts(const struct architecture *a, int64_t layer)
{
	return a->experts > 0 && layer >= a->dense_layers &&
	       (layer + 1) % max_i64(a->moe_every, 1) == 0;
}

const char *architecture_not_trainable(const struct architecture *a)
{
	if (a->experts > 0)
		return "a mixture of experts";
	if (a->encoder_layers > 0 || a->positions == POSITIONS_RELATIVE)
		return "an encoder and cross-attention";
	if (a->kv_rank > 0)
		return "latent attention";
	if (a->block != BLOCK_PRE_NORM || a->norm == NORM_PLAIN || a->no_final_norm)
		return "this order or kind of norms";
	if (a->mlp == MLP_GEGLU || a->mlp == MLP_RELU || a->fused_gate_up)
		return "this MLP (geglu, relu or a fused gate)";
	if (a->qk_norm_wide || (a->qk_norm && a->norm != NORM_RMSNORM) || a->attention_sinks)
		return "this attention (wide q and k norms, sinks)";
	if (a->embedding_norm || a->embedding_width > 0 || a->head_bias || a->position_extra > 0)
		return "this embedding or head";
	/* Such as rotating a part of each head only, or scales between the parts. */
	if (a->family > FAMILY_QWEN3)
		return "the details of this family";
	return NULL;
}
