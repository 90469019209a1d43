/* Private to models/: the sizes that leaves are made of, and arithmetic that saturates. */
#ifndef MODELS_WIDTHS_H
#define MODELS_WIDTHS_H

#include "models/architecture.h"
#include "models/division.h"

/* Elements per token. */
enum width {
	WIDTH_NONE,
	WIDTH_ONE,
	WIDTH_HIDDEN,      /* h */
	WIDTH_TWO_HIDDEN,  /* 2h */
	WIDTH_STREAM,      /* h, of the tokens of the residual stream (struct division) */
	WIDTH_INPUT,       /* h, of those that a column-parallel layer's input is kept for */
	WIDTH_EMBEDDING,   /* of the table's rows: h unless embedding_width is given */
	WIDTH_QUERY,       /* a*d */
	WIDTH_QUERY_INPUT, /* what q is projected from: h, or query_rank */
	WIDTH_KEY,         /* kv*d */
	WIDTH_VALUE,       /* kv*d, or a*value_dim */
	WIDTH_ATTENTION,   /* a*d, or a*value_dim: the core's output */
	WIDTH_QKV,         /* q, k and v side by side */
	WIDTH_ROTATED,     /* (a+kv)*d, or (a+1)*rope_dim: what RoPE turns */
	WIDTH_QUERY_RANK,  /* latent attention */
	WIDTH_KV_RANK,
	WIDTH_KV_DOWN,           /* kv_rank + rope_dim */
	WIDTH_KV_UP,             /* a*(d - rope_dim + value_dim) */
	WIDTH_FFN,               /* f */
	WIDTH_GATE_UP,           /* 2f */
	WIDTH_VOCAB,             /* V */
	WIDTH_HEADS,             /* a */
	WIDTH_KV_HEADS,          /* kv */
	WIDTH_NORM_STATISTICS,   /* 1 (RMSNorm: rstd) or 2 (LayerNorm: mean, rstd) */
	WIDTH_STREAM_STATISTICS, /* the same, of the tokens of the residual stream */
	WIDTH_QUERY_STATISTICS,  /* of a norm on q: per head */
	WIDTH_KEY_STATISTICS,
	WIDTH_EXPERTS,       /* E, of the tokens that the rank's router sees */
	WIDTH_ROUTER_HIDDEN, /* h, of these */
	WIDTH_EXPERT_FFN,    /* of one expert */
	WIDTH_SENT_HIDDEN,   /* h, of the rank's rows: every token once for each of its k experts */
	WIDTH_GATHERED_HIDDEN, /* h, of the tokens of all ranks that have the experts together */
	WIDTH_ROUTED_HIDDEN,   /* h, of the rows that its experts get */
	WIDTH_ROUTED_FFN,      /* m, of these */
	WIDTH_SHARED_FFN,
	WIDTH_WIDEST_FFN, /* of any block: f, or the rows of experts and the shared one */
	WIDTH_ADAPTER,    /* r */
	WIDTH_COUNT
};

/* How many of what a width is of. */
int64_t rows_of_width(const struct row_counts *rows, enum width width);

/* Does not overflow for an architecture within the limits of architecture_check. */
int64_t architecture_width(const struct architecture *architecture, enum width width);

/* Rows of A [a, in] and columns of B [out, b] of the adapter beside a projection. Tensor ranks cut
 * the one whose other side is whole, and exchange x A' (NeMo AutoModel's ColwiseParallelLora and
 * RowwiseParallelLora; Megatron-Bridge's ParallelLinearAdapter). */
struct adapter_ranks {
	int64_t a, b;
};
struct adapter_ranks architecture_adapter_ranks(
	const struct architecture *architecture, enum module_kind kind);

/* Sizes depend on a question (tokens) that models/ does not judge. Beyond 2^53 every size means
 * "fits nowhere", and the rest of the int64_t range is left for the sums of callers. */
#define SATURATED_SIZE ((int64_t)1 << 53)

static inline int64_t saturated_mul(int64_t a, int64_t b)
{
	int64_t result;

	return checked_mul(a, b, &result) ? min_i64(result, SATURATED_SIZE) : SATURATED_SIZE;
}

static inline int64_t saturated_add(int64_t a, int64_t b)
{
	int64_t result;

	return checked_add(a, b, &result) ? min_i64(result, SATURATED_SIZE) : SATURATED_SIZE;
}

#endif
