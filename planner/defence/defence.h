/* The answer in sentences. All figures are the predictions'. */
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

/* Why `other` lost against `chosen`: one sentence. */
const char *defend_slower(const struct question *question, const struct contender *chosen,
	const struct contender *other, struct arena *arena);
const char *defend_too_large(const struct prediction *prediction, struct arena *arena);

struct defence {
	struct arena *arena;
	const struct question *question;
	const struct search *search;
	int n;
	const char *reasons[32];
};

/* Takes the text. */
void defence_add(struct defence *defence, struct text *text);

void defend_winner(struct defence *defence, const struct contender *chosen);
/* `runner_up`: next in the order; `other`: the best of another strategy. Either may be NULL. */
void defend_margin(struct defence *defence, const struct contender *chosen,
	const struct contender *runner_up, const struct contender *other);
/* Wrap, strategy and prefetch in their order of effect. */
void defend_knobs(
	struct defence *defence, const struct contender *chosen, const struct variants *variants);
/* Nothing fits: `closest` misses by least (NULL: nothing could be made). */
void defend_nothing(
	struct defence *defence, const struct contender *closest, const struct variants *variants);

/* planner_compare (planner.h). */
bool compare_plan(const struct question *question, const struct plan *mine,
	const struct answer *answer, struct arena *arena, struct comparison *comparison,
	struct error *error);

#endif
