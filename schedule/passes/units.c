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

/* Returns for each parameter which of the rank's stages it belongs to. */
static const int *chunks_of_parameters(const struct step *step)
{
	const struct model *model = step->model;
	int *chunks = ARENA_ARRAY(step->arena, int, model->n_parameters), end = 0;
	for (int p = 0; p < model->n_parameters; p++) {
		int layer = model->modules[model->parameters[p].module].layer;
		chunks[p] = layer >= 0 ? step->chunks[layer] : end;
		end = layer >= 0 ? step->pipeline.chunks - 1 : end;
	}
	return chunks;
}

static int build(struct step *step)
{
	struct plan plan = *step->plan;
	plan.wrap.head = plan.wrap.head || has_both_ends(step);
	const int *chunks = step->pipeline.chunks > 1 ? chunks_of_parameters(step) : NULL;
	return step->method.reduces == REDUCES_BUCKETS
		       ? buckets_build(step->plan, step->model, chunks, step->arena, &step->units)
		       : units_build(&plan, step->model, step->arena, &step->units);
}

void pass_units(struct step *step)
{
	if (step->units == NULL)
		step->n_units = build(step);
	for (int u = 0; u < step->n_units; u++)
		step->units[u].times = times_of(step, &step->units[u]);
}
