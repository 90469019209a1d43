/* Private to mixed/: the mixes of a plan.
 *
 * A *family* is a plan together with all plans that differ from it only in counts: of the first
 * `some` blocks the first `full` are checkpointed in full, the others selectively (if the runtime
 * can); the last `units` units keep their parameters after forward; the first `stays` units stay on
 * the device. Blocks are equal except for their place, and so are units. Backward frees in reverse
 * order, so these places free the most before the others are recomputed and gathered, and the host
 * can begin with what backward reaches first. */
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
/* The plan with these counts, in `arena`. */
struct plan family_plan(const struct family *family, const int counts[COUNTS], struct arena *arena);
/* Finds the counts of a mix that fits with room and cannot be improved by one: one block less
 * checkpointed, or one more unit kept or on the device, does not fit or is slower. An integer
 * programme over the cost of one more of each count proposes, the simulator decides, and bisection
 * does the rest. `exists` false: none was found. */
bool family_solve(const struct family *family, struct evaluator *evaluator, struct arena *arena,
	int counts[COUNTS], double *step_time, bool *exists, struct error *error);

#endif
