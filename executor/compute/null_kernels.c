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

static void null_gemm(struct kernel_context *context, const struct gemm *gemm)
{
	(void)context;
	(void)gemm;
}

static bool null_gemm_epilogue(
	struct kernel_context *context, const struct gemm *gemm, const struct gemm_epilogue *e)
{
	(void)context;
	(void)gemm;
	(void)e;
	return true;
}

static void null_gemm_fp8(
	struct kernel_context *context, const struct gemm *gemm, const struct gemm_fp8 *how)
{
	(void)context;
	(void)gemm;
	(void)how;
}

static const int32_t *null_fault(struct kernel_context *context)
{
	(void)context;
	return NULL;
}

/* All others do nothing with what they are given. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define X(name, parameters)                                                                        \
	static void null_##name parameters                                                         \
	{                                                                                          \
	}
KERNELS(X)
#undef X

#define X(name, parameters)                                                                        \
	static void null_device_##name parameters                                                  \
	{                                                                                          \
	}
DEVICE_KERNELS(X)
#undef X

#pragma GCC diagnostic pop

const struct device_kernels device_kernels_null = {.gemm_epilogue = null_gemm_epilogue,
	.prepare_gemm_epilogue = null_gemm_epilogue,
	.gemm_fp8 = null_gemm_fp8,
	.prepare_gemm_fp8 = null_gemm_fp8,
	.fault = null_fault,
#define X(name, parameters) .name = null_device_##name,
	DEVICE_KERNELS(X)
#undef X
};

const struct kernels kernels_null = {.name = "null",
	.library = "none",
	.open = null_open,
	.close = null_close,
	.prepare_gemm = null_gemm,
	.gemm = null_gemm,
#define X(name, parameters) .name = null_##name,
	KERNELS(X)
#undef X
};
