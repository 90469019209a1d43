/* Private to defence/: what would have to change for another plan to win. */
#ifndef PLANNER_DEFENCE_THRESHOLDS_H
#define PLANNER_DEFENCE_THRESHOLDS_H

#include "planner/evaluation/evaluation.h"

enum { RIVALS_MAX = 1 + STRATEGY_COUNT };

/* The chosen plan first, then the best of every other strategy, whether it fits or not. */
struct rivals {
	const struct question *question;
	struct arena *arena;
	int n;
	const struct plan *plans[RIVALS_MAX];
	const struct prediction *predictions[RIVALS_MAX];
	/* thresholds_find's own, of one worker: */
	struct evaluator *evaluator;
	struct rival_schedules *schedules;
};

/* For each property of machine and question, the value nearest to the present one at which another
 * of these plans is faster or none fits, found by bisection (no new search). */
bool thresholds_find(const struct rivals *rivals, struct answer *answer, struct error *error);

#endif
