/* The tables of one level: the same kernels, with the matrix product by the built-in code or by a
 * library. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/library.h"

static bool open_context(struct kernel_context *context, struct error *error)
{
	if (context->workspace_bytes < KERNELS_WORKSPACE_BYTES)
		return error_set(error, EXIT_CODE_INTERNAL,
			"kernel workspace has %lld bytes, expected at least %d",
			(long long)context->workspace_bytes, KERNELS_WORKSPACE_BYTES);
	error_clear(&context->error);
	return true;
}

static void close_context(struct kernel_context *context)
{
	context->backend = NULL;
}

static void prepare_nothing(struct kernel_context *context, const struct gemm *g)
{
	(void)context;
	(void)g;
}

#define ROW(name, parameters) .name = REST(name),
#define TABLE(                                                                                     \
	table_name, library_name, open_function, close_function, prepare_function, gemm_function)  \
	{                                                                                          \
		.name = table_name, .library = library_name, .open = open_function,                \
		.close = close_function, .prepare_gemm = prepare_function, .gemm = gemm_function,  \
		KERNELS(ROW)                                                                       \
	}

const struct kernels CPU(builtin) = TABLE("cpu-" KERNELS_LEVEL_NAME, "built-in", open_context,
	close_context, prepare_nothing, CPU(gemm));

#if HAVE_ONEDNN
static bool open_onednn(struct kernel_context *context, struct error *error)
{
	return open_context(context, error) && onednn_open(error);
}

static void gemm_by_onednn(struct kernel_context *context, const struct gemm *g)
{
	if (!onednn_gemm(context, g))
		CPU(gemm)(context, g);
}

const struct kernels CPU(onednn) = TABLE(
	"cpu-onednn", "oneDNN", open_onednn, onednn_close, onednn_prepare, gemm_by_onednn);
#endif

#if HAVE_CBLAS
static bool open_cblas(struct kernel_context *context, struct error *error)
{
	return open_context(context, error) && cblas_open(error);
}

static void gemm_by_cblas(struct kernel_context *context, const struct gemm *g)
{
	if (!cblas_gemm(context, g))
		CPU(gemm)(context, g);
}

const struct kernels CPU(cblas) = TABLE(
	"cpu-cblas", "CBLAS", open_cblas, close_context, prepare_nothing, gemm_by_cblas);
#endif
