#include <stddef.h>

#include "kernels/reference/reference.h"

static bool reference_open(struct kernel_context *context, struct error *error)
{
	if (context->workspace_bytes < KERNELS_WORKSPACE_BYTES)
		return error_set(error, EXIT_CODE_INTERNAL,
			"kernel workspace has %lld bytes, expected at least %d",
			(long long)context->workspace_bytes, KERNELS_WORKSPACE_BYTES);
	error_clear(&context->error);
	return true;
}

static void reference_close(struct kernel_context *context)
{
	context->backend = NULL;
}

static void reference_prepare_gemm(struct kernel_context *context, const struct gemm *g)
{
	(void)context;
	(void)g;
}

static const struct kernels reference = {
	.name = "reference",
	.library = "built-in",
	.open = reference_open,
	.close = reference_close,
	.prepare_gemm = reference_prepare_gemm,
	.gemm = reference_gemm,
	.bias_add = reference_bias_add,
	.bias_backward = reference_bias_backward,
	.layernorm = reference_layernorm,
	.layernorm_backward = reference_layernorm_backward,
	.rmsnorm = reference_rmsnorm,
	.rmsnorm_backward = reference_rmsnorm_backward,
	.rope = reference_rope,
	.attention = reference_attention,
	.attention_backward = reference_attention_backward,
	.gelu = reference_gelu,
	.gelu_backward = reference_gelu_backward,
	.swiglu = reference_swiglu,
	.swiglu_backward = reference_swiglu_backward,
	.embedding = reference_embedding,
	.embedding_backward = reference_embedding_backward,
	.cross_entropy = reference_cross_entropy,
	.adamw = reference_adamw,
	.sgd = reference_sgd,
	.add = reference_add,
	.accumulate = reference_accumulate,
	.convert = reference_convert,
	.scale = reference_scale,
	.zero = reference_zero,
	.copy = reference_copy,
	.tree_reduce = reference_tree_reduce,
	.sum_squares = reference_sum_squares,
	.sum = reference_sum,
	.clip = reference_clip,
};

const struct kernels *kernels_reference(void)
{
	return &reference;
}
