/* What no simulation of a plan can go below.
 *
 * A plan's work is the sum of two parts that can be looked at apart: its *load* (what is computed
 * and saved: runtime, micro-batch, checkpointing) and its *shape* (what is kept, moved and reduced:
 * strategy, shard group, wrap). Both are read off small schedules, built once for each load and
 * each shape, so that a bound costs a few additions. Proofs are in bound.c; tests/planner compares
 * with the simulator. */
#ifndef PLANNER_BOUNDS_BOUNDS_H
#define PLANNER_BOUNDS_BOUNDS_H

#include "planner/bounds/parts.h"

struct bound {
	double time;    /* s per step, <= step_time */
	int64_t memory; /* bytes, <= peak_memory_bytes, and <= what `fits` looks at */
	double compute; /* s per step, of forward, backward and recomputation alone */
	double network; /* bytes per step, <= what leaves a node (one node: a rank) */
};

struct bounds {
	struct bound *of; /* malloc'ed; by plan of the space */
	int64_t samples;  /* schedules built */
};

bool bounds_build(const struct question *question, const struct space *space, struct bounds *bounds,
	struct error *error);
/* The plan with at most two micro-batches: the first and the last show what surely lives. */
struct plan bounds_small(const struct plan *plan);
/* Raises the bound of a plan's memory by the schedule of its small plan: a fraction of a
 * simulation. Allocates from `arena`. */
void bounds_tighten(const struct schedule *schedule, struct arena *arena, struct bound *bound);
/* Bytes that the device needs for a plan to fit with room (without its allocator giving anything
 * back), at least: from the same schedule. Empties `arena`. */
int64_t bounds_with_room(
	const struct question *question, const struct plan *plan, struct arena *arena);
void bounds_finish(struct bounds *bounds);

#endif
