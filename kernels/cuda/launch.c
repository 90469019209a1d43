/* How a kernel of the table "cuda" is launched, and what its files compute a launch with. */
#include <string.h>

#include "base/base.h"
#include "kernels/cuda/backend.h"

const char *const cuda_kernel_names[CUDA_KERNEL_COUNT] = {
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

bool cuda_succeeds(struct kernel_context *context, int result, const char *what)
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
	return cuda_succeeds(context,
		b->api->cuKernelSetAttribute(CUDA_FUNCTION_MAX_DYNAMIC_SHARED, (int)l->shared_bytes,
			b->kernels[l->kernel], b->device),
		cuda_kernel_names[l->kernel]);
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
			cuda_kernel_names[l->kernel], (long long)l->x, (long long)l->y,
			(long long)l->z);
		return;
	}
	if (!allow_shared(context, l))
		return;
	cuda_succeeds(context,
		b->api->cuLaunchKernel(kernel, (unsigned)l->x, (unsigned)l->y, (unsigned)l->z,
			(unsigned)l->threads, 1, 1, (unsigned)l->shared_bytes, context->stream,
			list, NULL),
		cuda_kernel_names[l->kernel]);
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
