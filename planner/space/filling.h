/* Private to space/: what the functions that fill the axes of a strategy share. */
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
/* Did the user neither fix the knob nor restrict it to a list? */
bool axis_is_free(const struct filling *f, enum knob_id axis);

/* --- mesh.c ----------------------------------------------------------------------------------- */

/* Fills the axes of the mesh that divide the model (tensor, pipeline, context, expert), and the
 * pipeline's schedules. */
void mesh_fill(struct filling *f);
/* The least data-parallel size of all plans, which is that of the mesh that divides the model most.
 */
int64_t mesh_fewest_data_parallel(const struct filling *f);

#endif
