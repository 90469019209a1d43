/* Private to space/: the space of a question whose plans have to be said in a configuration file
 * (`plan --for`). */
#ifndef PLANNER_SPACE_WORDING_H
#define PLANNER_SPACE_WORDING_H

#include "planner/space/axes.h"

/* Takes the values out of the axes that the file cannot express, and makes `strategy` from
 * `question` with the values that the file fixes. `plan`: of the strategy, with everything open at
 * its default. EXIT_CODE_USAGE: the file cannot express the strategy, or a value that the user
 * gave. */
bool wording_narrow(const struct question *question, const struct plan *plan, struct arena *arena,
	struct axes *axes, struct question *strategy, struct error *error);

#endif
