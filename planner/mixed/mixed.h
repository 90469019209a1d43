/* Plans whose blocks or units differ, and CPU offload where the devices alone
 * do not suffice. */
#ifndef PLANNER_MIXED_MIXED_H
#define PLANNER_MIXED_MIXED_H

#include "planner/evaluation/evaluation.h"

/* After the search over uniform plans: adds maximal mixes to the ranking until no subproblem's
 * bound is low enough. */
bool mix_search(struct search *search, struct arena *arena, struct error *error);

/* --- CPU offload ------------------------------------------------------------------------------ */

/* The question with every kind of CPU offload that its runtime has, and no plan without. False: the
 * user decided about it, or there is none. */
bool offload_question(const struct question *question, struct arena *arena, struct question *other);

/* May units of a plan that offloads stay on the device? Not when the user's list leaves out `none`.
 */
bool offload_may_be_partial(const struct search *search);

/* Of each strategy's best plan, when it offloads every unit: the same with the most units kept on
 * the device that fit, if any, enters the ranking. Only where plans without offload are allowed. */
bool offload_fewer_units(struct search *search, struct arena *arena, struct error *error);

#endif
