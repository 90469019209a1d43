/* The face of schedule/: a plan, a model and a topology compile to a schedule, which the simulator
 * and the executor interpret. The product and its text form are in program/program.h. */
#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

#include "schedule/program/program.h"

/* Compiles. The plan must have passed plan_resolve or plan_check; an option that the builder cannot
 * honour is EXIT_CODE_USAGE. The result has passed schedule_validate. */
bool schedule_build(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, struct schedule **schedule, struct error *error);

/* The same without schedule_validate, for inner loops whose winner is built again. */
struct schedule *schedule_emit(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology);

/* The same with the program of only one class. */
struct schedule *schedule_emit_class(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology, int class);

#endif
