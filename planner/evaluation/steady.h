/* Private to evaluation/: a pipeline's step of many micro-batches, from two of few. */
#ifndef PLANNER_EVALUATION_STEADY_H
#define PLANNER_EVALUATION_STEADY_H

#include "planner/space/space.h"
#include "simulator/simulator.h"

/* Beyond the micro-batches that fill a pipeline and drain it, each one adds as much as the one
 * before: of the interleaved schedule each round of them. */
struct steady {
	double more;          /* times what lies between the two, that the plan has beyond them */
	struct plan plans[2]; /* of fewer micro-batches */
};

/* False: the plan is as short itself. */
bool steady_of(const struct plan *plan, struct steady *steady);
/* Of the plan, from those of the two: seconds, or what else a step has. */
double steady_time(const struct steady *steady, double first, double second);
/* `second`, of the second plan, becomes that of the plan: seconds and bytes of a step grow, what
 * memory holds stays. */
void steady_extend(
	const struct steady *steady, const struct simulation *first, struct simulation *second);

#endif
