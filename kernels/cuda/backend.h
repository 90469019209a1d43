/* The backend of a context, how its kernels are launched, and the members of the table. */
#ifndef KERNELS_CUDA_BACKEND_H
#define KERNELS_CUDA_BACKEND_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/device.h"

struct cuda_product;
struct cuda_attention_plan;

struct cuda_backend {
	const struct cuda_api *api;
	void *library;
	void *kernels[CUDA_KERNEL_COUNT];
	int64_t shared_allowed[CUDA_KERNEL_COUNT]; /* where more than 48 KiB were asked for */
	int device;
	int shared_most;                  /* bytes that a block may ask for */
	int multiprocessors, cache_bytes; /* of all of them together */
	int32_t *fault;                   /* on the device: see cuda_faults */
	void *cublaslt;                   /* handle; NULL until the first product */
	struct cuda_product *products;
	int n_products, room;
	int candidate; /* which of cuBLASLt's proposals is taken; 0, the first, but for benchmarks
			*/
	struct gemm_choice *choices; /* the caller's: used instead of the first heuristic result */
	int n_choices;
	struct attention_choice *attention_choices; /* the caller's: cuDNN instead of our kernel */
	int n_attention_choices;
	void *cudnn; /* handle; NULL until something was chosen */
	struct cuda_attention_plan *attention_plans;
};

/* --- members of the table and of its struct device_kernels --- */

bool cuda_gemm_epilogue(struct kernel_context *, const struct gemm *, const struct gemm_epilogue *);
bool cuda_prepare_gemm_epilogue(
	struct kernel_context *, const struct gemm *, const struct gemm_epilogue *);
void cuda_gemm_fp8(struct kernel_context *, const struct gemm *, const struct gemm_fp8 *);
void cuda_prepare_gemm_fp8(struct kernel_context *, const struct gemm *, const struct gemm_fp8 *);
int cuda_gemm_algorithms(
	struct kernel_context *, const struct gemm *, struct gemm_algorithm *algorithms, int most);
void cuda_choose_gemms(struct kernel_context *, struct gemm_choice *choices, int n);
int64_t cuda_gemm_version(struct kernel_context *);
int cuda_attention_algorithms(struct kernel_context *, enum attention_pass,
	const struct attention_backward *shape, struct attention_algorithm *algorithms,
	int64_t *workspace_bytes, int most);
void cuda_choose_attention(struct kernel_context *, struct attention_choice *choices, int n);
int64_t cuda_attention_version(struct kernel_context *);
#define X(name, parameters) void cuda_##name parameters;
KERNELS(X)
#undef X
#define X(name, parameters) void cuda_device_##name parameters;
DEVICE_KERNELS(X)
#undef X

struct launch {
	enum cuda_kernel kernel;
	int64_t x, y, z; /* blocks */
	int64_t threads, shared_bytes;
};

/* Nothing after an error in the context; nothing when there are no blocks. `arguments` is the
 * kernel's struct of launches.h. */
void cuda_launch(
	struct kernel_context *context, const struct launch *launch, const void *arguments);
struct cuda_backend *cuda_backend(const struct kernel_context *context);
extern const char *const cuda_kernel_names[CUDA_KERNEL_COUNT];
/* False, with the context's error set, where a call of the driver failed. */
bool cuda_succeeds(struct kernel_context *context, int result, const char *what);
bool cuda_aligned(const void *pointer);
/* Elements of a pack of 16 bytes; of the narrower rule for two types (device/elements.cuh, lanes).
 */
int64_t cuda_lanes(enum dtype a, enum dtype b);
/* The kernel for that type: `fp32` or the one behind it; for pairs fp32_fp32 or one of three. */
enum cuda_kernel cuda_typed(enum cuda_kernel fp32, enum dtype dtype);
enum cuda_kernel cuda_paired(enum cuda_kernel fp32_fp32, enum dtype written, enum dtype read);
/* Threads for rows of `packs` packs: whole warps, no more than `most`. */
int64_t cuda_threads(int64_t packs, int64_t most);
/* Writes `count` words to device memory, in the order of the stream. */
void cuda_store(struct kernel_context *context, void *to, const uint64_t *words, int64_t count);

static inline int64_t cuda_blocks(int64_t n, int64_t per_block)
{
	return (n + per_block - 1) / per_block;
}

void cuda_close_products(struct cuda_backend *backend);
void cuda_prepare_gemm(struct kernel_context *, const struct gemm *);
void cuda_gemm(struct kernel_context *, const struct gemm *);
/* Some sequences of attention and some of its groups of heads, each group with its own keys. */
struct attention_part {
	int64_t first_sequence, sequences, first_group, groups;
};
/* Rows stay where they are: those of its lse have the whole's heads. */
struct attention_backward cuda_attention_part(
	const struct attention_backward *backward, struct attention_part part);
/* attention_cudnn.c: false, and nothing done, where ours is to do it. */
bool cuda_attention_by_choice(struct kernel_context *, const struct attention *);
bool cuda_attention_backward_by_choice(struct kernel_context *, const struct attention_backward *);
void cuda_close_attention(struct cuda_backend *backend);

#endif
