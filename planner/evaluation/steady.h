/* Private to evaluation/: which micro-batches of a pipeline say how long all of them take. */
#ifndef PLANNER_EVALUATION_STEADY_H
#define PLANNER_EVALUATION_STEADY_H

#include "planner/space/space.h"
#include "schedule/fold/fold.h"
#include "simulator/simulator.h"

/* Beyond the rounds that fill and drain a pipeline each one adds the same time. The list is longer
 * with each `attempt` (from 0 on). False: the plan itself is as short. */
bool steady_of(const struct plan *plan, int attempt, struct short_list *list);
/* The plan with a few micro-batches more than a pipeline has in flight. */
struct plan steady_filling(const struct plan *plan);
/* Is the plan short enough to simulate all of its micro-batches, where no attempt is steady? Else
 * the longest attempt is treated as steady. */
bool steady_may_run_all(const struct plan *plan);
/* Does every operation of the round that stands for others run equally long before the same
 * operation of the next round? Then all ranks are in the same state, and all further rounds are
 * equal. `simulation` must have spans. */
bool steady_is(const struct short_list *list, const struct schedule *schedule,
	const struct simulation *simulation);
/* Does the class with the most work do the later half of a round one round later? Then a round
 * takes that long, although other classes have not settled, and messages to them took longer when
 * it began. `simulation` must have spans. */
bool steady_has_settled(const struct short_list *list, const struct schedule *schedule,
	const struct simulation *simulation);
/* Makes the step longer by a factor. */
void steady_stretch(double factor, struct prediction *p);
/* Copies the seconds, rates and bytes of a step, for all classes; the memory of `to` stays. */
void steady_take(const struct simulation *from, struct simulation *to);

#endif
