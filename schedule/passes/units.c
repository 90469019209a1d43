/* Finds what is gathered and reduced together: units, or buckets where nothing is gathered. */
#include "schedule/passes/step.h"

/* A unit inside of a block is repeated with it. */
static int times_of(const struct step *step, const struct unit *unit)
{
	int layer = step->model->modules[unit->module].layer;
	return step->times != NULL && layer >= 0 ? step->times[layer] : 1;
}

/* Where stages are laid as a V, one rank has both ends of the model. They then belong to the roots
 * of two modules. */
static bool has_both_ends(const struct step *step)
{
	return step->pipeline.ranks > 1 && chunk_has_loss(step, step->pipeline.chunks - 1) &&
	       pipeline_stage(&step->pipeline, step->class, 0) == 0;
}

static int build(struct step *step)
{
	struct plan plan = *step->plan;
	plan.wrap.head = plan.wrap.head || has_both_ends(step);
	return step->method.reduces == REDUCES_BUCKETS
		       ? buckets_build(step->plan, step->model, step->arena, &step->units)
		       : units_build(&plan, step->model, step->arena, &step->units);
}

void pass_units(struct step *step)
{
	if (step->units == NULL)
		step->n_units = build(step);
	for (int u = 0; u < step->n_units; u++)
		step->units[u].times = times_of(step, &step->units[u]);
}
