/* Shapes of training steps that fill a GPU: GPT-2 124M and 1.5B and Llama 7B, micro-batches of 8192
 * tokens and more. What moves memory moves several times what the L2 cache holds. */
#ifndef BENCH_KERNELS_CUDA_SHAPES_H
#define BENCH_KERNELS_CUDA_SHAPES_H

#include "tests/kernels/problem.h"

struct bench_shapes {
	const char *prefix; /* of the case's name; the first match counts */
	const int64_t (*shapes)[MOST_DIMS];
};

/* m n k flags: forward, gradient of the input, of the weights; the head. */
static const int64_t cuda_gemms[][MOST_DIMS] = {{65536, 2304, 768, 2}, {65536, 768, 3072, 0},
	{2304, 768, 65536, 5}, {8192, 50257, 768, 18}, {8192, 768, 50257, 16},
	{50257, 768, 8192, 21}, {8192, 4800, 1600, 2}, {8192, 1600, 4800, 0}, {4800, 1600, 8192, 5},
	{8192, 6400, 1600, 2}, {8192, 12288, 4096, 2}, {8192, 4096, 11008, 0},
	{11008, 4096, 8192, 5}, {2048, 32000, 4096, 2}, {-1}};
static const int64_t cuda_attentions[][MOST_DIMS] = {{32, 1024, 12, 12, 64, 0},
	{8, 1024, 25, 25, 64, 0}, {2, 4096, 32, 32, 128, 0}, {2, 4096, 32, 8, 128, 0},
	{1, 16384, 8, 8, 128, 0}, {-1}};
static const int64_t cuda_layernorms[][MOST_DIMS] = {{65536, 768, 5}, {32768, 1600, 5}, {-1}};
static const int64_t cuda_rmsnorms[][MOST_DIMS] = {{16384, 4096, 4}, {-1}};
static const int64_t cuda_biases[][MOST_DIMS] = {{32768, 4800, 1}, {-1}};
static const int64_t cuda_losses[][MOST_DIMS] = {
	{4096, 50257, 0, 0}, {4096, 50257, 47, 0}, {4096, 32000, 0, 0}, {2048, 128256, 0, 0}, {-1}};
/* The last number is the number of different ids; bytes have 256. */
static const int64_t cuda_embeddings[][MOST_DIMS] = {{65536, 1600, 1024, 50257, 3},
	{131072, 768, 1024, 50257, 1}, {131072, 768, 1024, 50257, 1, 256},
	{16384, 8192, 4096, 32000, 0}, {-1}};
static const int64_t cuda_flats[][MOST_DIMS] = {{1 << 26, 0}, {-1}};
static const int64_t cuda_turns[][MOST_DIMS] = {{16384, 4096, 32, 128, 4}, {-1}};
static const int64_t cuda_trees[][MOST_DIMS] = {{1 << 24, 8, -1}, {-1}};

static const struct bench_shapes cuda_shapes[] = {
	{"gemm", cuda_gemms}, {"attention", cuda_attentions}, {"layernorm", cuda_layernorms},
	{"rmsnorm", cuda_rmsnorms}, {"bias", cuda_biases}, {"cross_entropy", cuda_losses},
	{"embedding", cuda_embeddings}, {"rope", cuda_turns}, {"tree_reduce", cuda_trees},
	{"", cuda_flats}, /* all others */
};

#endif
