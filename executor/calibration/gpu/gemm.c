#include "executor/calibration/gpu/bench.h"

static int64_t up(int64_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

bool gpu_make_gemm(struct gpu_bench *g, enum dtype dtype, const struct product_shape *s,
	enum product_form form, struct kernel_case *c)
{
	int64_t width = dtype_bytes(dtype);
	bool ta = form == PRODUCT_WEIGHT_GRADIENT, tb = form == PRODUCT_FORWARD;
	/* The rows of what the layer gives, and of its gradient, lie as the executor lays them. */
	int64_t ldc = tb ? gpu_row(s->n) : s->n, lda = gpu_row(ta ? s->m : s->k);
	int64_t c_bytes = s->m * ldc * (ta ? 4 : width);
	int64_t a = up((ta ? s->k : s->m) * lda * width), b = up(s->n * s->k * width);

	*c = (struct kernel_case){.bench = &g->base,
		.of.gemm = {.m = s->m,
			.n = s->n,
			.k = s->k,
			.a = g->memory,
			.b = g->memory + a,
			.c = g->memory + a + b,
			.lda = lda,
			.ldb = tb ? s->k : s->n,
			.ldc = ldc,
			.transpose_a = ta,
			.transpose_b = tb,
			.dtype = dtype,
			.c_dtype = ta ? DTYPE_FP32 : dtype}};
	return a + b + c_bytes <= g->memory_bytes;
}
