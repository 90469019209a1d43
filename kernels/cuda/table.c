/* The table "cuda", and how its kernels are found and launched. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/cuda/cuda.h"

static const char *const names[] = {
#define X(name, launch, threads) #name,
	CUDA_KERNELS(X)
#undef X
};

/* A block gets more shared memory than this only where the kernel was told so. */
enum { SHARED_WITHOUT_ASKING = 48 << 10 };

struct cuda_backend *cuda_backend(const struct kernel_context *context)
{
	return context->backend;
}

static bool check(struct kernel_context *context, int result, const char *what)
{
	return cuda_check(cuda_backend(context)->api, result, what, &context->error);
}

static bool allow_shared(struct kernel_context *context, const struct launch *l)
{
	struct cuda_backend *b = cuda_backend(context);

	if (l->shared_bytes <= SHARED_WITHOUT_ASKING ||
		l->shared_bytes <= b->shared_allowed[l->kernel])
		return true;
	b->shared_allowed[l->kernel] = l->shared_bytes;
	return check(context,
		b->api->cuKernelSetAttribute(CUDA_FUNCTION_MAX_DYNAMIC_SHARED, (int)l->shared_bytes,
			b->kernels[l->kernel], b->device),
		names[l->kernel]);
}

void cuda_launch(struct kernel_context *context, const struct launch *l, const void *arguments)
{
	struct cuda_backend *b = cuda_backend(context);
	void *kernel = b->kernels[l->kernel], *list[] = {(void *)(uintptr_t)arguments};

	if (l->x <= 0 || l->y <= 0 || l->z <= 0 || context->error.message[0] != '\0')
		return;
	if (l->x > INT32_MAX || l->y > UINT16_MAX || l->z > UINT16_MAX) {
		error_set(&context->error, EXIT_CODE_USAGE,
			"cuda: %s would need %lld x %lld x %lld blocks, more than a GPU takes",
			names[l->kernel], (long long)l->x, (long long)l->y, (long long)l->z);
		return;
	}
	if (!allow_shared(context, l))
		return;
	check(context,
		b->api->cuLaunchKernel(kernel, (unsigned)l->x, (unsigned)l->y, (unsigned)l->z,
			(unsigned)l->threads, 1, 1, (unsigned)l->shared_bytes, context->stream,
			list, NULL),
		names[l->kernel]);
}

bool cuda_aligned(const void *pointer)
{
	return (uintptr_t)pointer % 16 == 0;
}

int64_t cuda_lanes(enum dtype a, enum dtype b)
{
	return a == DTYPE_BF16 && b == DTYPE_BF16 ? 8 : 4;
}

enum cuda_kernel cuda_typed(enum cuda_kernel fp32, enum dtype dtype)
{
	return (enum cuda_kernel)(fp32 + (dtype == DTYPE_BF16));
}

enum cuda_kernel cuda_paired(enum cuda_kernel fp32_fp32, enum dtype written, enum dtype read)
{
	return (enum cuda_kernel)(fp32_fp32 + 2 * (written == DTYPE_BF16) + (read == DTYPE_BF16));
}

int64_t cuda_threads(int64_t packs, int64_t most)
{
	int64_t threads = (packs + 31) / 32 * 32;

	return threads < 32 ? 32 : threads > most ? most : threads;
}

void cuda_store(struct kernel_context *context, void *to, const uint64_t *words, int64_t count)
{
	const struct launch launch = {CUDA_store, 1, 1, 1, CUDA_STORE_WORDS + 8, 0};

	for (int64_t i = 0; i < count; i += CUDA_STORE_WORDS) {
		struct store_launch a = {.to = (uint64_t *)to + i};

		a.count = (int32_t)(count - i < CUDA_STORE_WORDS ? count - i : CUDA_STORE_WORDS);
		memcpy(a.words, words + i, (size_t)a.count * sizeof(*words));
		cuda_launch(context, &launch, &a);
	}
}

/* --- open and close --- */

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

/* Those for Hopper are there or not: which machine code is used is the driver's choice. */
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
		if (is_optional(i) &&
			b->api->cuLibraryGetKernel(&b->kernels[i], b->library, names[i]))
			b->kernels[i] = NULL;
		else if (!is_optional(i) &&
			 !cuda_check(b->api,
				 b->api->cuLibraryGetKernel(&b->kernels[i], b->library, names[i]),
				 names[i], error))
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

void cuda_set_fp32(struct kernel_context *context, enum cuda_fp32 fp32)
{
	cuda_backend(context)->fp32 = fp32;
}

bool cuda_faults(struct kernel_context *context)
{
	struct cuda_backend *b = cuda_backend(context);
	uint64_t address = (uint64_t)(uintptr_t)b->fault;
	int32_t found = -1;

	/* The driver copies to memory that is not pinned before it returns. */
	if (!check(context,
		    b->api->cuMemcpyAsync(
			    (uint64_t)(uintptr_t)&found, address, sizeof(found), context->stream),
		    "cuMemcpyAsync") ||
		!check(context, b->api->cuStreamSynchronize(context->stream),
			"cuStreamSynchronize"))
		return false;
	if (found < 0)
		return true;
	check(context, b->api->cuMemsetD8Async(address, 0xff, sizeof(found), context->stream),
		"cuMemsetD8Async");
	return error_set(&context->error, EXIT_CODE_INTERNAL,
		"a token id or target is outside the vocabulary (the largest is %d)", found);
}

static const int32_t *cuda_fault(struct kernel_context *context)
{
	return cuda_backend(context)->fault;
}

static const struct device_kernels device = {
	.gemm_epilogue = cuda_gemm_epilogue,
	.prepare_gemm_epilogue = cuda_prepare_gemm_epilogue,
	.gemm_ways = cuda_gemm_ways,
	.choose_gemms = cuda_choose_gemms,
	.gemm_version = cuda_gemm_version,
	.attention_ways = cuda_attention_ways,
	.choose_attention = cuda_choose_attention,
	.attention_version = cuda_attention_version,
	.pack = cuda_pack,
	.adamw = cuda_adamw,
	.sgd = cuda_sgd_now,
	.clip_scale = cuda_clip_scale,
	.fault = cuda_fault,
};

static const struct kernels cuda = {
	.name = "cuda",
	.library = "cuBLASLt",
	.open = cuda_open,
	.close = cuda_close,
	.prepare_gemm = cuda_prepare_gemm,
	.gemm = cuda_gemm,
	.bias_add = cuda_bias_add,
	.bias_backward = cuda_bias_backward,
	.layernorm = cuda_layernorm,
	.layernorm_backward = cuda_layernorm_backward,
	.rmsnorm = cuda_rmsnorm,
	.rmsnorm_backward = cuda_rmsnorm_backward,
	.rope = cuda_rope,
	.attention = cuda_attention,
	.attention_backward = cuda_attention_backward,
	.gelu = cuda_gelu,
	.gelu_backward = cuda_gelu_backward,
	.swiglu = cuda_swiglu,
	.swiglu_backward = cuda_swiglu_backward,
	.embedding = cuda_embedding,
	.embedding_backward = cuda_embedding_backward,
	.cross_entropy = cuda_cross_entropy,
	.adamw = cuda_adamw_plain,
	.sgd = cuda_sgd,
	.add = cuda_add,
	.accumulate = cuda_accumulate,
	.convert = cuda_convert,
	.scale = cuda_scale,
	.zero = cuda_zero,
	.copy = cuda_copy,
	.tree_reduce = cuda_tree_reduce,
	.sum_squares = cuda_sum_squares,
	.sum = cuda_sum,
	.clip = cuda_clip,
	.device = &device,
};

const struct kernels *kernels_cuda(void)
{
	return &cuda;
}
