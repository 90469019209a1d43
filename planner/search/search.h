/* The search: which plans of the space are simulated, and their results. */
#ifndef PLANNER_SEARCH_SEARCH_H
#define PLANNER_SEARCH_SEARCH_H

#include "planner/evaluation/evaluation.h"

/* Fills all of `search`. If nothing fits, but something does with CPU offload, and the user left
 * that open, the plans are those with offload; then search->question is another question, in
 * `arena`. Strings are in `arena`; search_finish frees the rest, also after an error. */
bool search_run(const struct question *question, struct arena *arena, struct search *search,
	struct error *error);
/* Shares out the blocks of the best pipelines over their stages, if that saves more than simplicity
 * is worth and makes one the best of its strategy. That plan replaces the one of the space. In
 * `arena`. */
bool search_share_stages(struct search *search, struct arena *arena, struct error *error);
/* As evaluator_run_closely for a plan of the space, unless the search has already done so. */
bool search_look_closely(struct search *search, int plan, struct arena *arena,
	struct prediction *prediction, struct exposure *exposure, struct error *error);
/* Frees the memory of simulations before another search. A later simulation allocates it again. */
void search_release(struct search *search);
void search_finish(struct search *search);

/* planner_find (planner.h). */
bool find_answer(const struct question *question, enum find find, double target,
	struct arena *arena, struct finding *finding, struct error *error);

#endif
