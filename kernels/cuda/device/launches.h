/* What the host hands to each CUDA kernel: one struct by value. C and CUDA C++ read this file, so
 * it has plain types of fixed layout only. Pointers are the device's. `vector` says that every
 * pointer and row length allows the widest access; without it a kernel goes element by element. */
#ifndef KERNELS_CUDA_LAUNCHES_H
#define KERNELS_CUDA_LAUNCHES_H

#include <stdint.h>

#include "kernels/cuda/device/launches_tokens.h"
#include "kernels/plain/plain.h"

enum {
	CUDA_FREQUENCIES = 128, /* rope: pairs of a head */
	CUDA_STORE_WORDS = 120, /* 8-byte words of one store */
	CUDA_SEGMENTS = 64,     /* tensors of one pack */
	CUDA_SORT_BITS = 9,     /* tokens are sorted by digits of so many bits */
	CUDA_EMBED_TOKENS = 4,  /* that a thread of the lookup takes */
	CUDA_SORT_TILE = 2048,  /* tokens that a block sorts at once */
	CUDA_ZERO_ROWS = 32,    /* of an embedding's gradient, that a block looks through */
	CUDA_JOIN_COLUMNS = 4,  /* that a thread joins */
};

/* Element-wise kernels; each says which members it uses. */
struct flat_launch {
	void *y;
	const void *a, *b;
	int64_t n;
	float factor;
	int32_t kind; /* enum gelu */
	int32_t vector;
};

/* Of n = rows * width elements. */
struct swiglu_launch {
	void *dgate, *dup;
	const void *dy, *gate, *up;
	int64_t n, width, stride;
	int32_t vector;
};

struct adamw_launch {
	void *w, *m, *v;
	const float *g;
	void *copy;         /* bf16 copy of w; NULL for none */
	const float *scale; /* on the device, instead of gradient_scale; NULL for none */
	const struct adamw_factors *now; /* on the device, instead of factors; NULL for none */
	int64_t n;
	struct adamw_factors factors;
	float beta2, epsilon, take1, take2, gradient_scale;
	int32_t vector;
	struct rounding rounding; /* of bf16 */
};

struct sgd_launch {
	void *w;
	const float *g, *scale; /* as adamw_launch has them */
	const struct sgd_factors *now;
	int64_t n;
	struct sgd_factors factors;
	float gradient_scale;
	int32_t vector;
	struct rounding rounding;
};

struct tree_launch {
	void *y;
	const void *const *sources; /* on the device */
	int64_t n;
	int32_t count, vector;
};

/* Words that travel with the launch. */
struct store_launch {
	uint64_t *to;
	int32_t count;
	uint64_t words[CUDA_STORE_WORDS];
};

struct pack_launch {
	void *flat;
	struct pack_segment segments[CUDA_SEGMENTS];
};

struct exact_launch {
	int64_t *limbs;
	const void *x;
	int64_t n;
	int32_t vector;
};

struct clip_launch {
	const int64_t *limbs;
	double *norm;
	float *scale;
	double limit;
};

struct bias_launch {
	void *y;
	const void *bias;
	int64_t rows, width;
	int32_t vector;
};

/* Sums over rows in two steps: of chunks of `chunk` rows, then of the chunks in order. */
struct columns_launch {
	const void *x;
	float *partial; /* [chunks, width] */
	int64_t rows, width, chunk;
	int32_t vector;
};

struct column_sums_launch {
	const float *partial; /* row c at partial + c * stride; of outs[1] `width` behind it */
	void *outs[2];
	int64_t chunks, stride, width;
	int32_t accumulate;
};

struct norm_launch {
	const void *x, *weight, *bias;
	void *y;
	float *mean, *rstd;
	int64_t rows, width;
	float epsilon;
	int32_t team; /* threads of a row: a warp or a block */
	int32_t vector;
};

struct norm_backward_launch {
	const void *dy, *x, *weight;
	const float *mean, *rstd;
	void *dx;
	float *partial; /* [chunks, sums, width]: of dweight, of dbias */
	int64_t rows, width, chunk;
	float share;  /* 1 / width */
	int32_t sums; /* 1 or 2 */
	int32_t in_shared, accumulate_dx, vector;
};

struct rope_launch {
	void *x;
	int64_t length, heads, head_dim, stride;
	double frequency[CUDA_FREQUENCIES]; /* rotations per position; negative for the inverse */
	int32_t vector;
};

/* dout, dq, dk, dv, delta: backward only. delta[row, head] = dout . out. */
struct attention_launch {
	const void *q, *k, *v, *dout;
	void *out, *dq, *dk, *dv;
	float *lse, *delta;
	int64_t length, heads, kv_heads, head_dim, rows; /* rows: of all sequences */
	int64_t sequences, together;                     /* attention_hopper.cuh: item_of */
	int64_t lse_stride, delta_stride;
	int64_t q_stride, k_stride, v_stride, out_stride;
	int64_t dout_stride, dq_stride, dk_stride, dv_stride;
	float scale;
};

#endif
