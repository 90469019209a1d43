/* Runs the passes, and checks that their product keeps the laws. */
#include "schedule/laws/laws.h"
#include "schedule/passes/passes.h"
#include "schedule/schedule.h"

struct schedule *schedule_emit(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology)
{
	return steps_run(arena, plan, model, topology);
}

struct schedule *schedule_emit_class(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology, int class)
{
	return steps_run_class(arena, plan, model, topology, class);
}

bool schedule_build(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, struct schedule **schedule, struct error *error)
{
	*schedule = schedule_emit(arena, plan, model, topology);
	return schedule_validate(*schedule, error);
}
