/* What is gathered and reduced together: units, or buckets where nothing is gathered. */
#include "schedule/passes/step.h"

void pass_units(struct step *step)
{
	struct schedule *schedule = step->schedule;
	step->n_units =
		step->method.reduces == REDUCES_BUCKETS
			? buckets_build(step->plan, step->model, step->arena, &schedule->units)
			: units_build(step->plan, step->model, step->arena, &schedule->units);
	schedule->n_units = step->n_units;
	step->units = schedule->units;
}
