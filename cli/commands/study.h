/* Studies for reports: predictions of a plan with more or fewer nodes, or a slower or faster
 * link. */
#ifndef CLI_STUDY_H
#define CLI_STUDY_H

#include "planner/planner.h"
#include "reports/reports.h"

/* `plan`, and the best plan of every other strategy of `answer` (may be NULL), over the number of
 * nodes; without a network, of devices. NULL: there is only one. */
bool study_scaling(struct arena *arena, const struct question *question, int threads,
	const struct plan *plan, const struct answer *answer, const struct study **study,
	struct error *error);

/* Studies the same over the bandwidth out of a node; on one node, of a device's port. NULL if
 * collectives were measured, because those do not follow a bandwidth. */
bool study_link(struct arena *arena, const struct question *question, int threads,
	const struct plan *plan, const struct answer *answer, const struct study **study,
	struct error *error);

#endif
