/* What all tables of kernels share: struct kernels itself, and the arithmetic below it.
 *
 * Laws that every table obeys (tests/kernels checks them):
 * - A call allocates nothing. Scratch comes from the context's workspace, whose content is free
 *   between calls. What must be built per shape (gemm) is built by prepare_gemm or by the first
 *   call of that shape.
 * - Same input and shapes, same bits; the number of threads never changes a bit. Element-wise
 *   kernels (add ... tree_reduce, adamw) give an element the same bits at any offset, length and
 *   alignment.
 * - Matrices are row-major, of fp32 or bf16 (arguments.h); a leading dimension or stride counts
 *   elements. Pointers need the alignment of their type only. Sizes of 0 are allowed and do nothing
 *   (but "=" still writes zeros).
 * - A device's table enqueues on context->stream and returns. All its pointers are device memory,
 *   exact sums too (which it leaves normalised); arrays of pointers are the caller's, read before
 *   the call returns.
 * - "accumulate" false means =, true means +=. In-place use is allowed exactly where it is said. */
#ifndef KERNELS_COMMON_H
#define KERNELS_COMMON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "kernels/common/algorithms.h"
#include "kernels/common/arguments.h"
#include "kernels/common/bf16.h"
#include "kernels/common/device.h"
#include "kernels/common/embedding_rows.h"
#include "kernels/common/exact_sum.h"
#include "kernels/common/rope_frequency.h"
#include "kernels/common/symbols.h"

enum {
	/* Every kernel sizes its tiles to fit: no shape needs more. */
	KERNELS_WORKSPACE_BYTES = 16 << 20,
	/* How the workspace should be aligned (a kernel copes with less, more slowly). */
	KERNELS_WORKSPACE_ALIGNMENT = 64,
	/* The most sources of one tree_reduce. */
	KERNELS_TREE_SOURCES = 4096,
};

enum { KERNELS_SOME = -1 };

/* The context that a thread passes to each call; every thread has its own. The caller owns the
 * workspace. */
struct kernel_context {
	void *workspace;
	int64_t workspace_bytes; /* at least KERNELS_WORKSPACE_BYTES */
	int threads;             /* how many gemm and attention may use; 0 means 1 */
	void *stream;            /* devices: the stream to issue on; NULL on the CPU */
	/* Devices: the most multiprocessors that communication occupies meanwhile; KERNELS_SOME:
	 * not known; 0: none. Unless 0, no kernel may rely on all its blocks running at once. */
	int beside;
	void *backend;      /* private to the table: prepared shapes, library handles */
	struct error error; /* sticky: the first thing that went wrong (a target beyond the
			     * vocabulary, a device error); message "" while all is well */
};

/* The kernels that every table has besides gemm, X(name, parameters): struct kernels, the
 * prototypes and the rows of each table come from this list. */
#define KERNELS(X)                                                                                 \
	/* y[rows, width] += bias[width]; and its gradient, the column sums of dy in row order. */ \
	X(bias_add, (struct kernel_context * context, enum dtype dtype, void *y, const void *bias, \
			    int64_t rows, int64_t width))                                          \
	X(bias_backward, (struct kernel_context * context, enum dtype dbias_dtype, void *dbias,    \
				 enum dtype dy_dtype, const void *dy, int64_t rows, int64_t width, \
				 bool accumulate))                                                 \
	X(layernorm, (struct kernel_context * context, const struct norm *norm))                   \
	X(layernorm_backward, (struct kernel_context * context, const struct norm_backward *norm)) \
	X(rmsnorm, (struct kernel_context * context, const struct norm *norm))                     \
	X(rmsnorm_backward, (struct kernel_context * context, const struct norm_backward *norm))   \
	X(rope, (struct kernel_context * context, const struct rope *rope))                        \
	X(attention, (struct kernel_context * context, const struct attention *attention))         \
	X(attention_backward,                                                                      \
		(struct kernel_context * context, const struct attention_backward *attention))     \
	/* y = gelu(x), y may be x; dx = dy * gelu'(x), dx may be dy or x. */                      \
	X(gelu, (struct kernel_context * context, enum dtype dtype, enum gelu kind, void *y,       \
			const void *x, int64_t n))                                                 \
	X(gelu_backward, (struct kernel_context * context, enum dtype dtype, enum gelu kind,       \
				 void *dx, const void *dy, const void *x, int64_t n))              \
	/* y = silu(gate) * up, silu(g) = g / (1 + exp(-g)); y may be gate or up. */               \
	X(swiglu, (struct kernel_context * context, enum dtype dtype, void *y, const void *gate,   \
			  const void *up, int64_t n))                                              \
	X(swiglu_backward,                                                                         \
		(struct kernel_context * context, const struct swiglu_backward *swiglu))           \
	X(embedding, (struct kernel_context * context, const struct embedding *embedding))         \
	X(embedding_backward,                                                                      \
		(struct kernel_context * context, const struct embedding_backward *embedding))     \
	X(cross_entropy, (struct kernel_context * context, const struct cross_entropy *loss))      \
	X(adamw, (struct kernel_context * context, const struct adamw *adamw))                     \
	X(sgd, (struct kernel_context * context, const struct sgd *sgd))                           \
	/* y = a + b; y may be a or b. */                                                          \
	X(add, (struct kernel_context * context, enum dtype dtype, void *y, const void *a,         \
		       const void *b, int64_t n))                                                  \
	/* y += x of another type. */                                                              \
	X(accumulate, (struct kernel_context * context, enum dtype y_dtype, void *y,               \
			      enum dtype x_dtype, const void *x, int64_t n))                       \
	/* y = x, rounded to nearest even where y is narrower. */                                  \
	X(convert, (struct kernel_context * context, enum dtype y_dtype, void *y,                  \
			   enum dtype x_dtype, const void *x, int64_t n))                          \
	/* y *= factor */                                                                          \
	X(scale, (struct kernel_context * context, float *y, float factor, int64_t n))             \
	X(zero, (struct kernel_context * context, enum dtype dtype, void *y, int64_t n))           \
	X(copy, (struct kernel_context * context, enum dtype dtype, void *y, const void *x,        \
			int64_t n))                                                                \
	/* y[i] = the sources' i-th elements, summed in the declared tree over 0..count-1: a node  \
	 * of more than one source splits at the largest power of two below its size, so 3 sources \
	 * give (0+1)+2 and 6 give ((0+1)+(2+3))+(4+5). y may be any of the sources. bf16: every   \
	 * node is rounded, so that a subtree that was reduced and stored gives the same bits. */  \
	X(tree_reduce, (struct kernel_context * context, enum dtype dtype, void *y,                \
			       const void *const *sources, int count, int64_t n))                  \
	/* Add x[i]^2, or x[i], to an exact sum; the bits of the result depend on the set only. */ \
	X(sum_squares, (struct kernel_context * context, struct exact_sum * sum, const float *x,   \
			       int64_t n))                                                         \
	X(sum, (struct kernel_context * context, struct exact_sum * sum, const float *x,           \
		       int64_t n))                                                                 \
	/* y *= most / (sqrt(squares) + 1e-6) where that is below 1, as torch's clip_grad_norm_.   \
	 */                                                                                        \
	X(clip, (struct kernel_context * context, float *y, int64_t n,                             \
			const struct exact_sum *squares, double most))

struct device_kernels;

struct kernels {
	const char *name;    /* "reference", "cpu", "cpu-onednn", ... */
	const char *library; /* what multiplies matrices: "built-in", "oneDNN 2.6.3", "OpenBLAS" */

	/* Fill and empty `backend`. open fails with EXIT_CODE_ENVIRONMENT (no device) or
	 * EXIT_CODE_INTERNAL (workspace too small). close accepts a context that never opened. */
	bool (*open)(struct kernel_context *, struct error *);
	void (*close)(struct kernel_context *);

	void (*prepare_gemm)(struct kernel_context *, const struct gemm *); /* pointers unused */
	void (*gemm)(struct kernel_context *, const struct gemm *);

#define X(name, parameters) void(*name) parameters;
	KERNELS(X)
#undef X

	const struct device_kernels *device; /* what a device's table has beyond; else NULL */
};

#endif
