/* Private to evaluation/: the costs by which candidates are compared. */
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

/* The cost of a plan's step time (s), and of the bytes that it sends per step. */
int64_t costs_time(const struct plan *plan, double step_time);
int64_t costs_network(const struct plan *plan, double bytes);
/* A step time, s, that costs barely more than `time`. */
double costs_step_above(const struct plan *plan, int64_t time);
struct costs costs_of(const struct question *question, const struct plan *plan,
	const struct prediction *prediction);

#endif
