/* Every CUDA kernel by its name, which is also its symbol: X(name, struct, most threads of a
 * block). What exists for fp32 and bf16 stands in that order, so that name_fp32 + 1 is name_bf16;
 * with two types, the first is the one that is written. */
#ifndef KERNELS_CUDA_LIST_H
#define KERNELS_CUDA_LIST_H

#include "kernels/cuda/device/attention_shapes.h"
#include "kernels/cuda/device/launches.h"
#include "kernels/cuda/device/launches_fp8.h"

#define CUDA_BOTH(X, name, launch, threads)                                                        \
	X(name##_fp32, launch, threads) X(name##_bf16, launch, threads)
#define CUDA_PAIRS(X, name, launch, threads)                                                       \
	X(name##_fp32_fp32, launch, threads)                                                       \
	X(name##_fp32_bf16, launch, threads)                                                       \
	X(name##_bf16_fp32, launch, threads) X(name##_bf16_bf16, launch, threads)

#define CUDA_FLAT_KERNELS(X)                                                                       \
	CUDA_BOTH(X, gelu, flat_launch, 256)                                                       \
	CUDA_BOTH(X, gelu_backward, flat_launch, 256)                                              \
	CUDA_BOTH(X, swiglu, flat_launch, 256)                                                     \
	CUDA_BOTH(X, swiglu_backward, swiglu_launch, 256)                                          \
	CUDA_BOTH(X, add, flat_launch, 256)                                                        \
	CUDA_PAIRS(X, accumulate, flat_launch, 256)                                                \
	CUDA_PAIRS(X, convert, flat_launch, 256)                                                   \
	CUDA_BOTH(X, zero, flat_launch, 256)                                                       \
	X(scale, flat_launch, 256)                                                                 \
	CUDA_BOTH(X, sgd, sgd_launch, 256)                                                         \
	CUDA_BOTH(X, adamw, adamw_launch, 256)                                                     \
	CUDA_BOTH(X, tree_few, tree_launch, 256)                                                   \
	CUDA_BOTH(X, tree_many, tree_launch, 128)                                                  \
	X(store, store_launch, 128)                                                                \
	CUDA_BOTH(X, pack, pack_launch, 256)                                                       \
	CUDA_BOTH(X, unpack, pack_launch, 256)                                                     \
	X(sum_squares, exact_launch, 256)                                                          \
	X(sum_floats, exact_launch, 256)                                                           \
	X(settle, exact_launch, 32)                                                                \
	X(clip_scale, clip_launch, 32)                                                             \
	X(fp8_largest, fp8_launch, 256)                                                            \
	X(fp8_cast, fp8_launch, 256)

#define CUDA_ROW_KERNELS(X)                                                                        \
	CUDA_BOTH(X, bias_add, bias_launch, 256)                                                   \
	CUDA_BOTH(X, columns, columns_launch, 256)                                                 \
	CUDA_BOTH(X, column_sums, column_sums_launch, 1024)                                        \
	CUDA_BOTH(X, layernorm_4, norm_launch, 256)                                                \
	CUDA_BOTH(X, layernorm_8, norm_launch, 256)                                                \
	CUDA_BOTH(X, layernorm_long, norm_launch, 256)                                             \
	CUDA_BOTH(X, rmsnorm_4, norm_launch, 256)                                                  \
	CUDA_BOTH(X, rmsnorm_8, norm_launch, 256)                                                  \
	CUDA_BOTH(X, rmsnorm_long, norm_launch, 256)                                               \
	CUDA_BOTH(X, layernorm_backward_1, norm_backward_launch, 256)                              \
	CUDA_BOTH(X, layernorm_backward_2, norm_backward_launch, 256)                              \
	CUDA_BOTH(X, layernorm_backward_4, norm_backward_launch, 256)                              \
	CUDA_BOTH(X, layernorm_backward_long, norm_backward_launch, 256)                           \
	CUDA_BOTH(X, rmsnorm_backward_1, norm_backward_launch, 256)                                \
	CUDA_BOTH(X, rmsnorm_backward_2, norm_backward_launch, 256)                                \
	CUDA_BOTH(X, rmsnorm_backward_4, norm_backward_launch, 256)                                \
	CUDA_BOTH(X, rmsnorm_backward_long, norm_backward_launch, 256)                             \
	CUDA_BOTH(X, rope, rope_launch, 256)                                                       \
	CUDA_BOTH(X, embedding, embedding_launch, 256)                                             \
	X(embedding_count, embedding_sort_launch, 256)                                             \
	X(embedding_scatter, embedding_sort_launch, 256)                                           \
	CUDA_PAIRS(X, embedding_runs, embedding_runs_launch, 256)                                  \
	CUDA_BOTH(X, embedding_join, embedding_runs_launch, 256)                                   \
	CUDA_BOTH(X, cross_entropy, cross_entropy_launch, 1024)

#define CUDA_ATTENTION_KERNELS(X)                                                                  \
	CUDA_BOTH(X, attention_delta, attention_launch, 256)                                       \
	X(attention_delta_packs, attention_launch, 256)                                            \
	CUDA_BOTH(X, attention_plain, attention_launch, 256)                                       \
	CUDA_BOTH(X, attention_plain_dq, attention_launch, 256)                                    \
	CUDA_BOTH(X, attention_plain_dkv, attention_launch, 256)

/* On the tensor cores; and the same for Hopper, in its own instructions, which only an image for
 * sm_90a has. */
#define CUDA_TENSOR_LINE(X, name, pass, d, rows, others, stages)                                   \
	X(name, attention_launch, CUDA_TENSOR_THREADS)
#define CUDA_HOPPER_LINE(X, name, pass, d, rows, others, stages)                                   \
	X(name, attention_launch, CUDA_HOPPER_THREADS)
#define CUDA_TENSOR_KERNELS(X)                                                                     \
	CUDA_TENSOR_FORWARD(CUDA_TENSOR_LINE, X) CUDA_TENSOR_BACKWARD(CUDA_TENSOR_LINE, X)
#define CUDA_HOPPER_KERNELS(X)                                                                     \
	CUDA_HOPPER_FORWARD(CUDA_HOPPER_LINE, X) CUDA_HOPPER_BACKWARD(CUDA_HOPPER_LINE, X)

#define CUDA_KERNELS(X)                                                                            \
	CUDA_FLAT_KERNELS(X)                                                                       \
	CUDA_ROW_KERNELS(X)                                                                        \
	CUDA_ATTENTION_KERNELS(X) CUDA_TENSOR_KERNELS(X) CUDA_HOPPER_KERNELS(X)

enum cuda_kernel {
#define X(name, launch, threads) CUDA_##name,
	CUDA_KERNELS(X)
#undef X
		CUDA_KERNEL_COUNT
};

#endif
