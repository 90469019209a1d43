/* Private to evaluation/: extrapolates a pipeline's step with many micro-batches from two shorter
 * steps. */
#ifndef PLANNER_EVALUATION_STEADY_H
#define PLANNER_EVALUATION_STEADY_H

#include "planner/space/space.h"
#include "simulator/simulator.h"

/* A round is one micro-batch, and in the interleaved schedule a group of them. Beyond the rounds
 * that fill and drain a pipeline each one adds the same time. */
struct steady {
	double more;          /* rounds that the plan has beyond those of plans[1] */
	struct plan plans[2]; /* shorter plans; the second has one round more */
	int64_t round;        /* micro-batches of a round */
	int64_t filling;      /* micro-batches before the first of the two rounds */
};

/* Makes two shorter plans, which are longer with each `attempt` (from 0 on). False: the plan itself
 * is as short. */
bool steady_of(const struct plan *plan, int attempt, struct steady *steady);
/* The plan with a few micro-batches more than a pipeline has in flight. */
struct plan steady_filling(const struct plan *plan);
/* Is the plan short enough to simulate all of its micro-batches, where no attempt is steady? Else
 * the longest attempt is treated as steady. */
bool steady_may_run_all(const struct plan *plan);
/* Seconds of a round, if every operation of a round of plans[1] runs equally long after the same
 * operation of the round before: then all ranks are in the same state, and all further rounds are
 * equal. Else 0. `simulation` must have spans. */
double steady_is(const struct steady *steady, const struct schedule *schedule,
	const struct simulation *simulation);
/* Lengthens the step time of plans[1], and the bytes that its ranks send, to those of the plan. */
void steady_lengthen(const struct steady *steady, const struct schedule *schedule, double round,
	struct prediction *prediction);
/* Copies the seconds, rates and bytes of a step, for all classes; the memory of `to` stays. */
void steady_take(const struct simulation *from, struct simulation *to);
/* Turns `last`, the simulation of plans[1], into that of the plan, for all classes: seconds and
 * bytes of a step grow, memory stays. `before`: the simulation of plans[0]. */
void steady_extend(
	const struct steady *steady, const struct simulation *before, struct simulation *last);

#endif
