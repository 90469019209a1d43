/* Matrix products by a CBLAS library. It keeps buffers of its own, outside our workspace, which it
 * takes at its first call. */
#include <cblas.h>
#include <limits.h>

#include "kernels/cpu/library.h"

static bool fits(const struct gemm *g)
{
	return g->dtype == DTYPE_FP32 && g->m > 0 && g->n > 0 && g->k > 0 && g->m <= INT_MAX &&
	       g->n <= INT_MAX && g->k <= INT_MAX && g->lda <= INT_MAX && g->ldb <= INT_MAX &&
	       g->ldc <= INT_MAX;
}

bool cblas_gemm(struct kernel_context *context, const struct gemm *g)
{
	if (!fits(g))
		return false;
#ifdef OPENBLAS_VERSION
	openblas_set_num_threads(context->threads > 1 ? context->threads : 1);
#else
	(void)context;
#endif
	cblas_sgemm(CblasRowMajor, g->transpose_a ? CblasTrans : CblasNoTrans,
		g->transpose_b ? CblasTrans : CblasNoTrans, (int)g->m, (int)g->n, (int)g->k, 1.0f,
		g->a, (int)g->lda, g->b, (int)g->ldb, g->accumulate ? 1.0f : 0.0f, g->c,
		(int)g->ldc);
	return true;
}
