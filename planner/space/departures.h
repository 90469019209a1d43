/* Private to planner/: in how many knobs a plan departs from the defaults of its framework. */
#ifndef PLANNER_SPACE_DEPARTURES_H
#define PLANNER_SPACE_DEPARTURES_H

#include "planner/answer/answer.h"

/* `plan`: of one strategy, with everything open at its default; `strategy`: the framework's default
 * strategy. */
struct usual {
	const struct architecture *architecture;
	struct plan plan;
	enum strategy strategy;
};

/* EXIT_CODE_USAGE: no plan of the strategy can be made. */
bool usual_of(const struct question *question, enum strategy strategy, struct arena *arena,
	struct usual *usual, struct error *error);

/* The number of knobs, of those that a search turns, in which the plan differs. The batch does not
 * count, because the user chooses it. */
int departures_from(const struct usual *usual, const struct plan *plan);

#endif
