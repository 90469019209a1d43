/* A kernel table without arithmetic. The `null` device runs the whole executor with it; rehearsals
 * put a real prepare_gemm in place of gemm. */
#include "executor/compute/compute.h"

static bool null_open(struct kernel_context *context, struct error *error)
{
	(void)context;
	(void)error;
	return true;
}

static void null_close(struct kernel_context *context)
{
	(void)context;
}

/* One function for each type of arguments. */
static void null_gemm(struct kernel_context *context, const struct gemm *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_norm(struct kernel_context *context, const struct norm *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_norm_backward(
	struct kernel_context *context, const struct norm_backward *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_rope(struct kernel_context *context, const struct rope *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_attention(struct kernel_context *context, const struct attention *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_attention_backward(
	struct kernel_context *context, const struct attention_backward *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_embedding(struct kernel_context *context, const struct embedding *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_embedding_backward(
	struct kernel_context *context, const struct embedding_backward *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_cross_entropy(
	struct kernel_context *context, const struct cross_entropy *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_adamw(struct kernel_context *context, const struct adamw *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_bias_add(struct kernel_context *context, enum dtype dtype, void *y,
	const void *bias, int64_t rows, int64_t width)
{
	(void)context;
	(void)dtype;
	(void)y;
	(void)bias;
	(void)rows;
	(void)width;
}

static void null_bias_backward(struct kernel_context *context, enum dtype dbias_dtype, void *dbias,
	enum dtype dy_dtype, const void *dy, int64_t rows, int64_t width, bool accumulate)
{
	(void)context;
	(void)dbias_dtype;
	(void)dbias;
	(void)dy_dtype;
	(void)dy;
	(void)rows;
	(void)width;
	(void)accumulate;
}

static void null_gelu(struct kernel_context *context, enum dtype dtype, enum gelu kind, void *y,
	const void *x, int64_t n)
{
	(void)context;
	(void)dtype;
	(void)kind;
	(void)y;
	(void)x;
	(void)n;
}

static void null_gelu_backward(struct kernel_context *context, enum dtype dtype, enum gelu kind,
	void *dx, const void *dy, const void *x, int64_t n)
{
	(void)context;
	(void)dtype;
	(void)kind;
	(void)dx;
	(void)dy;
	(void)x;
	(void)n;
}

static void null_ternary(struct kernel_context *context, enum dtype dtype, void *y, const void *a,
	const void *b, int64_t n)
{
	(void)context;
	(void)dtype;
	(void)y;
	(void)a;
	(void)b;
	(void)n;
}

static void null_two_types(struct kernel_context *context, enum dtype y_dtype, void *y,
	enum dtype x_dtype, const void *x, int64_t n)
{
	(void)context;
	(void)y_dtype;
	(void)y;
	(void)x_dtype;
	(void)x;
	(void)n;
}

static void null_swiglu_backward(struct kernel_context *context, enum dtype dtype, void *dgate,
	void *dup, const void *dy, const void *gate, const void *up, int64_t n)
{
	(void)context;
	(void)dtype;
	(void)dgate;
	(void)dup;
	(void)dy;
	(void)gate;
	(void)up;
	(void)n;
}

static void null_sgd(struct kernel_context *context, const struct sgd *arguments)
{
	(void)context;
	(void)arguments;
}

static void null_scale(struct kernel_context *context, float *y, float factor, int64_t n)
{
	(void)context;
	(void)y;
	(void)factor;
	(void)n;
}

static void null_zero(struct kernel_context *context, enum dtype dtype, void *y, int64_t n)
{
	(void)context;
	(void)dtype;
	(void)y;
	(void)n;
}

static void null_copy(
	struct kernel_context *context, enum dtype dtype, void *y, const void *x, int64_t n)
{
	(void)context;
	(void)dtype;
	(void)y;
	(void)x;
	(void)n;
}

static void null_tree_reduce(struct kernel_context *context, enum dtype dtype, void *y,
	const void *const *sources, int count, int64_t n)
{
	(void)context;
	(void)dtype;
	(void)y;
	(void)sources;
	(void)count;
	(void)n;
}

static void null_sum_squares(
	struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	(void)context;
	(void)sum;
	(void)x;
	(void)n;
}

static void null_sum(
	struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	(void)context;
	(void)sum;
	(void)x;
	(void)n;
}

static void null_clip(struct kernel_context *context, float *y, int64_t n,
	const struct exact_sum *squares, double most)
{
	(void)context;
	(void)y;
	(void)n;
	(void)squares;
	(void)most;
}

/* --- what only devices have --- */

static bool null_gemm_epilogue(
	struct kernel_context *context, const struct gemm *gemm, const struct gemm_epilogue *e)
{
	(void)context;
	(void)gemm;
	(void)e;
	return true;
}

static void null_pack(struct kernel_context *context, enum dtype dtype, void *flat,
	const struct pack_segment *segments, int n, bool unpack)
{
	(void)context;
	(void)dtype;
	(void)flat;
	(void)segments;
	(void)n;
	(void)unpack;
}

static void null_device_adamw(struct kernel_context *context, const struct adamw *adamw, void *copy,
	const struct adamw_factors *factors, const float *scale)
{
	(void)context;
	(void)adamw;
	(void)copy;
	(void)factors;
	(void)scale;
}

static void null_device_sgd(struct kernel_context *context, const struct sgd *sgd,
	const struct sgd_factors *factors, const float *scale)
{
	(void)context;
	(void)sgd;
	(void)factors;
	(void)scale;
}

static void null_clip_scale(struct kernel_context *context, const struct exact_sum *squares,
	double most, double *norm, float *scale)
{
	(void)context;
	(void)squares;
	(void)most;
	(void)norm;
	(void)scale;
}

static const int32_t *null_fault(struct kernel_context *context)
{
	(void)context;
	return NULL;
}

const struct device_kernels device_kernels_null = {
	.gemm_epilogue = null_gemm_epilogue,
	.prepare_gemm_epilogue = null_gemm_epilogue,
	.pack = null_pack,
	.adamw = null_device_adamw,
	.sgd = null_device_sgd,
	.clip_scale = null_clip_scale,
	.fault = null_fault,
};

const struct kernels kernels_null = {
	.name = "null",
	.library = "none",
	.open = null_open,
	.close = null_close,
	.prepare_gemm = null_gemm,
	.gemm = null_gemm,
	.bias_add = null_bias_add,
	.bias_backward = null_bias_backward,
	.layernorm = null_norm,
	.layernorm_backward = null_norm_backward,
	.rmsnorm = null_norm,
	.rmsnorm_backward = null_norm_backward,
	.rope = null_rope,
	.attention = null_attention,
	.attention_backward = null_attention_backward,
	.gelu = null_gelu,
	.gelu_backward = null_gelu_backward,
	.swiglu = null_ternary,
	.swiglu_backward = null_swiglu_backward,
	.embedding = null_embedding,
	.embedding_backward = null_embedding_backward,
	.cross_entropy = null_cross_entropy,
	.adamw = null_adamw,
	.sgd = null_sgd,
	.add = null_ternary,
	.accumulate = null_two_types,
	.convert = null_two_types,
	.scale = null_scale,
	.zero = null_zero,
	.copy = null_copy,
	.tree_reduce = null_tree_reduce,
	.sum_squares = null_sum_squares,
	.sum = null_sum,
	.clip = null_clip,
};
