/* Bytes of states: what a trained parameter has beside its value for compute, namely the master
 * copy, the optimizer's moments and the gradient. Known from a plan alone, before any schedule. */
#ifndef PLANNER_SPACE_STATES_H
#define PLANNER_SPACE_STATES_H

#include "schedule/plan/question.h"
#include "simulator/simulator.h"

/* Of one parameter, between steps and in the last backward: master, moments; gradient. */
double states_kept(const struct plan *plan);
double states_gradient(const struct plan *plan);

/* Every copy of the model has each state on some rank, so the fullest rank holds at least the mean,
 * and so does the fullest node. */
struct states {
	double on_device; /* bytes of a rank at the update; 0 where units are offloaded */
	double in_node; /* bytes of the memory of a node's host; 0 unless all units are offloaded */
};
struct states states_mean(const struct question *question, const struct plan *plan);
/* Does no device hold as much, or no node? */
bool states_overflow(const struct question *question, const struct plan *plan);

#endif
