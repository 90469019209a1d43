/* Private to evaluation/: a pipeline's step of many micro-batches, from two of few. */
#ifndef PLANNER_EVALUATION_STEADY_H
#define PLANNER_EVALUATION_STEADY_H

#include "planner/space/space.h"
#include "simulator/simulator.h"

/* Beyond the micro-batches that fill a pipeline and drain it, each one adds as much as the one
 * before: of the interleaved schedule each round of them. */
struct steady {
	double more;          /* rounds that the plan has beyond the second one */
	struct plan plans[2]; /* of fewer micro-batches, a round apart */
	int64_t round;        /* micro-batches */
	int64_t filling;      /* micro-batches before the first of the two rounds */
};

/* `attempt`: longer ones, from 0 on. False: the plan itself takes as little. */
bool steady_of(const struct plan *plan, int attempt, struct steady *steady);
/* The plan with as many micro-batches as a pipeline has in flight, and a few more. */
struct plan steady_filling(const struct plan *plan);
/* May all micro-batches be looked at? Else the longest list is taken for steady. */
bool steady_may_run_all(const struct plan *plan);
/* Seconds of a round, where every operation of one of the second plan happens as long after the
 * same one of the round before: then all ranks are as they were, and all further rounds are alike;
 * else 0. `simulation`: with its spans. */
double steady_is(const struct steady *steady, const struct schedule *schedule,
	const struct simulation *simulation);
/* The step time of the second plan, and what its ranks send, become those of the plan. */
void steady_lengthen(const struct steady *steady, const struct schedule *schedule, double round,
	struct prediction *prediction);
/* Seconds, rates and bytes of a step of `from`, with all of its classes, become those of `to`,
 * whose memory stays. */
void steady_take(const struct simulation *from, struct simulation *to);
/* `last`, of the last plan, becomes that of the plan: seconds and bytes of a step grow, what memory
 * holds stays. `before`: of the one before it, with all of its classes. */
void steady_extend(
	const struct steady *steady, const struct simulation *before, struct simulation *last);

#endif
