/* Tile shapes of the attention kernels on tensor cores: what their templates are made with, how
 * many threads and how much shared memory a block is launched with, and which one suits a head, all
 * come from here. C and CUDA C++ read this file. */
#ifndef KERNELS_CUDA_ATTENTION_SHAPES_H
#define KERNELS_CUDA_ATTENTION_SHAPES_H

/* LINE(X, kernel, pass, heads up to, rows of a block, rows of a tile of the other side, stages of
 * the pipeline). Rows are queries in the forward and for dq, keys for dk and dv. Shorter heads come
 * first. */
#define CUDA_TENSOR_FORWARD(LINE, X)                                                               \
	LINE(X, attention_tensor_64, forward, 64, 128, 64, 2)                                      \
	LINE(X, attention_tensor_128, forward, 128, 128, 32, 2)
#define CUDA_TENSOR_BACKWARD(LINE, X)                                                              \
	LINE(X, attention_tensor_dq_64, dq, 64, 64, 64, 2)                                         \
	LINE(X, attention_tensor_dq_128, dq, 128, 64, 32, 2)                                       \
	LINE(X, attention_tensor_dkv_64, dkv, 64, 64, 64, 2)                                       \
	LINE(X, attention_tensor_dkv_128, dkv, 128, 64, 32, 2)
#define CUDA_HOPPER_FORWARD(LINE, X)                                                               \
	LINE(X, attention_hopper_64, forward, 64, 128, 128, 2)                                     \
	LINE(X, attention_hopper_128, forward, 128, 128, 128, 2)
#define CUDA_HOPPER_BACKWARD(LINE, X)                                                              \
	LINE(X, attention_hopper_dq_64, dq, 64, 128, 128, 2)                                       \
	LINE(X, attention_hopper_dq_128, dq, 128, 128, 128, 2)                                     \
	LINE(X, attention_hopper_dkv_64, dkv, 64, 128, 64, 2)                                      \
	LINE(X, attention_hopper_dkv_128, dkv, 128, 128, 64, 2)

/* Threads of a block: 4 warps; a consumer warpgroup for each 64 rows, and a producer. */
enum { CUDA_TENSOR_THREADS = 128, CUDA_HOPPER_THREADS = 384 };

/* Shared memory, bytes: tiles of rows of d bf16. */
#define CUDA_TILE_BYTES(rows, d) ((rows) * (d)*2)
/* The block's own rows of one tensor, stages of two. */
#define CUDA_SHARED_forward(d, rows, others, stages)                                               \
	(CUDA_TILE_BYTES(rows, d) + (stages)*2 * CUDA_TILE_BYTES(others, d))
/* Of two. */
#define CUDA_SHARED_dq(d, rows, others, stages)                                                    \
	(2 * CUDA_TILE_BYTES(rows, d) + (stages)*2 * CUDA_TILE_BYTES(others, d))
/* And lse and delta of the other rows. */
#define CUDA_SHARED_dkv(d, rows, others, stages)                                                   \
	(CUDA_SHARED_dq(d, rows, others, stages) + (stages)*2 * (others)*4)
/* Before all that: Hopper's mbarriers. The 128-byte swizzle repeats every 1024 bytes. */
enum { CUDA_TENSOR_BARRIERS = 0, CUDA_HOPPER_BARRIERS = 1024 };

#endif
