/* What a report derives before it draws: studies as tables and sentences, and the front of plans
 * that no other beats in both throughput and memory. */
#ifndef REPORTS_TEXT_STUDY_H
#define REPORTS_TEXT_STUDY_H

#include "reports/text/grid.h"
#include "reports/text/types.h"

/* An axis that the plan does not have leaves its knobs at nothing, and the mesh has said so. */
bool goes_with_an_axis(enum knob_id id, const struct plan *plan, const struct plan *beside);
/* "HYBRID_SHARD/8 (pytorch-fsdp1), wrap model": what tells it from `chosen` (may be NULL). */
void candidate_name(const struct plan *plan, const struct plan *chosen, struct text *text);

/* One row a value, one column a plan: tokens/s/GPU, and what it is of the first value's. */
void study_grid(const struct study *study, struct arena *arena, struct grid *grid);
/* What the chart shows, in words. */
void study_sentence(const struct study *study, struct text *text);

/* Candidates by time and memory. */
struct front_point {
	const struct candidate *candidate;
	int order;           /* in the answer, the chosen one first */
	int64_t bytes;       /* peak of one device */
	double tokens_per_s; /* per device */
	bool best;           /* nothing that fits has at least its throughput with less memory */
};
struct front {
	int n;
	struct front_point *points; /* by bytes, ascending; from `arena` */
	int64_t limit;              /* 0 = none */
};
/* Every candidate that could be simulated and needs less than three times the limit: what is
 * further off would flatten the picture. */
void front_of(const struct answer *answer, struct arena *arena, struct front *front);
void front_sentence(const struct front *front, const struct answer *answer, struct text *text);
void pareto_grid(const struct front *front, const struct plan *chosen, struct grid *grid);

#endif
