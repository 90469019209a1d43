/* Private to defence/: what would have to change for another plan to win. */
#ifndef PLANNER_DEFENCE_THRESHOLDS_H
#define PLANNER_DEFENCE_THRESHOLDS_H

#include "planner/evaluation/evaluation.h"

enum { CONTESTANTS_MAX = 1 + STRATEGY_COUNT };

/* The chosen plan first, then the best of every other strategy, whether it fits or not. */
struct contest {
	struct evaluator *evaluator;
	struct arena *arena;
	int n;
	const struct plan *plans[CONTESTANTS_MAX];
	const struct prediction *predictions[CONTESTANTS_MAX];
	struct contest_schedules *schedules; /* thresholds_find's own */
};

/* For each property of machine and question, the value nearest to the present one at which another
 * contestant wins or none fits, found by bisection among the contestants (no new search). */
bool thresholds_find(const struct contest *contest, struct answer *answer, struct error *error);

#endif
