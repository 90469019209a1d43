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

int64_t rows_of_width(const struct row_counts *rows, enum width width)
{
	if (width == WIDTH_STREAM || width == WIDTH_STREAM_STATISTICS)
		return rows->stream;
	if (width == WIDTH_EXPERTS || width == WIDTH_ROUTER_HIDDEN)
		return rows->routed;
	if (width == WIDTH_GATHERED_HIDDEN)
		return rows->gathered;
	if (width == WIDTH_SENT_HIDDEN)
		return rows->sent;
	if (width == WIDTH_ROUTED_HIDDEN || width == WIDTH_ROUTED_FFN)
		return rows->received;
	return rows->tokens;
}

/* A switch where a table would do: inner loops ask, and a table would compute every width. */
int64_t architecture_width(const struct architecture *a, enum width width)
{
	switch (width) {
	case WIDTH_ONE:
		return 1;
	case WIDTH_HIDDEN:
	case WIDTH_STREAM:
	case WIDTH_INPUT:
	case WIDTH_ROUTER_HIDDEN:
	case WIDTH_GATHERED_HIDDEN:
	case WIDTH_SENT_HIDDEN:
	case WIDTH_ROUTED_HIDDEN:
		return a->hidden;
	case WIDTH_TWO_HIDDEN:
		return 2 * a->hidden;
	case WIDTH_EMBEDDING:
		return a->embedding_width > 0 ? a->embedding_width : a->hidden;
	case WIDTH_QUERY:
		return a->heads * a->head_dim;
	case WIDTH_QUERY_INPUT:
		return a->query_rank > 0 ? a->query_rank : a->hidden;
	case WIDTH_KEY:
		return a->kv_heads * a->head_dim;
	case WIDTH_VALUE:
		return value_width(a);
	case WIDTH_ATTENTION:
		return attention_width(a);
	case WIDTH_QKV:
		return (a->heads + a->kv_heads) * a->head_dim + value_width(a);
	case WIDTH_ROTATED:
		return rotated_width(a);
	case WIDTH_QUERY_RANK:
		return a->query_rank;
	case WIDTH_KV_RANK:
		return a->kv_rank;
	case WIDTH_KV_DOWN:
		return a->kv_rank + a->rope_dim;
	case WIDTH_KV_UP:
		return a->heads * (a->head_dim - a->rope_dim + a->value_dim);
	case WIDTH_FFN:
		return a->ffn;
	case WIDTH_GATE_UP:
		return 2 * a->ffn;
	case WIDTH_VOCAB:
		return a->vocab;
	case WIDTH_HEADS:
		return a->heads;
	case WIDTH_KV_HEADS:
		return a->kv_heads;
	case WIDTH_NORM_STATISTICS:
	case WIDTH_STREAM_STATISTICS:
		return a->norm == NORM_RMSNORM ? 1 : 2;
	case WIDTH_QUERY_STATISTICS:
		return a->qk_norm_wide ? 1 : a->heads;
	case WIDTH_KEY_STATISTICS:
		return a->qk_norm_wide ? 1 : a->kv_heads;
	case WIDTH_EXPERTS:
		return a->experts;
	case WIDTH_EXPERT_FFN:
	case WIDTH_ROUTED_FFN:
		return a->expert_ffn;
	case WIDTH_SHARED_FFN:
		return a->shared_ffn;
	case WIDTH_ADAPTER:
		return a->trainable.rank;
	case WIDTH_WIDEST_FFN: /* by its rows (activations.c) */
	case WIDTH_NONE:
	case WIDTH_COUNT:
		break;
	}
	return 0;
}

int64_t architecture_losses(const struct architecture *a)
{
	return 1 + a->mtp_layers;
}

int64_t architecture_experts_held(const struct architecture *a)
{
	return a->experts_held > 0 ? a->experts_held : a->experts;
}

struct adapter_ranks architecture_adapter_ranks(const struct architecture *a, enum module_kind kind)
{
	int64_t rank = a->trainable.rank, part = rank / max_i64(a->adapter_parts, 1);
	enum tensor_cut cut = module_cut(kind);

	return (struct adapter_ranks){
		.a = cut == CUT_ROWS ? part : rank,
		.b = cut == CUT_COLUMNS ? part : rank,
	};
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
	if (a->experts > 0 && (a->family != FAMILY_MIXTRAL || a->mlp != MLP_SWIGLU || a->mlp_bias ||
				      a->router_bias || a->shared_ffn > 0))
		return "this mixture of experts";
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
	if (a->family > FAMILY_QWEN3 && a->family != FAMILY_MIXTRAL)
		return "the details of this family";
	return NULL;
}
