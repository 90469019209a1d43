/* Matrix product and bias. */
#include "kernels/reference/reference.h"

static double dot(const struct gemm *g, int64_t i, int64_t j)
{
	double sum = 0.0;

	for (int64_t p = 0; p < g->k; p++) {
		double a = g->transpose_a ? g->a[p * g->lda + i] : g->a[i * g->lda + p];
		double b = g->transpose_b ? g->b[j * g->ldb + p] : g->b[p * g->ldb + j];
		sum += a * b;
	}
	return sum;
}

void reference_gemm(struct kernel_context *context, const struct gemm *g)
{
	(void)context;
	for (int64_t i = 0; i < g->m; i++) {
		for (int64_t j = 0; j < g->n; j++) {
			float *c = &g->c[i * g->ldc + j];
			*c = (float)((g->accumulate ? *c : 0.0) + dot(g, i, j));
		}
	}
}

void reference_bias_add(
	struct kernel_context *context, float *y, const float *bias, int64_t rows, int64_t width)
{
	(void)context;
	for (int64_t i = 0; i < rows; i++) {
		for (int64_t j = 0; j < width; j++)
			y[i * width + j] += bias[j];
	}
}

void reference_bias_backward(struct kernel_context *context, float *dbias, const float *dy,
	int64_t rows, int64_t width, bool accumulate)
{
	(void)context;
	for (int64_t j = 0; j < width; j++) {
		double sum = accumulate ? dbias[j] : 0.0;
		for (int64_t i = 0; i < rows; i++)
			sum += dy[i * width + j];
		dbias[j] = (float)sum;
	}
}
