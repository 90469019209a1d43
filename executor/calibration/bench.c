/* Times things again and again, and keeps what the times say. */
#include "executor/calibration/bench.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/ranks/ranks.h"

enum { MAX_REPEATS = 200, LEAST_REPEATS = 3 };

void bench_say(const struct bench *bench, const char *format, ...)
{
	char line[256];
	va_list args;

	if (bench->options->report == NULL)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	bench->options->report(line, bench->options->report_data);
}

void bench_note_spread(struct bench *bench, const struct spread *spread)
{
	/* This is half of the 80 % interval, in units of a standard deviation (1.28 of them). */
	bench->spread += (spread->p90 - spread->p10) / 2 / 1.28 / spread->p50;
	bench->n_spreads++;
}

/* Sorts the values and returns the middle one. */
static double middle(double *values, int n)
{
	return measure_spread(values, n).p50;
}

double bench_figure(struct bench *bench, enum figure what, const struct spread *spread)
{
	assert(bench->visit < CALIBRATION_VISITS && bench->figure < CALIBRATE_FIGURES);
	double *seen = bench->figures[bench->figure++], values[CALIBRATION_VISITS];

	bench_note_spread(bench, spread);
	seen[bench->visit] = what == FIGURE_TIME ? spread->p50 : 1 / spread->p50;
	memcpy(values, seen, sizeof(values));
	double seconds = middle(values, bench->visit + 1);
	return what == FIGURE_TIME ? seconds : 1 / seconds;
}

void bench_conclude(struct bench *bench, int visits)
{
	struct calibration *c = bench->calibration;
	double levels[CALIBRATE_FIGURES * CALIBRATION_VISITS], values[CALIBRATION_VISITS];
	int n = 0;

	c->residual_spread = bench->n_spreads > 0 ? bench->spread / bench->n_spreads : 0;
	if (bench->n_collectives > 0)
		c->collective_best = fmin(bench->collective_best / bench->n_collectives, 1);
	if (visits < 2)
		return;
	for (int i = 0; i < bench->figure; i++) {
		memcpy(values, bench->figures[i], sizeof(values));
		double typical = middle(values, visits);
		for (int v = 0; v < visits; v++)
			levels[n++] = bench->figures[i][v] / typical;
	}
	calibration_take_levels(c, levels, n, visits);
}

double bench_time(struct bench *bench, void (*run)(void *data), void *data)
{
	double times[MAX_REPEATS], end = clock_now() + bench->budget;
	int n = 0;

	run(data);
	while (n < LEAST_REPEATS || (n < MAX_REPEATS && clock_now() < end)) {
		double start = clock_now();

		run(data);
		times[n++] = clock_now() - start;
	}
	struct spread spread = measure_spread(times, n);
	return bench_figure(bench, FIGURE_TIME, &spread);
}

struct product_shape bench_layer_shape(
	int64_t tokens, int64_t out, int64_t in, enum product_form form)
{
	const struct product_shape shapes[PRODUCT_FORMS] = {
		{tokens, out, in}, {tokens, in, out}, {out, in, tokens}};

	return shapes[form];
}

double bench_flops(const struct product_shape *s)
{
	return 2.0 * (double)s->m * (double)s->n * (double)s->k;
}

static double mean_of_times(double one, double other)
{
	return one > 0 && other > 0 ? 2 / (1 / one + 1 / other) : 0;
}

void bench_keep_product(struct bench *bench, enum dtype dtype, const struct product_shape *s,
	double flops, double chosen_flops)
{
	struct calibration *c = bench->calibration;
	const struct calibration_product product = {dtype, s->m, s->n, s->k, flops, chosen_flops};

	if (calibration_add_product(c, &product))
		return;
	for (int i = 0; i < c->n_products; i++) {
		struct calibration_product *p = &c->products[i];

		if (p->dtype != dtype || p->m != s->m || p->n != s->n || p->k != s->k)
			continue;
		p->flops = mean_of_times(p->flops, flops);
		p->chosen_flops = mean_of_times(p->chosen_flops, chosen_flops);
	}
}

float *bench_floats(int64_t n)
{
	float *floats = malloc((size_t)n * sizeof(float));

	if (floats == NULL)
		base_out_of_memory((size_t)n * sizeof(float));
	/* The values are of ordinary size, because zeros and denormals have a speed of their
	 * own. */
	for (int64_t i = 0; i < n; i++)
		floats[i] = (float)(i % 17 - 8) / 16;
	/* Training uses huge pages too. */
	huge_pages(floats, n * (int64_t)sizeof(float));
	return floats;
}
