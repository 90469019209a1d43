/* Matrix product and bias. */
#include "kernels/common/common.h"
#include "tests/kernels/reference/reference.h"

static double dot(const struct gemm *g, int64_t i, int64_t j)
{
	double sum = 0.0;

	for (int64_t p = 0; p < g->k; p++) {
		int64_t a = g->transpose_a ? p * g->lda + i : i * g->lda + p;
		int64_t b = g->transpose_b ? j * g->ldb + p : p * g->ldb + j;
		sum += (double)element_get(g->dtype, g->a, a) * element_get(g->dtype, g->b, b);
	}
	return sum;
}

void reference_gemm(struct kernel_context *context, const struct gemm *g)
{
	(void)context;
	for (int64_t i = 0; i < g->m; i++) {
		for (int64_t j = 0; j < g->n; j++) {
			int64_t at = i * g->ldc + j;
			double c = g->accumulate ? element_get(g->c_dtype, g->c, at) : 0.0;
			element_put(g->c_dtype, g->c, at, (float)(c + dot(g, i, j)));
		}
	}
}

void reference_bias_add(struct kernel_context *context, enum dtype dtype, void *y, const void *bias,
	int64_t rows, int64_t width)
{
	(void)context;
	for (int64_t i = 0; i < rows; i++) {
		for (int64_t j = 0; j < width; j++)
			element_put(dtype, y, i * width + j,
				element_get(dtype, y, i * width + j) + element_get(dtype, bias, j));
	}
}

void reference_bias_backward(struct kernel_context *context, enum dtype dbias_dtype, void *dbias,
	enum dtype dy_dtype, const void *dy, int64_t rows, int64_t width, bool accumulate)
{
	(void)context;
	for (int64_t j = 0; j < width; j++) {
		double sum = 0.0, before = accumulate ? element_get(dbias_dtype, dbias, j) : 0.0;
		for (int64_t i = 0; i < rows; i++)
			sum += element_get(dy_dtype, dy, i * width + j);
		/* As an epilogue does it, whose sums are numbers of their own before they are added
		 * to others. */
		if (dbias_dtype == DTYPE_FP32)
			sum = (float)sum;
		element_put(dbias_dtype, dbias, j, (float)(before + sum));
	}
}
