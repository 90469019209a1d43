/* Measures matrix products one by one: the rate, and how it falls with each side. */
#include <math.h>
#include <stdlib.h>

#include "executor/calibration/bench.h"
#include "executor/calibration/kernel_case.h"
#include "kernels/kernels.h"

/* Products are measured around a cube of this side; smaller sides show how the rate falls. */
enum { SIDE = 512, SMALL_SIDES = 3 };
static const int64_t small_sides[SMALL_SIDES] = {16, 48, 128};

/* Holds the operands of one dtype, and the figures in the making. */
struct products {
	struct bench *bench;
	enum dtype dtype;
	void *a, *b;
	float *c; /* as wide as the widest result */
	double *flops, *half_m, *half_n, *half_k;
};

/* Returns FLOP/s of one shape, over the three ways in which training multiplies. Gradients of
 * weights are fp32. */
static double gemm_rate(const struct products *p, int64_t m, int64_t n, int64_t k)
{
	double seconds = 0;

	for (int form = 0; form < PRODUCT_FORMS; form++) {
		bool a = form == PRODUCT_WEIGHT_GRADIENT, b = form == PRODUCT_FORWARD;
		struct kernel_case c = {.bench = p->bench,
			.of.gemm = {.m = m,
				.n = n,
				.k = k,
				.a = p->a,
				.b = p->b,
				.c = p->c,
				.lda = a ? m : k,
				.ldb = b ? k : n,
				.ldc = n,
				.transpose_a = a,
				.transpose_b = b,
				.accumulate = a,
				.dtype = p->dtype,
				.c_dtype = a ? DTYPE_FP32 : p->dtype}};

		seconds += bench_time(p->bench, run_gemm, &c);
	}
	return PRODUCT_FORMS * 2.0 * (double)m * (double)n * (double)k / seconds;
}

/* With f(x) = x / (x + half), rate(x) / rate(SIDE) = r gives half. We take the middle one of
 * three. */
static double fit_half(const double *rates, double full)
{
	double halves[SMALL_SIDES];

	for (int i = 0; i < SMALL_SIDES; i++) {
		double x = (double)small_sides[i], r = rates[i] / full;
		double denominator = SIDE * r - x;

		halves[i] = denominator > 0 ? fmax(SIDE * x * (1 - r) / denominator, 0) : 0;
	}
	return measure_spread(halves, SMALL_SIDES).p50;
}

static void measure_products(struct products *p)
{
	double rates[3][SMALL_SIDES], full = gemm_rate(p, SIDE, SIDE, SIDE);

	for (int i = 0; i < SMALL_SIDES; i++) {
		rates[0][i] = gemm_rate(p, small_sides[i], SIDE, SIDE);
		rates[1][i] = gemm_rate(p, SIDE, small_sides[i], SIDE);
		rates[2][i] = gemm_rate(p, SIDE, SIDE, small_sides[i]);
	}
	*p->half_m = fit_half(rates[0], full);
	*p->half_n = fit_half(rates[1], full);
	*p->half_k = fit_half(rates[2], full);
	*p->flops =
		full * (1 + *p->half_m / SIDE) * (1 + *p->half_n / SIDE) * (1 + *p->half_k / SIDE);
	bench_say(p->bench,
		"matrix products in %s: %.1f GFLOP/s a core, halved at m %.0f, n %.0f, k %.0f",
		dtype_name(p->dtype), *p->flops / 1e9, *p->half_m, *p->half_n, *p->half_k);
}

void calibrate_products(struct bench *bench)
{
	struct calibration *c = bench->calibration;
	const int64_t n = (int64_t)SIDE * SIDE;
	float *floats[3];
	uint16_t *halves = malloc(2 * (size_t)n * sizeof(*halves));

	if (halves == NULL)
		base_out_of_memory(2 * (size_t)n * sizeof(*halves));
	for (int i = 0; i < 3; i++)
		floats[i] = bench_floats(n);
	for (int64_t i = 0; i < 2 * n; i++)
		halves[i] = bf16_from_float(floats[0][i % n]);
	struct products fp32 = {bench, DTYPE_FP32, floats[0], floats[1], floats[2], &c->gemm_flops,
		&c->gemm_half_m, &c->gemm_half_n, &c->gemm_half_k};
	measure_products(&fp32);
	struct products bf16 = {bench, DTYPE_BF16, halves, halves + n, floats[2],
		&c->bf16_gemm_flops, &c->bf16_gemm_half_m, &c->bf16_gemm_half_n,
		&c->bf16_gemm_half_k};
	measure_products(&bf16);
	for (int i = 0; i < 3; i++)
		free(floats[i]);
	free(halves);
}
