/* Private to defence/: at which bandwidth, memory, length or batch the decision changes. */
#ifndef PLANNER_DEFENCE_THRESHOLDS_H
#define PLANNER_DEFENCE_THRESHOLDS_H

#include "planner/answer/answer.h"
#include "planner/bounds/bounds.h"

/* Finds, for each property of machine and question, the nearest value in either direction at which
 * a search chooses another strategy. Both sides of each were searched: 3 % below and above it, or
 * for whole numbers the value and the one before it. `answer` must have a chosen plan.
 * `sampler`: what the search for it has measured. */
bool thresholds_find(const struct question *question, const struct sampler *sampler,
	struct arena *arena, struct answer *answer, struct error *error);

#endif
