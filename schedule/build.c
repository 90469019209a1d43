/* schedule_build: the passes, and the laws that their product keeps. */
#include "schedule/laws/laws.h"
#include "schedule/passes/passes.h"
#include "schedule/schedule.h"

struct schedule *schedule_emit(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology)
{
	struct step *step = step_begin(arena, plan, model, topology);
	step_run(step);
	return step_end(step);
}

bool schedule_build(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, struct schedule **schedule, struct error *error)
{
	*schedule = schedule_emit(arena, plan, model, topology);
	return schedule_validate(*schedule, error);
}
