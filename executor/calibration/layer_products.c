/* Times matrix products as a training step has them: one after the other, with weights that no
 * cache holds. A product that is repeated alone finds its weights in a cache. Each is timed by
 * shape, on one core and on all. */
#include <math.h>
#include <stdlib.h>

#include "executor/calibration/bench.h"
#include "executor/ranks/ranks.h"
#include "kernels/kernels.h"

/* The widths of a block's linears are multiples of its own width; the head comes last. */
enum { VOCABULARY = 16384, LINEARS = 5, HEAD = LINEARS - 1, MOST_WIDTH = 512 };
static const int64_t linears[HEAD][2] = {{3, 1}, {1, 1}, {4, 1}, {1, 4}};

/* There are few tokens to many, and fewer for the head, as its time grows with the vocabulary. What
 * is narrow stays in caches from one pass to the next, as all of a small model does. */
static const struct stage {
	int64_t width, tokens;
	bool head, cold;
} stages[] = {{512, 64, true, true}, {512, 256, true, true}, {512, 1024, false, true},
	{192, 256, false, false}};
enum { STAGES = 4, MOST_HEAD_TOKENS = 256, QUICK_STAGE = 1, REPEATS = 3 };

/* This is more than most third-level caches hold. A sweep over it takes the place of everything. */
enum { SWEEP_FLOATS = 24 << 20 };

struct timed_product {
	struct product_shape shape;
	double one, all; /* seconds on one core, and on all */
};
enum { MOST_PRODUCTS = STAGES * LINEARS * PRODUCT_FORMS };

struct shapes {
	struct bench *bench;
	enum dtype dtype;
	double *flops, half_m, half_n, half_k; /* of the calibration's figures for this dtype */
	float *sweep;
	char *weights, *gradients, *inputs, *outputs; /* gradients are fp32 */
	int n;
	struct timed_product list[MOST_PRODUCTS];
};

static int linears_of(const struct stage *stage)
{
	return stage->head ? LINEARS : HEAD;
}

static int64_t out_of(const struct stage *stage, int linear)
{
	return linear == HEAD ? VOCABULARY : linears[linear][0] * stage->width;
}

static int64_t in_of(const struct stage *stage, int linear)
{
	return linear == HEAD ? stage->width : linears[linear][1] * stage->width;
}

static void sweep(const struct shapes *s, const struct stage *stage)
{
	const int64_t half = SWEEP_FLOATS / 2;

	if (stage->cold)
		s->bench->kernels->add(
			&s->bench->context, DTYPE_FP32, s->sweep, s->sweep, s->sweep + half, half);
}

/* Returns the product of a linear whose weight begins `at` elements into the weights. */
static struct gemm product_of(const struct shapes *s, const struct stage *stage, int linear,
	int64_t at, enum product_form form)
{
	int64_t out = out_of(stage, linear), in = in_of(stage, linear), tokens = stage->tokens;
	const char *weight = s->weights + at * dtype_bytes(s->dtype);
	struct gemm g = {.dtype = s->dtype, .c_dtype = s->dtype, .m = tokens};

	if (form == PRODUCT_FORWARD) {
		g.n = g.ldc = out, g.k = g.lda = g.ldb = in;
		g.a = s->inputs, g.b = weight, g.c = s->outputs, g.transpose_b = true;
	} else if (form == PRODUCT_INPUT_GRADIENT) {
		g.n = g.ldb = g.ldc = in, g.k = g.lda = out;
		g.a = s->outputs, g.b = weight, g.c = s->inputs;
	} else {
		g.m = g.lda = out, g.n = g.ldb = g.ldc = in, g.k = tokens;
		g.a = s->outputs, g.b = s->inputs, g.transpose_a = true;
		g.c = s->gradients + at * (int64_t)sizeof(float), g.c_dtype = DTYPE_FP32;
	}
	return g;
}

/* Returns seconds. */
static double time_product(const struct shapes *s, const struct gemm *g)
{
	double start = clock_now();

	s->bench->kernels->gemm(&s->bench->context, g);
	return clock_now() - start;
}

/* Goes forward through all linears and back, as a step does. */
static void pass(
	const struct shapes *s, const struct stage *stage, double times[LINEARS][PRODUCT_FORMS])
{
	int64_t at = 0;
	struct gemm g;

	sweep(s, stage);
	for (int i = 0; i < linears_of(stage); i++) {
		g = product_of(s, stage, i, at, PRODUCT_FORWARD);
		times[i][PRODUCT_FORWARD] = time_product(s, &g);
		at += out_of(stage, i) * in_of(stage, i);
	}
	sweep(s, stage);
	for (int i = linears_of(stage) - 1; i >= 0; i--) {
		at -= out_of(stage, i) * in_of(stage, i);
		for (int form = PRODUCT_INPUT_GRADIENT; form < PRODUCT_FORMS; form++) {
			g = product_of(s, stage, i, at, (enum product_form)form);
			times[i][form] = time_product(s, &g);
		}
	}
}

static int repeats_of(const struct shapes *s)
{
	return s->bench->options->quick ? 1 : REPEATS;
}

/* Finds one figure for each product, in the order of linears and forms. */
static void time_stage(const struct shapes *s, const struct stage *stage, int threads,
	double figures[LINEARS][PRODUCT_FORMS])
{
	double times[REPEATS][LINEARS][PRODUCT_FORMS], values[REPEATS];
	int n = repeats_of(s);

	s->bench->context.threads = threads;
	pass(s, stage, times[0]); /* warms up */
	for (int r = 0; r < n; r++)
		pass(s, stage, times[r]);
	s->bench->context.threads = 1;
	for (int i = 0; i < linears_of(stage); i++) {
		for (int form = 0; form < PRODUCT_FORMS; form++) {
			for (int r = 0; r < n; r++)
				values[r] = times[r][i][form];
			struct spread spread = measure_spread(values, n);
			figures[i][form] = bench_figure(s->bench, FIGURE_TIME, &spread);
		}
	}
}

static void measure_stage(struct shapes *s, const struct stage *stage)
{
	double one[LINEARS][PRODUCT_FORMS], all[LINEARS][PRODUCT_FORMS];

	time_stage(s, stage, 1, one);
	time_stage(s, stage, (int)machine_cpus(), all);
	for (int i = 0; i < linears_of(stage); i++) {
		for (int form = 0; form < PRODUCT_FORMS; form++)
			s->list[s->n++] = (struct timed_product){
				bench_layer_shape(stage->tokens, out_of(stage, i), in_of(stage, i),
					(enum product_form)form),
				one[i][form], all[i][form]};
	}
}

/* --- what they say --- */

static double saturation(double size, double half)
{
	return size / (size + half);
}

/* Returns the time of arithmetic by saturation, and the traffic of operands, as in
 * simulator/devices/gemm.c. */
static double arithmetic_of(const struct shapes *s, const struct product_shape *p)
{
	return bench_flops(p) /
	       (*s->flops * saturation((double)p->m, s->half_m) *
		       saturation((double)p->n, s->half_n) * saturation((double)p->k, s->half_k));
}

static double memory_of(const struct shapes *s, const struct product_shape *p, double bandwidth)
{
	double m = (double)p->m, n = (double)p->n, k = (double)p->k;

	return (m * k + k * n + m * n) * dtype_bytes(s->dtype) / bandwidth;
}

/* Returns what is left of `seconds` without memory. That is at least a quarter, because
 * measurements scatter. */
static double without(double seconds, double memory)
{
	return fmax(seconds - memory, seconds / 4);
}

/* gemm_flops becomes that of the middle one, so what the list says of others are ratios around
 * 1. */
static double scale_to_shapes(struct shapes *s)
{
	double parts[MOST_PRODUCTS], bandwidth = s->bench->calibration->memory_bandwidth;

	for (int i = 0; i < s->n; i++) {
		const struct timed_product *p = &s->list[i];
		parts[i] = arithmetic_of(s, &p->shape) /
			   without(p->one, memory_of(s, &p->shape, bandwidth));
	}
	double part = measure_spread(parts, s->n).p50;
	*s->flops *= part;
	return part;
}

/* Returns how much faster arithmetic is on all cores, in the middle. The rest waits for memory,
 * which all cores share. */
static double speedup_of(const struct shapes *s)
{
	const struct calibration *c = s->bench->calibration;
	double speedups[MOST_PRODUCTS];
	double shared =
		fmin(c->memory_bandwidth * (double)machine_cpus(), c->memory_bandwidth_shared);

	for (int i = 0; i < s->n; i++) {
		const struct timed_product *p = &s->list[i];
		double arithmetic = arithmetic_of(s, &p->shape);
		double ratio = p->one / (arithmetic + memory_of(s, &p->shape, c->memory_bandwidth));

		speedups[i] = ratio * arithmetic /
			      without(p->all, ratio * memory_of(s, &p->shape, shared));
	}
	return fmax(measure_spread(speedups, s->n).p50, 1);
}

static void keep_products(const struct shapes *s)
{
	for (int i = 0; i < s->n; i++) {
		const struct timed_product *p = &s->list[i];

		bench_keep_product(
			s->bench, s->dtype, &p->shape, bench_flops(&p->shape) / p->one, 0);
	}
}

static void fill(struct shapes *s)
{
	const int64_t activations = MOST_HEAD_TOKENS * VOCABULARY;
	const int64_t n = 12 * MOST_WIDTH * MOST_WIDTH + VOCABULARY * MOST_WIDTH;
	char **arrays[] = {&s->weights, &s->inputs, &s->outputs};

	s->sweep = bench_floats(SWEEP_FLOATS);
	s->gradients = (char *)bench_floats(n);
	for (int i = 0; i < COUNT_OF(arrays); i++) {
		int64_t elements = i == 0 ? n : activations;
		float *floats = bench_floats(elements);

		*arrays[i] = (char *)floats;
		for (int64_t j = 0; j < elements && s->dtype == DTYPE_BF16; j++)
			((uint16_t *)floats)[j] = bf16_from_float((float)(j % 17 - 8) / 64);
	}
}

static void release(struct shapes *s)
{
	free(s->sweep);
	free(s->weights);
	free(s->gradients);
	free(s->inputs);
	free(s->outputs);
}

/* Returns the speedup on all cores. */
static double measure_dtype(struct shapes *s, double *part)
{
	fill(s);
	for (int i = 0; i < STAGES; i++)
		if (!s->bench->options->quick || i == QUICK_STAGE)
			measure_stage(s, &stages[i]);
	release(s);
	*part = scale_to_shapes(s);
	keep_products(s);
	return speedup_of(s);
}

void calibrate_shapes(struct bench *bench)
{
	struct calibration *c = bench->calibration;
	struct shapes fp32 = {
		bench, DTYPE_FP32, &c->gemm_flops, c->gemm_half_m, c->gemm_half_n, c->gemm_half_k};
	struct shapes bf16 = {bench, DTYPE_BF16, &c->bf16_gemm_flops, c->bf16_gemm_half_m,
		c->bf16_gemm_half_n, c->bf16_gemm_half_k};
	double parts[2], speedups[2];

	/* These are of an earlier visit, whose figures are in the new ones. */
	c->n_products = 0;
	c->products = ARENA_ARRAY(bench->arena, struct calibration_product, CALIBRATION_PRODUCTS);
	speedups[0] = measure_dtype(&fp32, &parts[0]);
	speedups[1] = measure_dtype(&bf16, &parts[1]);
	c->threads_speedup = sqrt(speedups[0] * speedups[1]);
	bench_say(bench,
		"products of a step: %.2f of that, %.2f in bf16; "
		"on all %d cores %.2f times as fast",
		parts[0], parts[1], (int)machine_cpus(), c->threads_speedup);
}
