/* Private to mixed/: plans whose blocks or units differ.
 *
 * A *subproblem* is a plan of the space together with all plans that differ from it only in this:
 * where it checkpoints nothing, of the first `some` blocks the first `full` are checkpointed in
 * full, the others selectively (where the runtime can); where it reshards parameters after forward,
 * the last `units` units keep theirs; where it offloads all units, the first `stays` units stay on
 * the device. Blocks are alike but for their place, and so are units, so how many have a value is
 * all there is to choose; backward frees in reverse order, so of all places these free the most
 * before the rest is recomputed and gathered, and the host can begin with what backward reaches
 * first.
 *
 * Of a subproblem's mixes those count that are *maximal*: they fit with room, and would not with
 * one block less checkpointed in full, one less checkpointed at all, one unit more kept, or one
 * more on the device. Mixes below recompute, gather and copy more for no need. */
#ifndef PLANNER_MIXED_MIX_H
#define PLANNER_MIXED_MIX_H

#include "planner/integer/integer.h"
#include "planner/mixed/samples.h"

/* The choices of a mix, and the groups of its programme. Without selective checkpointing `some` is
 * 0 and means nothing. */
enum { MIX_FULL, MIX_SOME, MIX_UNITS, MIX_STAYS, MIX_CHOICES };

/* Which knobs are mixed. */
struct mix_knobs {
	bool full, selective, reshards, offloads;
};

/* What a number of blocks adds, checkpointed in full or at all. */
struct mix_load {
	double *compute, *issue; /* s per micro-batch */
	double *before;          /* s of compute up to the loss */
	double (*cover)[SHARES]; /* s of it beside which a collective costs nothing */
	int64_t *saved;          /* bytes at the loss */
};

struct subproblem {
	struct plan plan; /* no block checkpointed, no unit kept, none on the device */
	struct mix_knobs knobs;
	int blocks, units, hosts; /* units: kept are less, hosts: those on the device; 0: that knob
				     stays */
	int sizes[MIX_CHOICES];   /* of the choices */
	struct mix_load loads[2]; /* by MIX_FULL and MIX_SOME; everything else is in the first */
	struct work *moved;       /* s per step, without the former, by units kept */
	int64_t *kept;            /* bytes at the loss, without the former, by units kept */
	struct work *hosted;      /* what offload adds, by units on the device */
	int64_t *hosted_kept;     /* bytes at the loss that it adds */
	int64_t *at_end;          /* bytes at the optimizer, by units on the device */
	int64_t apart;            /* bytes of other pools than compute's */
	int64_t fixed;            /* bytes outside of buffers */
	struct bound_edges edges;
	struct bound_communication communication;
};

/* table.c: tables in `arena`. */
bool subproblem_build(struct samples *samples, const struct plan *plan,
	const struct mix_knobs *knobs, struct arena *arena, struct subproblem *subproblem,
	struct error *error);
/* bound.c. The memory is what it needs to fit with room. */
struct bound mix_bound(const struct topology *topology, const struct subproblem *subproblem,
	const int mix[MIX_CHOICES]);
/* Minimise the time bound where the memory bound has room: a relaxation, since neither exceeds what
 * is simulated. The caller finishes it. */
void mix_programme(const struct topology *topology, const struct subproblem *subproblem,
	int64_t limit, struct arena *arena, struct programme *programme);
struct plan mix_plan(
	const struct subproblem *subproblem, const int mix[MIX_CHOICES], struct arena *arena);

/* subproblem.c: one subproblem. */
struct mix_search {
	struct search *search;
	struct arena *arena; /* of the answer */
	int64_t effort;      /* blocks x micro-batches simulated */
};
/* Could a mix whose objective costs at least `bound` be the first of all? */
bool mix_is_wanted(const struct mix_search *mixing, int64_t bound);
/* In `arena`; to be closed. `bound`: no mix of the subproblem costs less. */
struct mix_working *subproblem_open(struct mix_search *mixing, const struct subproblem *subproblem,
	int64_t bound, struct arena *arena);
/* Adds maximal mixes to the ranking: so many proposals, or until none is wanted any more, or until
 * so many blocks x micro-batches were simulated over all subproblems. A mix that does not fit is
 * taken to have no larger neighbour that does. */
bool subproblem_search(
	struct mix_working *working, int rounds, int64_t effort, struct error *error);
/* From now on without that. */
void subproblem_doubt(struct mix_working *working);
/* May it hold something that is wanted? */
bool subproblem_is_open(const struct mix_working *working);
/* What is left of the subproblem costs at least so much. */
int64_t subproblem_bound(struct mix_working *working);
void subproblem_close(struct mix_working *working);

/* mix.c. Which knobs of a plan are mixed under the question; false: none. */
bool mix_knobs(const struct search *search, const struct plan *plan, struct mix_knobs *knobs);

#endif
