/* Runs the passes that make a schedule, in their order. */
#include "schedule/passes/step.h"

static void (*const passes[])(struct step *step) = {
	/* the parts of the step */
	pass_units,
	pass_ranges,
	pass_groups,
	pass_resident,
	/* the actions in their order */
	pass_order,
	pass_compute,
	pass_messages,
	pass_recompute,
	pass_tensor,
	pass_context,
	pass_experts,
	pass_pairs,
	pass_delay,
	pass_gather_by_hook,
	pass_gather_by_trace,
	pass_gather_by_bucket,
	pass_cast_by_range,
	pass_reduce_units,
	pass_reduce_buckets,
	pass_reduce_partitions,
	pass_update,
	pass_offload,
	pass_offload_activations,
	/* the operations */
	pass_lower,
	pass_waits,
	pass_limit,
	pass_finish,
};

void step_run(struct step *step)
{
	for (int i = 0; i < COUNT_OF(passes); i++)
		passes[i](step);
}

static struct schedule *run_class(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology, int class)
{
	struct step *step = step_begin(arena, plan, model, topology, class);
	step_run(step);
	return step_end(step);
}

/* All classes have the same groups, except that a stage may have no use for the last one. */
static void add_class(struct schedule *schedule, const struct schedule *other)
{
	schedule->programs[schedule->n_classes++] = other->programs[0];
	if (other->n_groups <= schedule->n_groups)
		return;
	schedule->n_groups = other->n_groups;
	schedule->groups = other->groups;
	schedule->n_engines = other->n_engines;
}

struct schedule *steps_run(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology)
{
	struct schedule *schedule = run_class(arena, plan, model, topology, 0);
	int n = (int)plan->mesh.pipeline;
	if (n == 1)
		return schedule;
	struct program *programs = ARENA_ARRAY(arena, struct program, n);
	programs[0] = schedule->programs[0];
	schedule->programs = programs;
	for (int c = 1; c < n; c++)
		add_class(schedule, run_class(arena, plan, model, topology, c));
	return schedule;
}

struct schedule *steps_run_class(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology, int class)
{
	struct schedule *schedule = run_class(arena, plan, model, topology, class);
	schedule->n_classes = (int)plan->mesh.pipeline;
	struct program *programs = ARENA_ARRAY(arena, struct program, schedule->n_classes);
	programs[class] = schedule->programs[0];
	schedule->programs = programs;
	return schedule;
}
