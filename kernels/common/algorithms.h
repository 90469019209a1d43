/* Algorithms of a library for a GEMM or for attention, as data that can be kept and asked for
 * again. */
#ifndef KERNELS_COMMON_ALGORITHMS_H
#define KERNELS_COMMON_ALGORITHMS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

/* An algorithm of cuBLASLt with its configuration attributes. The numbers mean something to the
 * version that gave them. */
struct gemm_algorithm {
	int32_t id, tile, stages, split_k, reduction, swizzle, custom, inner_shape, cluster;
};

/* The algorithm for every GEMM of that shape, with any epilogue. */
struct gemm_choice {
	enum dtype dtype, c_dtype;
	int64_t m, n, k;
	bool transpose_a, transpose_b;
	struct gemm_algorithm algorithm;
	bool taken; /* such a GEMM was prepared, and the library has that algorithm for it */
};

enum attention_pass { ATTENTION_FORWARD, ATTENTION_BACKWARD, ATTENTION_PASSES };

/* An engine configuration of cuDNN for attention's forward, or its backward. */
struct attention_algorithm {
	int32_t engine, kernel, cluster, stream_k, tile_m, tile_n, stages;
};

/* The engine configuration for that pass of attention in bf16 with heads of that size over
 * sequences of that length, any number of them. */
struct attention_choice {
	int64_t head_dim, length;
	enum attention_pass pass;
	struct attention_algorithm algorithm;
	int64_t head_bytes;   /* of the workspace, for a head of a sequence: of the backward */
	int64_t shared_bytes; /* the same where heads share keys */
	bool taken; /* such attention was asked for, and the library has that engine for it */
};

#endif
