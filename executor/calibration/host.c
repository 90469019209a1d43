/* Measures this machine: what a core computes and moves, and what collectives between ranks cost.
 */

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "executor/calibration/calibration.h"
#include "executor/compute/compute.h"
#include "executor/ranks/ranks.h"

/* This is for one figure in one visit. There are about eighty figures, and half of them take far
 * less. */
#define BUDGET_QUICK 0.05
#define BUDGET_FULL  0.1

/* Real steps are visited more often, because they have the last word
 * (cli/commands/calibrate_steps.c). */
enum { VISITS = 3 };

static int visits_of(const struct bench *bench)
{
	return bench->options->quick ? 1 : VISITS;
}

/* What else a host does comes and goes within seconds, and shows most of all in what memory
 * delivers. So every figure is measured again later, and the last visit derives its figures from
 * the middle ones. */
static bool visit_kernels(struct bench *bench, struct error *error)
{
	int visits = visits_of(bench);
	bool ok = true;

	for (bench->visit = 0; bench->visit < visits && ok; bench->visit++) {
		if (visits > 1)
			bench_say(bench, "visit %d of %d", bench->visit + 1, visits);
		bench->figure = 0;
		ok = calibrate_kernels(bench, error);
	}
	return ok;
}

/* All ranks measure together first, so that none waits while the first one measures its node. */
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
	bench_conclude(bench, visits_of(bench));
	return true;
}

bool calibrate_host(const struct calibrate_options *options, struct arena *arena,
	struct calibration *calibration, struct error *error)
{
	struct bench bench = {.options = options,
		.arena = arena,
		.calibration = calibration,
		.kernels = kernels_cpu(),
		.context = {.threads = 1,
			.workspace = workspace_reserve(),
			.workspace_bytes = KERNELS_WORKSPACE_BYTES},
		.budget = options->quick ? BUDGET_QUICK : BUDGET_FULL};

	*calibration = (struct calibration){0};
	if (bench.context.workspace == NULL)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "no room for a kernel workspace");
	bool ok = measure_all(&bench, error);
	workspace_release(bench.context.workspace);
	return ok;
}
