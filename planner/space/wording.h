/* Private to space/: the space of a question whose plans have to be said in a configuration file
 * (`plan --for`). */
#ifndef PLANNER_SPACE_WORDING_H
#define PLANNER_SPACE_WORDING_H

#include "planner/space/axes.h"

/* What the file cannot say leaves the axes; what it fixes is put into `question`, that of one
 * strategy. `plan`: of the strategy, with everything open at its default. EXIT_CODE_USAGE when the
 * file has no word for the strategy, or for a value that the user gave. */
bool wording_narrow(const struct question *question, const struct plan *plan, struct arena *arena,
	struct axes *axes, struct question *strategy, struct error *error);

#endif
