/* Private to space/: the axes of a strategy in the making. */
#ifndef PLANNER_SPACE_FILLING_H
#define PLANNER_SPACE_FILLING_H

#include "planner/space/axes.h"

struct filling {
	const struct question *question;
	const struct plan *plan;
	const struct runtime *runtime;
	struct arena *arena;
	struct axes *axes;
};

/* --- filling.c -------------------------------------------------------------------------------- */

void axis_add(struct axis *axis, union knob_value value);
void axis_add_int(struct axis *axis, int64_t number);
void axis_add_choice(struct filling *f, enum knob_id axis, int choice);
/* Was it neither given nor restricted to a list? */
bool axis_is_free(const struct filling *f, enum knob_id axis);

/* --- mesh.c ----------------------------------------------------------------------------------- */

/* The sizes of the axes that divide the model, and the orders of its stages. */
void mesh_fill(struct filling *f);
/* Of all plans: more ranks that divide the model leave fewer that share data. */
int64_t mesh_fewest_data_parallel(const struct filling *f);

#endif
