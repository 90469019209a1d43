/* Private to planner/: how far a plan is from what its framework does without a word. */
#ifndef PLANNER_SPACE_DEPARTURES_H
#define PLANNER_SPACE_DEPARTURES_H

#include "planner/answer/answer.h"

/* `plan`: of one strategy, with everything open at its default; `strategy`: its framework's own. */
struct usual {
	struct plan plan;
	enum strategy strategy;
};

/* EXIT_CODE_USAGE when the strategy cannot be had. */
bool usual_of(const struct question *question, enum strategy strategy, struct arena *arena,
	struct usual *usual, struct error *error);

/* In how many knobs, of those that a search turns. The batch is no departure: whoever trains
 * chooses it. */
int departures_from(const struct usual *usual, const struct plan *plan);

#endif
