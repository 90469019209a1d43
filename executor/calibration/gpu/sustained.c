/* Measures what is left of the rate of products after a while. A GPU that computes without a pause
 * comes to its power limit and clocks down, further as it grows hot, while the products of the
 * table were timed for a tenth of a second each. So a layer's products are run for long, as in a
 * step: between them memory is moved for a quarter of the time, which draws less power. */
#include "executor/calibration/gpu/bench.h"

#include <math.h>

enum { CHUNKS = 256 };

/* Seconds until it is as hot as it will be, and seconds that are then looked at. */
#define HEAT_QUICK  2.0
#define HEAT_FULL   10.0
#define WATCH_QUICK 1.0
#define WATCH_FULL  5.0
#define CHUNK       0.1
/* Time of moving memory over that of products. */
#define MEMORY_PART (1.0 / 3)

struct load {
	struct gpu_bench *gpu;
	struct kernel_case products[PRODUCT_FORMS];
	double alone;             /* seconds of these products, as in the table */
	int64_t elements, copies; /* how many are moved behind each product, and how often */
	int repeats, done;
	struct gpu_facts facts; /* those noted while it was under way */
};

struct chunks {
	int n;
	double seconds[CHUNKS], clocks[CHUNKS], watts[CHUNKS];
};

/* Returns how long this shape takes by the table, or 0 if the table does not have it. */
static double seconds_alone(const struct calibration *c, const struct product_shape *s)
{
	for (int i = 0; i < c->n_products; i++) {
		const struct calibration_product *p = &c->products[i];

		if (p->dtype == DTYPE_BF16 && p->m == s->m && p->n == s->n && p->k == s->k)
			return bench_flops(s) / p->flops;
	}
	return 0;
}

/* The product must fit into the first half of the memory. */
static bool fits(const struct gpu_bench *g, const struct gemm *gemm)
{
	const char *end = (const char *)gemm->c + gemm->m * gemm->ldc * dtype_bytes(gemm->c_dtype);

	return end - g->memory <= g->memory_bytes / 2;
}

static bool make_products(struct gpu_bench *g, int64_t tokens, struct load *load)
{
	enum { WIDTH = 4096 };

	load->alone = 0;
	for (int form = 0; form < PRODUCT_FORMS; form++) {
		const struct product_shape s =
			bench_layer_shape(tokens, WIDTH, WIDTH, (enum product_form)form);
		double seconds = seconds_alone(g->base.calibration, &s);

		if (seconds <= 0 ||
			!gpu_make_gemm(g, DTYPE_BF16, &s, (enum product_form)form,
				&load->products[form]) ||
			!fits(g, &load->products[form].of.gemm))
			return false;
		load->alone += seconds;
	}
	return true;
}

/* Copies from the first half to the second, so that operands stay what they are. */
static void run_copy(void *data)
{
	struct load *load = data;
	struct bench *b = &load->gpu->base;
	char *memory = load->gpu->memory;

	b->kernels->copy(&b->context, DTYPE_BF16, memory + load->gpu->memory_bytes / 2, memory,
		load->elements);
}

/* Asks the driver for the last time while the GPU still has to do most of what it was given. */
static void run_load(void *data)
{
	struct load *load = data;

	for (int form = 0; form < PRODUCT_FORMS; form++) {
		run_gemm(&load->products[form]);
		for (int64_t i = 0; i < load->copies; i++)
			run_copy(load);
	}
	if (++load->done == load->repeats)
		gpu_facts_read(&load->facts);
}

static bool watch(struct gpu_bench *g, struct load *load, struct chunks *chunks, double heat,
	struct error *error)
{
	double all = heat + (g->base.options->quick ? WATCH_QUICK : WATCH_FULL);
	double seconds = 0, total = 0;

	while (total < all && chunks->n < CHUNKS) {
		load->done = 0;
		if (!gpu_sample(g, run_load, load, load->repeats, &seconds, error))
			return false;
		total += load->repeats * seconds;
		if (total < heat)
			continue;
		chunks->clocks[chunks->n] = load->facts.clock_mhz;
		chunks->watts[chunks->n] = load->facts.watts;
		chunks->seconds[chunks->n++] = seconds;
	}
	return true;
}

static void say(const struct gpu_bench *g, double heated)
{
	const struct calibration *c = g->base.calibration;

	bench_say(&g->base,
		"products as in a step run at %.1f %% of that after %.0f s (within %.1f %%; "
		"%d MHz, %d W; 0: unknown)",
		100 * c->sustained_clock, heated, 100 * c->sustained_spread, g->clock_mhz,
		g->watts);
}

static void conclude(
	struct gpu_bench *g, const struct load *load, double copying, struct chunks *chunks)
{
	struct calibration *c = g->base.calibration;
	struct spread spread = measure_spread(chunks->seconds, chunks->n);

	c->sustained_clock = fmin(load->alone / fmax(spread.p50 - copying, load->alone / 10), 1);
	c->sustained_spread = (spread.p90 - spread.p10) / 2 / spread.p50;
	g->clock_mhz = (int)measure_spread(chunks->clocks, chunks->n).p50;
	g->watts = (int)measure_spread(chunks->watts, chunks->n).p50;
}

bool calibrate_gpu_sustained(struct gpu_bench *g, struct error *error)
{
	struct load load = {.gpu = g, .elements = g->memory_bytes / 2 / 2};
	struct chunks chunks = {0};
	double heat = g->base.options->quick ? HEAT_QUICK : HEAT_FULL, copy;

	/* There are so many tokens as fill the GPU, or as fit. */
	if (!make_products(g, 65536, &load) && !make_products(g, 4096, &load))
		return error_set(error, EXIT_CODE_INTERNAL, "no room for a layer's products");
	if (!gpu_fill(g, error) || !gpu_time(g, run_copy, &load, &copy, error))
		return false;
	load.copies = (int64_t)fmax(round(load.alone * MEMORY_PART / PRODUCT_FORMS / copy), 1);
	double copying = PRODUCT_FORMS * (double)load.copies * copy;
	load.repeats = (int)fmin(fmax(CHUNK / (load.alone + copying), 1), 1000);
	if (!watch(g, &load, &chunks, heat, error))
		return false;
	conclude(g, &load, copying, &chunks);
	say(g, heat);
	return true;
}
