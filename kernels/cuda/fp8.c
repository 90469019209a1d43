/* Products in fp8: copies of both operands with rows along what is summed over, which is how
 * Hopper's products read them, and the scales of these. */
#include "kernels/cuda/gemm.h"

enum { THREADS = 256, LEAST_ROWWISE = 120900, TURNED_BYTES = CUDA_FP8_TILE * (CUDA_FP8_TILE + 16) };

/* An operand as it is stored, its rows along k (or across), and where its copy goes. */
struct operand {
	const void *x;
	int64_t rows, k, stride; /* of the copy; of x */
	bool across;
	enum fp8_format format;
	void *copy;
	int32_t *largest;
	float *undo;
};

static void operands_of(const struct gemm *g, const struct gemm_fp8 *how, struct operand pair[2])
{
	char *copies = how->copies;
	int32_t *largest = (int32_t *)(copies + (g->m + g->n) * g->k);
	float *undo = (float *)(largest + g->m + g->n);

	pair[0] = (struct operand){.x = g->a,
		.rows = g->m,
		.k = g->k,
		.stride = g->lda,
		.across = g->transpose_a,
		.format = how->a,
		.copy = copies,
		.largest = largest,
		.undo = undo};
	pair[1] = (struct operand){.x = g->b,
		.rows = g->n,
		.k = g->k,
		.stride = g->ldb,
		.across = !g->transpose_b,
		.format = how->b,
		.copy = copies + g->m * g->k,
		.largest = largest + g->m,
		.undo = undo + g->m};
}

static void cast(struct kernel_context *context, const struct operand *o, bool by_rows)
{
	const struct fp8_launch a = {.x = o->x,
		.y = o->copy,
		.largest = o->largest,
		.undo = o->undo,
		.rows = o->across ? o->k : o->rows,
		.columns = o->across ? o->rows : o->k,
		.stride = o->stride,
		.transpose = o->across,
		.by_rows = by_rows,
		.format = (int32_t)o->format,
		.vector =
			cuda_aligned(o->x) && o->stride % cuda_lanes(DTYPE_BF16, DTYPE_BF16) == 0};
	struct launch launch = {.kernel = CUDA_fp8_largest,
		.x = cuda_blocks(a.columns, CUDA_FP8_TILE),
		.y = cuda_blocks(a.rows, CUDA_FP8_TILE),
		.z = 1,
		.threads = THREADS,
		.shared_bytes = CUDA_FP8_TILE * (int64_t)sizeof(int32_t)};

	cuda_launch(context, &launch, &a);
	launch.kernel = CUDA_fp8_cast;
	if (a.transpose)
		launch.shared_bytes += TURNED_BYTES;
	cuda_launch(context, &launch, &a);
}

/* cuBLASLt's fp8 kernels take nothing else. */
static bool fits(struct kernel_context *context, const struct gemm *g, const struct gemm_fp8 *how)
{
	const struct cuda_api *api = cuda_backend(context)->api;

	if (!cuda_open_cublaslt(context))
		return false;
	if (how->by_rows && api->cublasLtGetVersion() < LEAST_ROWWISE)
		return error_set(&context->error, EXIT_CODE_ENVIRONMENT,
			"cuda: --fp8 rowwise needs cuBLAS 12.9, this one is %d; use tensorwise",
			(int)api->cublasLtGetVersion());
	if ((g->m | g->n | g->k) % FP8_ALIGNMENT != 0 || !cuda_aligned(g->c) ||
		!cuda_aligned(how->copies) || g->ldc * dtype_bytes(g->c_dtype) % 16 != 0)
		return error_set(&context->error, EXIT_CODE_INTERNAL,
			"cuda: a product of %lld x %lld x %lld in fp8 is not aligned to 16",
			(long long)g->m, (long long)g->n, (long long)g->k);
	return true;
}

static void multiply(
	struct kernel_context *context, const struct gemm *g, const struct gemm_fp8 *how, bool now)
{
	struct operand pair[2];
	struct gemm copies = *g;

	if (g->m <= 0 || g->n <= 0 || context->error.message[0] != '\0' || !fits(context, g, how))
		return;
	operands_of(g, how, pair);
	if (now) {
		cuda_zero(context, DTYPE_FP32, pair[0].largest, g->m + g->n);
		cast(context, &pair[0], how->by_rows);
		cast(context, &pair[1], how->by_rows);
	}
	copies.a = pair[0].copy;
	copies.b = pair[1].copy;
	copies.lda = copies.ldb = g->k;
	copies.transpose_a = false;
	copies.transpose_b = true;
	copies.dtype = DTYPE_FP8;
	cuda_multiply_fp8(
		context, &copies, &(struct fp8_operands){*how, pair[0].undo, pair[1].undo}, now);
}

void cuda_gemm_fp8(struct kernel_context *context, const struct gemm *g, const struct gemm_fp8 *how)
{
	multiply(context, g, how, true);
}

void cuda_prepare_gemm_fp8(
	struct kernel_context *context, const struct gemm *g, const struct gemm_fp8 *how)
{
	multiply(context, g, how, false);
}
