/* schedule_build: the passes that make a schedule, in their order. */
#include "schedule/laws/laws.h"
#include "schedule/passes/passes.h"
#include "schedule/schedule.h"

static void (*const passes[])(struct step *step) = {
	/* what there is */
	pass_units,
	pass_ranges,
	pass_groups,
	pass_resident,
	/* what happens */
	pass_order,
	pass_compute,
	pass_recompute,
	pass_delay,
	pass_gather_by_hook,
	pass_gather_by_trace,
	pass_cast_by_range,
	pass_reduce_units,
	pass_reduce_buckets,
	pass_reduce_partitions,
	pass_update,
	pass_offload,
	/* the operations */
	pass_lower,
	pass_waits,
	pass_limit,
	pass_finish,
};

struct schedule *schedule_emit(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology)
{
	struct step *step = step_begin(arena, plan, model, topology);
	for (int i = 0; i < COUNT_OF(passes); i++)
		passes[i](step);
	return step_end(step);
}

bool schedule_build(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, struct schedule **schedule, struct error *error)
{
	*schedule = schedule_emit(arena, plan, model, topology);
	return schedule_validate(*schedule, error);
}
