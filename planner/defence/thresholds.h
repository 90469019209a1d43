/* Private to defence/: at which bandwidth, memory, length or batch the decision changes. */
#ifndef PLANNER_DEFENCE_THRESHOLDS_H
#define PLANNER_DEFENCE_THRESHOLDS_H

#include "planner/answer/answer.h"

/* For each property of machine and question the value, either way, at which the search of the
 * changed question chooses another strategy. Each was searched on both sides: 3 % below and above,
 * or at the value and the one before it where values are whole. `answer` has a chosen plan. */
bool thresholds_find(const struct question *question, struct arena *arena, struct answer *answer,
	struct error *error);

#endif
