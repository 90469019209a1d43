/* The ends of a model under FSDP2: its embedding, and its tail of last norm and head. Some
 * frameworks treat them in a fixed way, whatever the plan asks for, in both directions. */
#ifndef FRAMEWORKS_COMMON_ENDS_H
#define FRAMEWORKS_COMMON_ENDS_H

#include "schedule/plan/plan.h"

/* Does the tail stay gathered from its forward to its backward, which follows at once? */
enum tail {
	TAIL_AS_PLANNED,
	TAIL_STAYS,  /* always */
	TAIL_CHOSEN, /* the file decides */
};

/* The wrap policy with embedding and head as units; unchanged if they share a weight, or if nothing
 * is wrapped. */
const char *ends_wrap(struct arena *arena, const struct model *model, const char *wrap);
/* Resharding of every unit but the tail, for example "33xtrue+1xfalse"; NULL: the plan reshards
 * nothing, or the tail is not a unit of its own (the root always stays). */
const char *ends_reshard(struct arena *arena, const struct model *model, const struct plan *plan);
/* Does the tail stay gathered in the plan? */
bool ends_tail_stays(struct arena *arena, const struct model *model, const struct plan *plan);

#endif
