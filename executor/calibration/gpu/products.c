/* Measures a GPU's matrix products.
 *
 * Products are fitted where the tiles of any library fill the multiprocessors evenly: m has 128
 * rows for each of them. What such a product of depth k takes is a line, 2 m n (k + half_k) /
 * flops, as in the simulator. Other shapes follow from their tiles, by how much the measured shapes
 * differ from that line (simulator/devices/product.c). */
#include "executor/calibration/gpu/bench.h"

#include <math.h>

enum { TILE = 128, FIT_N = 4096, CHUNKS = 256 };
static const int64_t depths[] = {256, 512, 1024, 2048, 4096, 8192};

/* These are the projections of GPT-2 124M and 1.5B and of Llama-2-7B, their heads, and a large
 * square, for as many tokens as small micro-batches have, and as those that fill a GPU's memory.
 * `wide` ones are timed in bf16 alone. */
static const struct layer {
	int64_t tokens, out, in;
	bool wide;
} layers[] = {{4096, 2304, 768, false}, {4096, 768, 3072, false}, {4096, 4800, 1600, false},
	{4096, 1600, 6400, false}, {4096, 4096, 4096, false}, {4096, 11008, 4096, false},
	{4096, 4096, 11008, false}, {8192, 8192, 8192, true}, {131072, 768, 768, true},
	{131072, 2304, 768, true}, {131072, 3072, 768, true}, {65536, 1600, 1600, true},
	{65536, 4800, 1600, true}, {65536, 6400, 1600, true}, {65536, 4096, 4096, true},
	{65536, 11008, 4096, true}, {16384, 50257, 768, true}, {16384, 50257, 1600, true},
	{16384, 32000, 4096, true}};

/* --- the line --- */

static struct product_shape filling(const struct gpu_bench *g, int64_t k)
{
	/* The number of tiles is even, for tiles of 256 rows. */
	return (struct product_shape){
		TILE * (g->multiprocessors + g->multiprocessors % 2), FIT_N, k};
}

/* t = (k + half) * slope, with relative errors. */
static void fit_line(const double *k, const double *t, int n, double *slope, double *half)
{
	double w = 0, wk = 0, wt = 0, wkk = 0, wkt = 0;

	for (int i = 0; i < n; i++) {
		double weight = 1 / (t[i] * t[i]);

		w += weight;
		wk += weight * k[i];
		wt += weight * t[i];
		wkk += weight * k[i] * k[i];
		wkt += weight * k[i] * t[i];
	}
	*slope = (w * wkt - wk * wt) / (w * wkk - wk * wk);
	*half = fmax((wt - *slope * wk) / w / *slope, 0);
}

static bool measure_line(
	struct gpu_bench *g, enum dtype dtype, double *flops, double *half, struct error *error)
{
	double k[COUNT_OF(depths)], t[COUNT_OF(depths)], slope;
	struct product_shape s = {0};
	int n = 0;

	if (!gpu_fill(g, error))
		return false;
	for (int i = 0; i < COUNT_OF(depths); i++) {
		struct kernel_case c;

		s = filling(g, depths[i]);
		if (!gpu_make_gemm(g, dtype, &s, PRODUCT_FORWARD, &c))
			break;
		if (!gpu_time(g, run_gemm, &c, &t[n], error))
			return false;
		k[n] = (double)depths[i];
		t[n] = fmax(t[n] - g->base.calibration->kernel_overhead, 0.1 * t[n]);
		n++;
	}
	if (n < 3)
		return error_set(error, EXIT_CODE_INTERNAL, "no room for three products");
	fit_line(k, t, n, &slope, half);
	*flops = 2.0 * (double)s.m * (double)s.n / slope;
	bench_say(&g->base, "matrix products in %s: %.1f TFLOP/s, k as if %.0f longer",
		dtype_name(dtype), *flops / 1e12, *half);
	return true;
}

/* --- the table --- */

/* Where nothing was chosen there is one figure only. */
static void drop_equal_rates(struct calibration *c)
{
	for (int i = 0; i < c->n_products; i++)
		if (c->products[i].chosen_flops <= c->products[i].flops)
			c->products[i].chosen_flops = 0;
}

static bool measure_layer(
	struct gpu_bench *g, enum dtype dtype, const struct layer *layer, struct error *error)
{
	double rates[PRODUCT_FORMS];

	/* Results lie where the next operands are, and fp32 read as bf16 is NaN here and there. */
	if (!gpu_fill(g, error))
		return false;
	for (int form = 0; form < PRODUCT_FORMS; form++) {
		const struct product_shape s = bench_layer_shape(
			layer->tokens, layer->out, layer->in, (enum product_form)form);
		struct kernel_case c;
		double seconds, chosen;

		if (!gpu_make_gemm(g, dtype, &s, (enum product_form)form, &c))
			return true;
		if (!gpu_time(g, run_gemm, &c, &seconds, error) ||
			!calibrate_gpu_choice(
				g, &c, (enum product_form)form, seconds, &chosen, error))
			return false;
		rates[form] = bench_flops(&s) / seconds;
		bench_keep_product(&g->base, dtype, &s, rates[form], bench_flops(&s) / chosen);
	}
	bench_say(&g->base,
		"  %s %6lld tokens, %5lld from %5lld: %7.1f TFLOP/s forward, %7.1f input gradient, "
		"%7.1f weight gradient",
		dtype_name(dtype), (long long)layer->tokens, (long long)layer->out,
		(long long)layer->in, rates[0] / 1e12, rates[1] / 1e12, rates[2] / 1e12);
	return true;
}

static bool measure_products(struct gpu_bench *g, struct error *error)
{
	static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_FP32};
	struct calibration *c = g->base.calibration;
	double flops = 0, half = 0;

	c->products = ARENA_ARRAY(g->base.arena, struct calibration_product,
		COUNT_OF(dtypes) * COUNT_OF(layers) * PRODUCT_FORMS);
	c->choices = ARENA_ARRAY(g->base.arena, struct calibration_choice, CALIBRATION_CHOICES);
	for (int d = 0; d < COUNT_OF(dtypes); d++) {
		if (!measure_line(g, dtypes[d], &flops, &half, error))
			return false;
		if (dtypes[d] == DTYPE_BF16) {
			c->gemm_flops = flops;
			c->gemm_half_k = half;
		}
		for (int i = 0; i < COUNT_OF(layers); i++)
			if ((dtypes[d] == DTYPE_BF16 || !layers[i].wide) &&
				!measure_layer(g, dtypes[d], &layers[i], error))
				return false;
	}
	drop_equal_rates(c);
	return true;
}

bool calibrate_gpu_kernels(struct gpu_bench *g, struct error *error)
{
	/* Copies from the GPU have written there. */
	gpu_make_values(g);
	return measure_products(g, error) && calibrate_gpu_sustained(g, error) &&
	       gpu_fill(g, error);
}
