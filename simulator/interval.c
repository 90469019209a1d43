/* The 80 % interval of a step time. The step is simulated again with each kind of cost off by its
 * uncertainty. So a cost that is hidden behind another one (a collective with time to spare) counts
 * for little, and one that is just about to be exposed counts for more. */
#include <math.h>

#include "schedule/fold/fold.h"
#include "simulator/devices/devices.h"
#include "simulator/results.h"

/* 80 % of a normal distribution are within so many standard deviations. */
#define DEVIATIONS 1.2816

enum cause { CAUSE_COMPUTE, CAUSE_COLLECTIVE, CAUSE_HOST, CAUSE_COUNT };

/* Relative standard deviations; `rest` is what none of the causes explains (what a cluster's other
 * users do), `versions` what unnamed versions of libraries do. */
struct spreads {
	double of[CAUSE_COUNT];
	double rest, versions;
	bool by_collective; /* each has its own (costs/spread.c); of[] is for those without */
	const char *source;
};

/* Where a calibration gives none (docs/cost-model.md, The interval). */
static const struct spreads measured_prior = {
	{0.04, 0.12, 0.20}, 0.04, 0, false, "measured on this machine"};
/* Predictions of published steps are off by 3.8 % in all. Kernels get what is left of that after
 * `rest`, as a difference of squares. */
static const struct spreads published_prior = {
	{0.0272, 0.15, 0.30}, 0.0265, 0.03, true, "published measurements of this device"};
/* Where the clock is that of one source's steps and others say 0.64 to 0.80 (hopper): between
 * sources a step is off by 5 % besides. */
static const struct spreads seen_prior = {{0.0569, 0.15, 0.30}, 0.0265, 0.03, true,
	"published measurements of this device that differ by source"};
static const struct spreads datasheet_prior = {
	{0.12, 0.25, 0.40}, 0.0742, 0.03, true, "datasheet of the device only"};
/* Predictions of one generation by the figures of another are off by 16 to 24 % (bench/fit, leave
 * out). */
static const struct spreads unknown_prior = {{0.17, 0.25, 0.40}, 0.0742, 0.03, true,
	"datasheet of the device only, no step of its generation is published"};

static double given(double calibrated, double prior)
{
	return calibrated > 0 ? calibrated : prior;
}

/* Runtimes below which there is no PyTorch have versions of their own. */
static bool versions_matter(const struct plan *plan)
{
	struct libraries libraries = plan_libraries(plan);

	return plan->runtime != RUNTIME_SHARDPLAN && libraries.version[LIBRARY_PYTORCH] == 0;
}

/* Products alone say little of a step: the clock in it is what devices differ by. */
static struct spreads prior_spreads(const struct topology *topology)
{
	const struct calibration *c = &topology->calibration;

	if (c->measured)
		return measured_prior;
	if (c->gemm_flops > 0 && c->sustained_clock > 0)
		return generation_sources_agree(topology->device.generation) ? published_prior
									     : seen_prior;
	return generation_has_steps(topology->device.generation) ? datasheet_prior : unknown_prior;
}

struct time_doubt time_doubt(const struct topology *topology)
{
	const struct spreads spreads = prior_spreads(topology);

	return (struct time_doubt){spreads.of[CAUSE_COMPUTE], spreads.of[CAUSE_COLLECTIVE],
		spreads.of[CAUSE_HOST], spreads.rest};
}

static struct spreads spreads_of(const struct topology *topology, const struct plan *plan)
{
	const struct calibration *c = &topology->calibration;
	struct spreads spreads = prior_spreads(topology);

	spreads.of[CAUSE_COMPUTE] = given(c->compute_spread, spreads.of[CAUSE_COMPUTE]);
	/* No rate in fp8 is measured. */
	if (plan->fp8 != FP8_OFF)
		spreads.of[CAUSE_COMPUTE] =
			fmax(spreads.of[CAUSE_COMPUTE], datasheet_prior.of[CAUSE_COMPUTE]);
	spreads.of[CAUSE_COLLECTIVE] = given(c->collective_spread, spreads.of[CAUSE_COLLECTIVE]);
	spreads.by_collective = spreads.by_collective && c->collective_spread <= 0;
	spreads.of[CAUSE_HOST] = given(c->host_spread, spreads.of[CAUSE_HOST]);
	if (versions_matter(plan))
		spreads.rest = hypot(spreads.rest, spreads.versions);
	spreads.rest = given(c->residual_spread, spreads.rest);
	return spreads;
}

static void scale(struct cost *cost, bool communicates, enum cause cause, double factor)
{
	if (cause == CAUSE_HOST) {
		cost->host *= factor;
		cost->host_before *= factor;
	} else if ((cause == CAUSE_COLLECTIVE) == communicates) {
		cost->device *= factor;
		cost->arithmetic *= factor;
		cost->memory *= factor;
	}
}

/* The step simulated again, with costs that `change` makes of them. */
struct again {
	const struct schedule *schedule;
	const struct simulation_options *options;
	struct arena scratch; /* emptied before each simulation */
};

typedef void change_cost(struct cost *cost, bool communicates, const void *how);

/* 0: it cannot be simulated so. `change` NULL: with the same costs. */
static double step_with(struct again *again, change_cost *change, const void *how)
{
	const struct engine_options options = engine_options_of(again->options);
	struct engines engines;
	struct error error = {0};

	arena_reset(&again->scratch);
	engines_init(&engines, again->schedule, &options, &again->scratch);
	for (int c = 0; c < engines.n && change != NULL; c++)
		for (int i = 0; i < engines.of[c].costs.n; i++) {
			const struct cost_table *costs = &engines.of[c].costs;

			change(&costs->costs[i],
				engines.of[c].tasks[costs->examples[i]].communicates, how);
		}
	return engines_run(&engines, &error) ? engines_step_time(&engines) : 0;
}

/* A machine with no other load, whose rates are the best of its calibration. */
static void be_best(struct cost *cost, bool communicates, const void *how)
{
	const struct calibration *c = how;

	scale(cost, communicates, CAUSE_COMPUTE, given(c->compute_best, 1));
	scale(cost, communicates, CAUSE_COLLECTIVE, given(c->collective_best, 1));
}

/* 0: the calibration does not say. */
static double best_step(struct again *again, double step_time)
{
	const struct calibration *c = &again->schedule->topology->calibration;

	if (c->compute_best <= 0 && c->collective_best <= 0)
		return 0;
	return fmin(step_with(again, be_best, c), step_time);
}

struct deviation {
	const struct spreads *spreads;
	enum cause cause;
};

/* Makes costs off by one standard deviation. */
static void deviate(struct cost *cost, bool communicates, const void *how)
{
	const struct deviation *d = how;
	bool own = d->cause == CAUSE_COLLECTIVE && d->spreads->by_collective && cost->spread > 0;

	scale(cost, communicates, d->cause, exp(own ? cost->spread : d->spreads->of[d->cause]));
}

/* The logarithm of the factor by which the step is then longer. */
static double effect_of(
	struct again *again, const struct spreads *spreads, enum cause cause, double step_time)
{
	const struct deviation deviation = {spreads, cause};
	double step = step_with(again, deviate, &deviation);

	return step > 0 ? log(step / step_time) : 0;
}

/* A run's slow steps: collectives as in one of twenty, devices as in a warm hour. Other tenants'
 * traffic lasts longer than a step, so all collectives of one are slow together. LLaMA 3's
 * throughput varied by 1 to 2 % with the time of the day (arXiv 2407.21783, 3.3.4). */
static const double slow_of_twenty = 1.645, warm_hour = 0.01;

static void be_slow(struct cost *cost, bool communicates, const void *how)
{
	(void)how;
	scale(cost, communicates, CAUSE_COLLECTIVE, exp(slow_of_twenty * cost->jitter));
	scale(cost, communicates, CAUSE_COMPUTE, 1 + warm_hour);
}

/* The 95th percentile of a run's steps. 0: not known. */
static double slow_step(struct again *again, double step_time)
{
	const struct topology *topology = again->schedule->topology;

	if (topology->calibration.step_p95 > 0)
		return step_time * topology->calibration.step_p95;
	if (again->options->quick_interval || topology->device.kind != DEVICE_GPU)
		return 0;
	return fmax(step_time, step_with(again, be_slow, NULL));
}

/* The factor by which torch.compile shortens the step, where the plan does not say whether it was
 * on. */
static double compiled(struct again *again, double step_time)
{
	const struct schedule *eager = again->schedule;
	struct schedule schedule = *eager;
	double step;

	if (!plan_libraries(&schedule.plan).compile_unknown)
		return 1;
	schedule.plan.compile = true;
	again->schedule = &schedule;
	step = step_with(again, NULL, NULL);
	again->schedule = eager;
	return step > 0 ? fmin(1, step / step_time) : 1;
}

/* The interval without simulating again, from the share of the step that each cause has. */
static double guess(const struct prediction *p, const struct spreads *spreads, enum cause cause)
{
	double exposed = p->time.exposed_communication / p->step_time;

	if (cause == CAUSE_HOST)
		return 0;
	return spreads->of[cause] * (cause == CAUSE_COLLECTIVE ? exposed : 1 - exposed);
}

/* Keeps a few more of a pipeline's many micro-batches than fill it, which suffice to find how much
 * a step changes. Returns the length of the step that is then simulated. */
static double shorten(struct again *again, struct arena *arena, double step_time)
{
	const struct schedule *schedule = again->schedule;
	int64_t few = 3 * schedule->plan.mesh.pipeline;
	const struct plan plan = plan_with_micro_batches(&schedule->plan, few);
	bool is_short = schedule->programs[0].rounds.n > 0;
	double step;

	if (schedule->n_classes == 1 || (schedule->plan.grad_accum <= few && !is_short) ||
		again->options->quick_interval)
		return step_time;
	if (!is_short)
		again->schedule = schedule_fold(arena, &plan, schedule->model, schedule->topology);
	step = step_with(again, NULL, NULL);
	return step > 0 ? step : step_time;
}

void simulate_interval(const struct schedule *schedule, const struct simulation_options *options,
	struct arena *arena, struct prediction *p)
{
	const struct spreads spreads = spreads_of(schedule->topology, &schedule->plan);
	struct again again = {schedule, options, {0}};
	struct arena shorter = {0};
	double effects[CAUSE_COUNT], sum = spreads.rest * spreads.rest;
	bool quick = options->quick_interval;

	if (p->step_time <= 0)
		return;
	double step = shorten(&again, &shorter, p->step_time), times = p->step_time / step;
	for (int cause = 0; cause < CAUSE_COUNT; cause++) {
		effects[cause] = quick ? guess(p, &spreads, cause)
				       : effect_of(&again, &spreads, cause, step);
		sum += effects[cause] * effects[cause];
	}
	double host = effects[CAUSE_HOST] * effects[CAUSE_HOST];
	double factor = exp(DEVIATIONS * sqrt(sum));
	double less = quick ? 1 : compiled(&again, step);
	p->step_time_p95 = times * slow_step(&again, step);
	p->step_time_best = quick ? 0 : times * best_step(&again, step);
	arena_finish(&again.scratch);
	arena_finish(&shorter);
	p->step_time_low =
		fmin(p->step_time, fmax(p->plan_lower_bound, p->step_time * less / factor));
	p->step_time_high = p->step_time * factor;
	p->host_decides = !quick && host > sum - host;
	if (quick)
		p->uncertainty_source = spreads.source;
	else
		p->uncertainty_source = arena_printf(arena,
			"%s; uncertainty in %% of the step: "
			"compute %.1f, collectives %.1f, host %.1f, the rest %.1f",
			spreads.source, 100 * effects[CAUSE_COMPUTE],
			100 * effects[CAUSE_COLLECTIVE], 100 * effects[CAUSE_HOST],
			100 * spreads.rest);
}
