/* Private to waits.c and results.c: what the walk over a step's operations keeps. */
#ifndef SCHEDULE_WAITS_H
#define SCHEDULE_WAITS_H

#include "schedule/passes/step.h"

/* An operation of this step or of the one before; op < 0: none. */
struct ref {
	int step, op;
};

/* What an action leaves behind for others to wait for: needs of waits.c, and some that only
 * results.c tells apart. */
enum result {
	IS_NOTHING,
	IS_READY,
	IS_COPIED_OUT,
	IS_RESHARDED,
	IS_PREPARED,
	IS_REDUCED,
	IS_ADDED,
	IS_SCATTERED,
	IS_RETURNED,
	IS_WHOLE,
	IS_UPDATED,
	IS_MOVED,
	IS_SENT,
	IS_RECEIVED,
	IS_ROTATING,
	IS_GATHERED,
};

/* The last operations that left the results of one unit. */
struct results {
	struct ref ready, prepared, reduced, added, returned;
};

/* So many gradients may wait for their reduction while compute makes another one, and so many that
 * are reduced for their copy to the host. */
enum { GRADIENTS_PENDING = 2 };

/* Where gradients are made: `gradient_pools`. */
enum { GRADIENT_POOLS = 2 };

/* The operations of a backward pass that gave a gradient back on another stream than it was made
 * on: the last ones, the oldest first. */
struct leaving {
	struct ref gone[GRADIENTS_PENDING + 1];
	int micro_batch, chunk; /* the pass */
};

struct waiting {
	struct step *step;
	/* The operation that the walk has come to, and what was found for it. */
	const struct action *at;
	const struct op *op;
	struct ref here;
	struct numbers waits;
	/* The last operation on each stream, and the one before that. */
	struct ref last[STREAM_COUNT], before[STREAM_COUNT];
	/* The last operation that left each result. */
	struct results *units; /* [n_units] */
	struct ref optimizer, whole;
	struct ref copied_out, released; /* the last copy-out, and the one that gathers wait for */
	struct ref in_flight;
	struct leaving leaving[GRADIENT_POOLS];
	struct ref moved;
	struct ref arrived, arriving;   /* blocks of keys, for this round and for the next one */
	struct ref input, before_input; /* gathered beside compute; the exchange before that */
	struct ref *received; /* messages, by stage of the rank, direction and micro-batch */
	struct ref *sent;     /* by flight: the message that its forward sent, */
	/* and the last of its operations of compute, and of its exchanges of rows */
	struct ref *computed, *rows;
};

extern const struct ref no_ref;
extern const enum stream gradient_pools[GRADIENT_POOLS];

/* Results of the action's unit. */
struct results *results_of_unit(struct waiting *w);
/* The message that the pass of this micro-batch begins with; none once compute has waited for it.
 */
struct ref *results_received(const struct waiting *w);
/* Is a gradient of that pool among the buffers? */
bool results_have_gradient(const struct waiting *w, struct slice buffers, enum stream pool);
/* Notes the operation that the walk has come to as the last one that left this. */
void results_leave(struct waiting *w, enum result result);

#endif
