/* The face of levers/: lines of the script that would make a plan faster, or fit. */
#ifndef PLANNER_LEVERS_LEVERS_H
#define PLANNER_LEVERS_LEVERS_H

#include "planner/defence/defence.h"
#include "planner/search/search.h"

/* "--loss fused": the plan's value, in `arena`. */
const char *lever_typed(enum knob_id id, const struct plan *plan, struct arena *arena);

/* Drops the levers that the best plan can do without, of those that the question frees: at their
 * defaults it costs little more (`simplicity`) and has room as before. Changes `plan`. `known`: a
 * plan whose prediction is known; or NULL. `shown`: empty, or NULL; becomes a plan that was
 * predicted on the way with all figures to be shown, often the final one, with strings in `arena`.
 */
bool levers_let_go(struct evaluator *evaluator, const struct ranking *ranking,
	const struct ranked *best, const struct candidate *known, struct candidate *shown,
	struct arena *arena, struct plan *plan, struct error *error);

/* Finds the gain of every open lever alone beside the chosen plan (of `variants`), the largest
 * first; and the best plan of the chosen strategy with all levers free. Only for the objective
 * time. */
bool levers_find(const struct question *question, const struct candidate *chosen,
	const struct variants *variants, struct arena *arena, struct answer *answer,
	struct error *error);

/* Nothing fits: what would, each planned by a search of its own. `closest`: misses by least. */
bool way_out_find(const struct question *question, const struct plan *closest,
	const struct variants *variants, struct arena *arena, struct answer *answer,
	struct error *error);

#endif
