/* The face of schedule/: a plan, a model and a topology compile to a schedule, which the simulator
 * and the executor interpret. */
#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

#include "schedule/documents/documents.h"
#include "schedule/laws/laws.h"
#include "schedule/memory/memory.h"
#include "schedule/plan/plan.h"
#include "schedule/program/program.h"
#include "schedule/resolve/resolve.h"
#include "schedule/units/units.h"

/* Compiles. The plan must have passed plan_resolve or plan_check; an option that the builder cannot
 * honour is EXIT_CODE_USAGE. The result has passed schedule_validate. */
bool schedule_build(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, struct schedule **schedule, struct error *error);

/* The same without schedule_validate: for inner loops, whose winner is built again. */
struct schedule *schedule_emit(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology);

#endif
