/* What a report derives for its charts: studies as tables and sentences, and the front of plans
 * that no other plan beats in both throughput and memory. */
#ifndef REPORTS_TEXT_STUDY_H
#define REPORTS_TEXT_STUDY_H

#include "reports/text/grid.h"
#include "reports/text/types.h"

/* Is the knob one of an axis that the plan does not have? The mesh then already says so. */
bool goes_with_an_axis(enum knob_id id, const struct plan *plan, const struct plan *beside);
/* The name of a candidate by its differences from `chosen` (may be NULL). Example: "HYBRID_SHARD/8
 * (pytorch-fsdp1), wrap model". */
void candidate_name(const struct plan *plan, const struct plan *chosen, struct text *text);

/* One row for each value, one column for each plan: tokens/s/GPU, and its ratio to the first
 * value's. */
void study_grid(const struct study *study, struct arena *arena, struct grid *grid);
/* Describes the chart in words. */
void study_sentence(const struct study *study, struct text *text);

/* A candidate by time and memory. */
struct front_point {
	const struct candidate *candidate;
	int order;           /* in the answer; the chosen plan is first */
	int64_t bytes;       /* peak of one device */
	double tokens_per_s; /* per device */
	bool best;           /* no plan that fits has at least its throughput with less memory */
};
struct front {
	int n;
	struct front_point *points; /* by bytes, ascending; from `arena` */
	int64_t limit;              /* 0: there is none */
};
/* The points of all candidates that could be simulated and need less than three times the limit.
 * Others would flatten the chart. */
void front_of(const struct answer *answer, struct arena *arena, struct front *front);
void front_sentence(const struct front *front, const struct answer *answer, struct text *text);
void pareto_grid(const struct front *front, const struct plan *chosen, struct grid *grid);

#endif
