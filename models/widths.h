/* Private to models/: the sizes that leaves are made of, and arithmetic that saturates. */
#ifndef MODELS_WIDTHS_H
#define MODELS_WIDTHS_H

#include "models/architecture.h"

/* Elements per token. */
enum width {
	WIDTH_NONE,
	WIDTH_HIDDEN,          /* h */
	WIDTH_QUERY,           /* a*d */
	WIDTH_KEY,             /* kv*d, also of values */
	WIDTH_QKV,             /* (a+2kv)*d */
	WIDTH_ROTATED,         /* (a+kv)*d: what RoPE turns */
	WIDTH_FFN,             /* f */
	WIDTH_VOCAB,           /* V */
	WIDTH_HEADS,           /* a */
	WIDTH_KV_HEADS,        /* kv */
	WIDTH_NORM_STATISTICS, /* 1 (RMSNorm: rstd) or 2 (LayerNorm: mean, rstd) */
	WIDTH_COUNT
};

/* Does not overflow for an architecture within the limits of architecture_check. */
int64_t architecture_width(const struct architecture *architecture, enum width width);

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
