/* Which plans of the space are simulated, and what came out. */
#ifndef PLANNER_SEARCH_SEARCH_H
#define PLANNER_SEARCH_SEARCH_H

#include "planner/evaluation/evaluation.h"

/* Fills everything. When nothing fits, the user left CPU offload open and it makes something fit,
 * then of the plans with it; `question` is another one then (in `arena`). Strings live in `arena`;
 * search_finish frees the rest, also after an error. */
bool search_run(const struct question *question, struct arena *arena, struct search *search,
	struct error *error);
/* Blocks of the best pipelines shared out over their stages, where that saves more than simplicity
 * is worth and makes one the best of its strategy: it takes the place of the plan of the space. In
 * `arena`. */
bool search_share_stages(struct search *search, struct arena *arena, struct error *error);
/* evaluator_run_closely of a plan of the space, unless the search has looked at it so. */
bool search_look_closely(struct search *search, int plan, struct arena *arena,
	struct prediction *prediction, struct exposure *exposure, struct error *error);
/* Gives back what simulations have used, before another search; a later one takes it again. */
void search_release(struct search *search);
void search_finish(struct search *search);

/* planner_find (planner.h). */
bool find_answer(const struct question *question, enum find find, double target,
	struct arena *arena, struct finding *finding, struct error *error);

#endif
