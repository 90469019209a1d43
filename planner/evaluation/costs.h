/* Private to evaluation/: what candidates are compared by. */
#ifndef PLANNER_EVALUATION_COSTS_H
#define PLANNER_EVALUATION_COSTS_H

#include "planner/answer/answer.h"

/* Whole numbers so that no order depends on rounding. */
enum cost_kind {
	COST_TIME,    /* femtoseconds of step time per token of the global batch */
	COST_MEMORY,  /* peak_memory_bytes of one device */
	COST_NETWORK, /* millibytes per token that leave a node (one node: a rank) */
	COST_HOST,    /* host_memory_bytes */
	COST_COUNT
};

struct costs {
	int64_t of[COST_COUNT];
};

/* Seconds per step and bytes per step of a plan as costs; a step time that costs more than `time`,
 * by little. */
int64_t costs_time(const struct plan *plan, double step_time);
int64_t costs_network(const struct plan *plan, double bytes);
double costs_step_above(const struct plan *plan, int64_t time);
struct costs costs_of(const struct question *question, const struct plan *plan,
	const struct prediction *prediction);

#endif
