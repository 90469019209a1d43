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
	return step->method.reduces == REDUCES_BUCKETS
		       ? buckets_build(step->plan, step->model, step->arena, &step->units)
		       : units_build(step->plan, step->model, step->arena, &step->units);
}

void pass_units(struct step *step)
{
	if (step->units == NULL)
		step->n_units = build(step);
	for (int u = 0; u < step->n_units; u++)
		step->units[u].times = times_of(step, &step->units[u]);
}
