/* Where else a plan could run, for reports: more or fewer nodes, a slower or faster link. */
#ifndef CLI_STUDY_H
#define CLI_STUDY_H

#include "planner/planner.h"
#include "reports/reports.h"

/* `plan` and the best plan of every other strategy of `answer` (may be NULL), over the number of
 * nodes, or of devices where there is no network. NULL when there is nothing to vary. */
bool study_scaling(struct arena *arena, const struct question *question, int threads,
	const struct plan *plan, const struct answer *answer, const struct study **study,
	struct error *error);

/* The same over the bandwidth out of a node, or of a device's port on one node. NULL where
 * collectives were measured: those do not follow a bandwidth. */
bool study_link(struct arena *arena, const struct question *question, int threads,
	const struct plan *plan, const struct answer *answer, const struct study **study,
	struct error *error);

#endif
