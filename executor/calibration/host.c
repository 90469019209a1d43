/* Measures this machine: what a core computes and moves, and what collectives between ranks cost.
 */
#include "executor/calibration/bench.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "executor/compute/compute.h"
#include "executor/rank_main.h"
#include "executor/ranks/event.h"
#include "executor/ranks/machine.h"

enum { MAX_REPEATS = 200, LEAST_REPEATS = 3 };

/* Visits end when so large a share of the figures was as good twice. */
static const double settled_share = 0.9;

/* Seconds for one figure in one visit; there are about eighty, half of them far below. */
#define BUDGET_QUICK 0.05
#define BUDGET_FULL  0.1

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
	/* Half of the 80 % interval, in the measure of a standard deviation (1.28 of them). */
	bench->spread += (spread->p90 - spread->p10) / 2 / 1.28 / spread->p50;
	bench->n_spreads++;
}

double bench_figure(struct bench *bench, enum figure what, const struct spread *spread)
{
	assert(bench->visit < CALIBRATE_VISITS && bench->figure < CALIBRATE_FIGURES);
	struct best *best = &bench->figures[bench->figure++];
	double (*better)(double, double) = what == FIGURE_TIME ? fmin : fmax;
	double value = spread->p50;

	bench_note_spread(bench, spread);
	if (bench->visit == 0)
		*best = (struct best){value, 0};
	else if (better(value, best->first) == value)
		*best = (struct best){value, best->first};
	else
		best->second = best->second > 0 ? better(best->second, value) : value;
	return best->first;
}

bool bench_is_settled(const struct bench *bench)
{
	int n = 0;

	for (int i = 0; i < bench->figure; i++) {
		const struct best *best = &bench->figures[i];

		n += best->second > 0 && fabs(best->second / best->first - 1) < calibration_settled;
	}
	return n >= settled_share * bench->figure;
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

/* What else a host does comes and goes within seconds, most of all in what memory delivers: every
 * figure is measured again later, until most were as good twice, and what the last visit derives is
 * from the best ones. */
static bool visit_kernels(struct bench *bench, struct error *error)
{
	int visits = bench->options->quick ? 1 : CALIBRATE_VISITS;
	bool ok = true;

	for (bench->visit = 0; bench->visit < visits && ok; bench->visit++) {
		if (bench->visit > 0 && bench_is_settled(bench))
			break;
		if (visits > 1)
			bench_say(bench, "visit %d of at most %d", bench->visit + 1, visits);
		bench->figure = 0;
		ok = calibrate_kernels(bench, error);
	}
	return ok;
}

/* All ranks together first: nobody waits while the first one measures its node. */
static bool measure_cluster(struct bench *bench, struct error *error)
{
	return calibrate_collectives(bench, error) &&
	       (bench->options->launcher.rank > 0 || visit_kernels(bench, error));
}

static bool measure_all(struct bench *bench, struct error *error)
{
	struct calibration *c = bench->calibration;

	if (!bench->kernels->open(&bench->context, error))
		return false;
	bool ok = bench->options->launcher.ranks > 1
			  ? measure_cluster(bench, error)
			  : visit_kernels(bench, error) && calibrate_collectives(bench, error);
	bench->kernels->close(&bench->context);
	if (!ok || bench->options->launcher.rank > 0)
		return ok;
	c->measured = true;
	c->date = machine_date(bench->arena);
	c->provenance = arena_printf(bench->arena, "shardplan calibrate%s; %s; %s",
		bench->options->quick ? " --quick" : "",
		machine_hardware(bench->arena, machine_cpus()),
		machine_versions(arena_printf(bench->arena, "%s (%s)", bench->kernels->name,
					 bench->kernels->library),
			bench->arena));
	c->residual_spread = bench->n_spreads > 0 ? bench->spread / bench->n_spreads : 0;
	return true;
}

bool executor_calibrate(const struct calibrate_options *options, struct arena *arena,
	struct calibration *calibration, struct error *error)
{
	struct bench bench = {.options = options,
		.arena = arena,
		.calibration = calibration,
		.kernels = kernels_cpu(),
		.context = {.threads = 1,
			.workspace = rank_reserve_workspace(),
			.workspace_bytes = KERNELS_WORKSPACE_BYTES},
		.budget = options->quick ? BUDGET_QUICK : BUDGET_FULL};

	*calibration = (struct calibration){0};
	if (bench.context.workspace == NULL)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "no room for a kernel workspace");
	bool ok = measure_all(&bench, error);
	rank_release_workspace(bench.context.workspace);
	return ok;
}
