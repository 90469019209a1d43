/* The ends of a model under FSDP2: its embedding, and its tail of last norm and head. What some
 * frameworks do with them, whatever the plan asks for, in both directions. */
#ifndef FRAMEWORKS_COMMON_ENDS_H
#define FRAMEWORKS_COMMON_ENDS_H

#include "schedule/plan/plan.h"

/* Does the tail stay gathered from its forward to its backward, which follows at once? */
enum tail {
	TAIL_AS_PLANNED,
	TAIL_STAYS,  /* always */
	TAIL_CHOSEN, /* the file says it */
};

/* The policy with embedding and head apart; as it is where they share a weight, or where nothing is
 * wrapped. */
const char *ends_wrap(struct arena *arena, const struct model *model, const char *wrap);
/* Resharding of every unit but the tail, "33xtrue+1xfalse"; NULL when the plan reshards nothing
 * or the tail is no unit of its own: the root stays in any case. */
const char *ends_reshard(struct arena *arena, const struct model *model, const struct plan *plan);
/* Is that what the plan has? */
bool ends_tail_stays(struct arena *arena, const struct model *model, const struct plan *plan);

#endif
