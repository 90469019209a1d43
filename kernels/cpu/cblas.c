/* Matrix products by a CBLAS library, which is loaded when a context is opened: OpenBLAS starts a
 * thread a core as soon as it is there. It keeps buffers of its own, outside our workspace, which
 * it takes at its first call. */
#include <cblas.h>
#include <limits.h>

#include "base/base.h"
#include "kernels/common/common.h"
#include "kernels/cpu/library.h"

#ifdef OPENBLAS_VERSION
#define FUNCTIONS(X) X(cblas_sgemm) X(openblas_set_num_threads)
#else
#define FUNCTIONS(X) X(cblas_sgemm)
#endif

struct api {
#define X(name) __typeof__(name) *name;
	FUNCTIONS(X)
#undef X
};

static struct api api;

static void load(struct error *error)
{
#define X(name) {#name, offsetof(struct api, name)},
	static const struct symbol symbols[] = {FUNCTIONS(X)};
#undef X
	const char *missing = library_open(CBLAS_FILE, symbols, COUNT_OF(symbols), &api);

	if (missing != NULL)
		error_set(error, EXIT_CODE_ENVIRONMENT,
			"CBLAS cannot be used here: %s was not found; "
			"install the library that this was built with, or take the kernels `cpu`",
			missing);
}

static struct shared_library library = LIBRARY(load, &api);

bool cblas_open(struct error *error)
{
	return library_table(&library, error) != NULL;
}

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
	api.openblas_set_num_threads(context->threads > 1 ? context->threads : 1);
#else
	(void)context;
#endif
	api.cblas_sgemm(CblasRowMajor, g->transpose_a ? CblasTrans : CblasNoTrans,
		g->transpose_b ? CblasTrans : CblasNoTrans, (int)g->m, (int)g->n, (int)g->k, 1.0f,
		g->a, (int)g->lda, g->b, (int)g->ldb, g->accumulate ? 1.0f : 0.0f, g->c,
		(int)g->ldc);
	return true;
}
