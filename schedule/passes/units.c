/* What is gathered and reduced together: units, or buckets where nothing is gathered. */
#include "schedule/passes/step.h"

/* A unit inside of a block is repeated with it. */
static int times_of(const struct step *step, const struct unit *unit)
{
	int layer = step->model->modules[unit->module].layer;
	return step->times != NULL && layer >= 0 ? step->times[layer] : 1;
}

static int build(struct step *step)
{
	struct unit **units = &step->schedule->units;
	return step->method.reduces == REDUCES_BUCKETS
		       ? buckets_build(step->plan, step->model, step->arena, units)
		       : units_build(step->plan, step->model, step->arena, units);
}

void pass_units(struct step *step)
{
	struct schedule *schedule = step->schedule;
	if (schedule->units == NULL)
		step->n_units = build(step);
	schedule->n_units = step->n_units;
	step->units = schedule->units;
	for (int u = 0; u < step->n_units; u++)
		schedule->units[u].times = times_of(step, &schedule->units[u]);
}
