/* Matrix products: by shape, in the order of a training step, and on all cores. */
#include <math.h>
#include <stdlib.h>

#include "executor/calibrate.h"
#include "executor/machine.h"
#include "kernels/bf16.h"

/* Products are measured around a cube of this side; smaller sides show how the rate falls. */
enum { SIDE = 512, SMALL_SIDES = 3 };
static const int64_t small_sides[SMALL_SIDES] = {16, 48, 128};

struct gemm_case {
	struct bench *bench;
	struct gemm gemm;
};

static void run_gemm(void *data)
{
	struct gemm_case *c = data;

	c->bench->kernels->gemm(&c->bench->context, &c->gemm);
}

enum form { FORM_FORWARD, FORM_INPUT_GRADIENT, FORM_WEIGHT_GRADIENT, FORM_COUNT };

/* Of one dtype: operands, and the figures in the making. */
struct products {
	struct bench *bench;
	enum dtype dtype;
	void *a, *b;
	float *c; /* as wide as the widest result */
	double *flops, *half_m, *half_n, *half_k;
};

/* FLOP/s of one shape, over the three ways in which training multiplies. Gradients of weights are
 * fp32. */
static double gemm_rate(const struct products *p, int64_t m, int64_t n, int64_t k)
{
	double seconds = 0;

	for (int form = 0; form < FORM_COUNT; form++) {
		bool a = form == FORM_WEIGHT_GRADIENT, b = form == FORM_FORWARD;
		struct gemm_case c = {p->bench, {.m = m,
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
	return FORM_COUNT * 2.0 * (double)m * (double)n * (double)k / seconds;
}

/* With f(x) = x / (x + half), rate(x) / rate(SIDE) = r gives half; the middle one of three. */
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

/* --- a row of layers --- */

/* The products of a training step, one after the other: each has operands of its own, most of them
 * out of the caches, as no product that is repeated alone has. */
enum { TOKENS = 256, WIDTH = 512, FFN = 2048, LINEARS = 4 };
static const int64_t linears[LINEARS][2] = {
	{3 * WIDTH, WIDTH}, {WIDTH, WIDTH}, {FFN, WIDTH}, {WIDTH, FFN}}; /* out, in */

struct layers {
	const struct products *products;
	char *weights, *gradients, *inputs, *outputs; /* gradients are fp32 */
	int64_t bytes;                                /* of an element */
};

static int layers_of(const struct products *p)
{
	return p->bench->options->quick ? 1 : 2;
}

static void run_linear(const struct layers *l, int64_t out, int64_t in, int64_t at, bool backward)
{
	const struct products *p = l->products;
	struct kernel_context *context = &p->bench->context;
	const struct kernels *kernels = p->bench->kernels;
	char *weight = l->weights + at * l->bytes, *x = l->inputs, *y = l->outputs;
	struct gemm g = {.dtype = p->dtype, .c_dtype = p->dtype, .m = TOKENS};

	if (!backward) {
		g.n = g.ldc = out, g.k = g.lda = g.ldb = in;
		g.a = x, g.b = weight, g.c = y, g.transpose_b = true;
		kernels->gemm(context, &g);
		return;
	}
	g.n = g.ldb = g.ldc = in, g.k = g.lda = out;
	g.a = y, g.b = weight, g.c = x;
	kernels->gemm(context, &g);
	g.m = out, g.k = TOKENS, g.transpose_a = true, g.c_dtype = DTYPE_FP32;
	g.b = x, g.c = l->gradients + at * (int64_t)sizeof(float);
	kernels->gemm(context, &g);
}

static void run_layers(void *data)
{
	const struct layers *l = data;
	int n = layers_of(l->products) * LINEARS;
	int64_t at = 0;

	for (int i = 0; i < n; i++) {
		run_linear(l, linears[i % LINEARS][0], linears[i % LINEARS][1], at, false);
		at += linears[i % LINEARS][0] * linears[i % LINEARS][1];
	}
	for (int i = n - 1; i >= 0; i--) {
		at -= linears[i % LINEARS][0] * linears[i % LINEARS][1];
		run_linear(l, linears[i % LINEARS][0], linears[i % LINEARS][1], at, true);
	}
}

static double saturation(double size, double half)
{
	return size / (size + half);
}

/* What the figures so far say of the same products (simulator/gemm.c: arithmetic by saturation, and
 * the traffic of the operands). */
static void expect_layers(const struct products *p, double *arithmetic, double *memory)
{
	double bytes = dtype_bytes(p->dtype), t = TOKENS;

	*arithmetic = *memory = 0;
	for (int i = 0; i < LINEARS; i++) {
		double out = (double)linears[i][0], in = (double)linears[i][1];
		double shapes[FORM_COUNT][3] = {{t, out, in}, {t, in, out}, {out, in, t}};

		for (int f = 0; f < FORM_COUNT; f++) {
			double m = shapes[f][0], n = shapes[f][1], k = shapes[f][2];

			*arithmetic +=
				2 * m * n * k /
				(*p->flops * saturation(m, *p->half_m) * saturation(n, *p->half_n) *
					saturation(k, *p->half_k));
			*memory += bytes * (m * k + k * n + m * n);
		}
	}
	*arithmetic *= layers_of(p);
	*memory *= layers_of(p);
}

static double layers_time(struct products *p, int threads)
{
	int64_t n = 0;
	struct bench *bench = p->bench;
	struct layers l = {.products = p, .bytes = dtype_bytes(p->dtype)};

	for (int i = 0; i < LINEARS; i++)
		n += layers_of(p) * linears[i][0] * linears[i][1];
	float *floats[4] = {bench_floats(n), bench_floats(n), bench_floats(TOKENS * FFN),
		bench_floats(TOKENS * FFN)};
	for (int i = 0; i < 4 && p->dtype == DTYPE_BF16; i++)
		for (int64_t j = 0; j < (i < 2 ? n : TOKENS * FFN); j++)
			((uint16_t *)floats[i])[j] = bf16_from_float((float)(j % 17 - 8) / 64);
	l.weights = (char *)floats[0], l.gradients = (char *)floats[1];
	l.inputs = (char *)floats[2], l.outputs = (char *)floats[3];
	bench->context.threads = threads;
	double seconds = bench_time(bench, run_layers, &l);
	bench->context.threads = 1;
	for (int i = 0; i < 4; i++)
		free(floats[i]);
	return seconds;
}

/* Beside products alone: how much slower they are in a row (the better the caches, the less), and
 * how much faster on all cores. */
static double measure_row(struct products *p, double *speedup)
{
	const struct calibration *c = p->bench->calibration;
	int cores = (int)machine_cpus();
	double arithmetic, bytes, one = layers_time(p, 1), all = layers_time(p, cores);

	expect_layers(p, &arithmetic, &bytes);
	double alone = fmax(one - bytes / c->memory_bandwidth, one / 4);
	double together = fmax(all - bytes / c->memory_bandwidth_shared, all / 4);
	*speedup = fmax(alone / together, 1);
	return arithmetic / alone;
}

static void calibrate_rows(struct products *fp32, struct products *bf16)
{
	struct calibration *c = fp32->bench->calibration;
	double speedups[2], part = measure_row(fp32, &speedups[0]);
	double half = measure_row(bf16, &speedups[1]);

	*fp32->flops *= part;
	*bf16->flops *= half;
	c->threads_speedup = sqrt(speedups[0] * speedups[1]);
	bench_say(fp32->bench,
		"products in a row: %.2f of that, %.2f in bf16; on all %d cores %.2f times as fast",
		part, half, (int)machine_cpus(), c->threads_speedup);
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
	calibrate_rows(&fp32, &bf16);
	for (int i = 0; i < 3; i++)
		free(floats[i]);
	free(halves);
}
