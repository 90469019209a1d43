/* Adding values to an axis. */
#include "planner/space/filling.h"

void axis_add(struct axis *axis, union knob_value value)
{
	if (axis->n < SPACE_VALUES_MAX)
		axis->values[axis->n++] = value;
}

void axis_add_int(struct axis *axis, int64_t number)
{
	axis_add(axis, (union knob_value){.number = number});
}

bool axis_is_free(const struct filling *f, enum knob_id axis)
{
	return !question_gives(f->question, axis) && f->question->only[axis].n == 0;
}

void axis_add_choice(struct filling *f, enum knob_id axis, int choice)
{
	axis_add(&f->axes->of[axis], knob_value_of(axis, choice));
}
