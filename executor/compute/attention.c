/* Finds what attention reads, of the rank's tokens, and turns it. */
#include "executor/compute/leaf.h"

#include <math.h>

static const struct architecture *architecture_of(const struct leaf *leaf)
{
	return &leaf->compute->model->architecture;
}

/* Finds where q, k and v are: slices of one matrix, or three matrices, perhaps normalised. */
void leaf_find_qkv(const struct leaf *leaf, struct attention *attention)
{
	const struct architecture *a = architecture_of(leaf);
	const struct siblings *s = leaf_siblings(leaf);
	int64_t d = a->head_dim, width = (a->heads + 2 * a->kv_heads) * d;

	if (a->fused_qkv) {
		const void *qkv = operand_saved(leaf, s->of[MODULE_QKV], TENSOR_QKV);
		const struct compute *c = leaf->compute;

		attention->q = qkv;
		attention->k = compute_at(c, qkv, a->heads * d);
		attention->v = compute_at(c, qkv, (a->heads + a->kv_heads) * d);
		attention->q_stride = attention->k_stride = attention->v_stride = width;
		return;
	}
	attention->q = a->qk_norm
			       ? operand_saved(leaf, s->of[MODULE_QUERY_NORM], TENSOR_QK_NORM_OUT)
			       : operand_saved(leaf, s->of[MODULE_QUERY], TENSOR_QUERY);
	attention->k = a->qk_norm ? operand_saved(leaf, s->of[MODULE_KEY_NORM], TENSOR_QK_NORM_OUT)
				  : operand_saved(leaf, s->of[MODULE_KEY], TENSOR_KEY);
	attention->v = operand_saved(leaf, s->of[MODULE_VALUE], TENSOR_VALUE);
	attention->q_stride = a->heads * d;
	attention->k_stride = attention->v_stride = a->kv_heads * d;
}

struct attention leaf_attention(const struct leaf *leaf)
{
	const struct architecture *a = architecture_of(leaf);
	const struct compute *c = leaf->compute;
	struct attention attention = {.sequences = c->sequences,
		.length = c->seq_len,
		.heads = a->heads,
		.kv_heads = a->kv_heads,
		.head_dim = a->head_dim,
		.scale = (float)(1 / sqrt((double)a->head_dim)),
		.out = operand_saved(leaf, leaf->module, TENSOR_ATTENTION_OUT),
		.out_stride = a->heads * a->head_dim,
		.lse = operand_saved(leaf, leaf->module, TENSOR_LOG_SUM_EXP),
		.dtype = c->dtype};

	leaf_find_qkv(leaf, &attention);
	return attention;
}

/* If ranks have several chunks of a sequence, they are turned one after the other. */
void leaf_rope(const struct leaf *leaf, void *x, int64_t heads, int64_t stride, bool inverse)
{
	const struct architecture *a = architecture_of(leaf);
	const struct compute *c = leaf->compute;
	int64_t n = c->chunks > 0 ? c->seq_len : c->tokens;

	for (int64_t i = 0; i < c->tokens && a->positions == POSITIONS_ROPE; i += n)
		c->kernels->rope(c->context, &(struct rope){.x = compute_at(c, x, i * stride),
						     .first = compute_position(c, i),
						     .tokens = n,
						     .heads = heads,
						     .head_dim = a->head_dim,
						     .stride = stride,
						     .length = c->seq_len,
						     .theta = a->rope_theta,
						     .inverse = inverse,
						     .dtype = c->dtype});
}
