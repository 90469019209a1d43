/* Private to planner/: plans whose blocks or units differ.
 *
 * A *cell* is a plan of the space that checkpoints nothing, together with all plans that differ
 * from it only in this: the first K blocks are checkpointed in full, and (where parameters are
 * resharded after forward) the last M units keep theirs. Backward frees in reverse order, so of all
 * ways to choose K blocks and M units these free the most before the rest is recomputed and
 * gathered.
 *
 * Of a cell's mixes those count that are *maximal*: they fit with room, and would not with one
 * block less checkpointed or one unit more kept. What lies below recomputes and gathers more for no
 * need. */
#ifndef PLANNER_MIX_H
#define PLANNER_MIX_H

#include "planner/integer.h"
#include "planner/mix_probe.h"
#include "planner/search.h"

struct mix_cell {
	struct plan plan;             /* K = 0, M = 0 */
	int blocks, units;            /* K goes up to blocks; M below units; 0: that knob stays */
	double *compute, *arithmetic; /* s per micro-batch, by K */
	int64_t *saved;               /* bytes at the loss, by K */
	struct work *moved;           /* s per step, without the former, by M */
	int64_t *kept;                /* bytes at the loss, without the former, by M */
	int64_t at_end, fixed;        /* bytes at the optimizer; outside of buffers */
	double multiprocessors[ENGINES_MAX];
};

/* mix_bound.c: tables in `arena`. */
bool mix_cell_build(struct mix_probes *probes, const struct plan *plan, bool checkpoints,
	bool reshards, struct arena *arena, struct mix_cell *cell, struct error *error);
struct bound mix_bound(
	const struct topology *topology, const struct mix_cell *cell, int blocks, int units);
/* Minimise the time bound where the memory bound has room: a relaxation, since neither exceeds what
 * is simulated. Group 0 is K, group 1 is M. The caller finishes it. */
void mix_programme(const struct topology *topology, const struct mix_cell *cell, int64_t limit,
	struct arena *arena, struct programme *programme);
struct plan mix_plan(const struct mix_cell *cell, int blocks, int units, struct arena *arena);

/* mix.c. Which knobs of a plan are mixed under the question; false: none. */
bool mix_knobs(
	const struct search *search, const struct plan *plan, bool *checkpoints, bool *reshards);
/* After the search over uniform plans: adds maximal mixes to the ranking until no cell's bound is
 * low enough. */
bool mix_search(struct search *search, struct arena *arena, struct error *error);

#endif
