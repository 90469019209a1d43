#include <stddef.h>

#include "tests/kernels/reference/reference.h"

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

static const struct kernels reference = {.name = "reference",
	.library = "built-in",
	.open = reference_open,
	.close = reference_close,
	.prepare_gemm = reference_prepare_gemm,
	.gemm = reference_gemm,
#define X(name, parameters) .name = reference_##name,
	KERNELS(X)
#undef X
};

const struct kernels *kernels_reference(void)
{
	return &reference;
}
