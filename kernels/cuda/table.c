/* The table "cuda": opening and closing it, and what it holds. */
#include <stdlib.h>

#include "base/base.h"
#include "kernels/cuda/backend.h"

static void cuda_close(struct kernel_context *context)
{
	struct cuda_backend *b = cuda_backend(context);

	if (!b)
		return;
	cuda_close_products(b);
	cuda_close_attention(b);
	if (b->fault)
		b->api->cuMemFree((uint64_t)(uintptr_t)b->fault);
	if (b->library)
		b->api->cuLibraryUnload(b->library);
	free(b);
	context->backend = NULL;
}

/* Kernels for Hopper may be missing, because the driver chooses which machine code is used. */
static bool is_optional(int kernel)
{
	static const int optional[] = {
#define X(name, launch, threads) CUDA_##name,
		CUDA_HOPPER_KERNELS(X)
#undef X
	};

	for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++)
		if (optional[i] == kernel)
			return true;
	return false;
}

static bool find_kernels(struct cuda_backend *b, struct error *error)
{
	for (int i = 0; i < CUDA_KERNEL_COUNT; i++)
		if (is_optional(i) && b->api->cuLibraryGetKernel(
					      &b->kernels[i], b->library, cuda_kernel_names[i]))
			b->kernels[i] = NULL;
		else if (!is_optional(i) && !cuda_check(b->api,
						    b->api->cuLibraryGetKernel(&b->kernels[i],
							    b->library, cuda_kernel_names[i]),
						    cuda_kernel_names[i], error))
			return false;
	return true;
}

static bool read_attributes(struct cuda_backend *b, struct error *error)
{
	const struct {
		int attribute, *value;
	} wanted[] = {{CUDA_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN, &b->shared_most},
		{CUDA_ATTRIBUTE_MULTIPROCESSORS, &b->multiprocessors},
		{CUDA_ATTRIBUTE_CACHE_BYTES, &b->cache_bytes}};

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (!cuda_check(b->api,
			    b->api->cuDeviceGetAttribute(
				    wanted[i].value, wanted[i].attribute, b->device),
			    "cuDeviceGetAttribute", error))
			return false;
	return true;
}

static bool open_backend(struct cuda_backend *b, struct error *error)
{
	const struct cuda_api *api = b->api;
	uint64_t fault = 0;

	if (!cuda_check(api, api->cuCtxGetDevice(&b->device), "cuCtxGetDevice", error) ||
		!read_attributes(b, error) ||
		!cuda_check(api,
			api->cuLibraryLoadData(
				&b->library, api->image, NULL, NULL, 0, NULL, NULL, 0),
			"the kernels do not suit this GPU (cuLibraryLoadData)", error) ||
		!find_kernels(b, error) ||
		!cuda_check(api, api->cuMemAlloc(&fault, sizeof(*b->fault)), "cuMemAlloc", error))
		return false;
	b->fault = (int32_t *)(uintptr_t)fault;
	return cuda_check(api, api->cuMemsetD8Async(fault, 0xff, sizeof(*b->fault), NULL),
		       "cuMemsetD8Async", error) &&
	       cuda_check(api, api->cuStreamSynchronize(NULL), "cuStreamSynchronize", error);
}

static bool cuda_open(struct kernel_context *context, struct error *error)
{
	const struct cuda_api *api = cuda_api(error);
	struct cuda_backend *b;

	if (!api)
		return false;
	if (context->workspace_bytes < KERNELS_WORKSPACE_BYTES)
		return error_set(error, EXIT_CODE_INTERNAL, "the kernels' workspace is too small");
	if (api->image_bytes == 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT,
			"cuda: this program carries no CUDA kernels (it was built without nvcc); "
			"install the CUDA toolkit and build again with -Dcuda=enabled");
	b = calloc(1, sizeof(*b));
	if (!b)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "out of memory");
	b->api = api;
	context->backend = b;
	if (open_backend(b, error))
		return true;
	cuda_close(context);
	return false;
}

bool cuda_faults(struct kernel_context *context)
{
	struct cuda_backend *b = cuda_backend(context);
	uint64_t address = (uint64_t)(uintptr_t)b->fault;
	int32_t found = -1;

	/* The driver copies to memory that is not pinned before it returns. */
	if (!cuda_succeeds(context,
		    b->api->cuMemcpyAsync(
			    (uint64_t)(uintptr_t)&found, address, sizeof(found), context->stream),
		    "cuMemcpyAsync") ||
		!cuda_succeeds(context, b->api->cuStreamSynchronize(context->stream),
			"cuStreamSynchronize"))
		return false;
	if (found < 0)
		return true;
	cuda_succeeds(context,
		b->api->cuMemsetD8Async(address, 0xff, sizeof(found), context->stream),
		"cuMemsetD8Async");
	return error_set(&context->error, EXIT_CODE_INTERNAL,
		"a token id or target is outside the vocabulary (the largest is %d)", found);
}

static const int32_t *cuda_fault(struct kernel_context *context)
{
	return cuda_backend(context)->fault;
}

static const struct device_kernels device = {.gemm_epilogue = cuda_gemm_epilogue,
	.prepare_gemm_epilogue = cuda_prepare_gemm_epilogue,
	.gemm_fp8 = cuda_gemm_fp8,
	.prepare_gemm_fp8 = cuda_prepare_gemm_fp8,
	.gemm_algorithms = cuda_gemm_algorithms,
	.choose_gemms = cuda_choose_gemms,
	.gemm_version = cuda_gemm_version,
	.attention_algorithms = cuda_attention_algorithms,
	.choose_attention = cuda_choose_attention,
	.attention_version = cuda_attention_version,
	.fault = cuda_fault,
#define X(name, parameters) .name = cuda_device_##name,
	DEVICE_KERNELS(X)
#undef X
};

static const struct kernels cuda = {.name = "cuda",
	.library = "cuBLASLt",
	.open = cuda_open,
	.close = cuda_close,
	.prepare_gemm = cuda_prepare_gemm,
	.gemm = cuda_gemm,
	.device = &device,
#define X(name, parameters) .name = cuda_##name,
	KERNELS(X)
#undef X
};

const struct kernels *kernels_cuda(void)
{
	return &cuda;
}
