/* Private to mixed/: a plan's mixes.
 *
 * A *family* is a plan together with all that differ from it only in counts: of the first `some`
 * blocks the first `full` are checkpointed in full, the others selectively (where the runtime can);
 * the last `units` units keep their parameters after forward; the first `stays` units stay on the
 * device. Blocks are alike but for their place, and so are units; backward frees in reverse order,
 * so of all places these free the most before the rest is recomputed and gathered, and the host can
 * begin with what backward reaches first. */
#ifndef PLANNER_MIXED_COUNTS_H
#define PLANNER_MIXED_COUNTS_H

#include "planner/mixed/mixed.h"

enum { COUNT_FULL, COUNT_SOME, COUNT_UNITS, COUNT_STAYS, COUNTS };

struct family {
	struct plan plan; /* no block checkpointed (where that is mixed), no unit kept or back on
			     the device */
	bool full, selective, reshards, offloads; /* what is mixed */
	int most[COUNTS];                         /* 0: that count stays 0 */
};

/* Fills `most`. */
void family_measure(struct family *family, const struct model *model);
/* In `arena`. */
struct plan family_plan(const struct family *family, const int counts[COUNTS], struct arena *arena);
/* The counts of a family's mix that fits with room, and would neither with one block less
 * checkpointed in full, or at all, nor with one more unit kept, or on the device, unless that is
 * slower. An integer programme over what one more of each costs proposes, the simulator decides,
 * and the rest is bisection. `exists` false: none was found. */
bool family_solve(const struct family *family, struct evaluator *evaluator, struct arena *arena,
	int counts[COUNTS], double *step_time, bool *exists, struct error *error);

#endif
