/* Ways of a library of doing one product, or attention, which can be kept and asked for again. */
#ifndef KERNELS_WAYS_H
#define KERNELS_WAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

/* How a library does one product, in numbers that mean something to the version that gave them. */
struct gemm_way {
	int32_t algorithm, tile, stages, split_k, reduction, swizzle, custom, inner_shape, cluster;
};

/* The way for all products of that shape, whatever comes behind or is added to. */
struct gemm_choice {
	enum dtype dtype, c_dtype;
	int64_t m, n, k;
	bool transpose_a, transpose_b;
	struct gemm_way way;
	bool taken; /* such a product was made ready, and the library has that way for it */
};

/* How a library does attention's forward, as numbers of its own too. */
struct attention_way {
	int32_t engine, kernel, cluster, stream_k, tile_m, tile_n;
};

/* The way for all attention in bf16 with heads of that size over sequences of that length, whatever
 * their numbers. */
struct attention_choice {
	int64_t head_dim, length;
	struct attention_way way;
	bool taken; /* such attention was asked for, and the library has that way for it */
};

#endif
