/* The defence: why the chosen plan won, in sentences. All figures are those of predictions. */
#ifndef PLANNER_DEFENCE_DEFENCE_H
#define PLANNER_DEFENCE_DEFENCE_H

#include "planner/defence/sensitivity.h"
#include "planner/defence/thresholds.h"
#include "planner/defence/warnings.h"

/* A plan that the answer names, with what explains its time. */
struct contender {
	const struct plan *plan;
	const struct prediction *prediction;
	const struct exposure *exposure;
};

/* Why `other` lost against `chosen`: one sentence. `*briefly`: it with a cause but no saving, of
 * which neither says anything alone; NULL: it names no such two. */
const char *defend_slower(const struct question *question, const struct contender *chosen,
	const struct contender *other, struct arena *arena, const char **briefly);
/* By how much a plan does not fit: one sentence. `alone`: no ranks divide its model, and they do in
 * the plan that it is compared with. */
const char *defend_too_large(const struct prediction *prediction, bool alone, struct arena *arena);

struct defence {
	struct arena *arena;
	const struct question *question;
	const struct search *search;
	int n;
	const char *reasons[32];
};

/* Adds a sentence, and finishes `text`. */
void defence_add(struct defence *defence, struct text *text);

/* What decided for the chosen plan: offload, memory, stages, the batch. */
void defend_winner(struct defence *defence, const struct contender *chosen);
/* By how much the chosen plan wins over `runner_up`, the next in the order, and over `other`, the
 * best of another strategy. Either may be NULL. */
void defend_margin(struct defence *defence, const struct contender *chosen,
	const struct contender *runner_up, const struct contender *other);
/* What wrap, strategy and prefetch gain, the largest effect first. */
void defend_knobs(
	struct defence *defence, const struct contender *chosen, const struct variants *variants);
/* Why nothing fits. `closest`: the plan that misses by least; NULL: no plan could be made. */
void defend_nothing(
	struct defence *defence, const struct contender *closest, const struct variants *variants);

/* planner_compare (planner.h). */
bool compare_plan(const struct question *question, const struct plan *mine,
	const struct answer *answer, struct arena *arena, struct comparison *comparison,
	struct error *error);

#endif
