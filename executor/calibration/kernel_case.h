/* A kernel with its arguments, ready to be timed: on a core or on a GPU, as the bench has them. */
#ifndef EXECUTOR_CALIBRATION_KERNEL_CASE_H
#define EXECUTOR_CALIBRATION_KERNEL_CASE_H

#include "kernels/kernels.h"

struct bench;

struct kernel_case {
	struct bench *bench;
	enum dtype dtype;
	/* for kernels without a struct of arguments; results come first */
	void *arrays[5];
	struct exact_sum *sum;
	int64_t n, rows, width;
	union {
		struct gemm gemm;
		struct attention_backward attention;
		struct norm norm;
		struct norm_backward norm_backward;
		struct rope rope;
		struct embedding embedding;
		struct embedding_backward embedding_backward;
		struct cross_entropy loss;
	} of;
};

/* X(kernel, its arguments behind the context): of a struct kernel_case *c. */
#define KERNEL_RUNS(X)                                                                             \
	X(gemm, &c->of.gemm)                                                                       \
	X(attention, &c->of.attention.forward)                                                     \
	X(attention_backward, &c->of.attention)                                                    \
	X(layernorm, &c->of.norm)                                                                  \
	X(layernorm_backward, &c->of.norm_backward)                                                \
	X(rmsnorm, &c->of.norm)                                                                    \
	X(rmsnorm_backward, &c->of.norm_backward)                                                  \
	X(rope, &c->of.rope)                                                                       \
	X(embedding, &c->of.embedding)                                                             \
	X(embedding_backward, &c->of.embedding_backward)                                           \
	X(cross_entropy, &c->of.loss)                                                              \
	X(gelu, c->dtype, GELU_TANH, c->arrays[0], c->arrays[1], c->n)                             \
	X(gelu_backward, c->dtype, GELU_TANH, c->arrays[0], c->arrays[1], c->arrays[2], c->n)      \
	X(swiglu, c->dtype, c->arrays[0], c->arrays[1], c->arrays[2], c->n)                        \
	X(swiglu_backward, &(struct swiglu_backward){.rows = 1,                                    \
				   .width = c->n,                                                  \
				   .stride = c->n,                                                 \
				   .dy = c->arrays[2],                                             \
				   .gate = c->arrays[3],                                           \
				   .up = c->arrays[4],                                             \
				   .dgate = c->arrays[0],                                          \
				   .dup = c->arrays[1],                                            \
				   .dtype = c->dtype})                                             \
	X(bias_backward, DTYPE_FP32, c->arrays[1], c->dtype, c->arrays[0], c->rows, c->width,      \
		false)                                                                             \
	X(add, c->dtype, c->arrays[0], c->arrays[1], c->arrays[2], c->n)                           \
	X(sum_squares, c->sum, c->arrays[0], c->n)

#define X(kernel, ...) void run_##kernel(void *kernel_case);
KERNEL_RUNS(X)
#undef X

/* Causal attention of `heads`, each with keys of its own, and its backward: nine arrays from `base`
 * on, `step` bytes apart. */
struct attention_backward attention_case(enum dtype dtype, int64_t sequences, int64_t length,
	int64_t heads, int64_t head_dim, char *base, int64_t step);

#endif
