/* The set of plans that a question allows: per strategy the product of its
 * axes. Every point goes through question_put and plan_resolve, as if it had been typed. */
#ifndef PLANNER_SPACE_SPACE_H
#define PLANNER_SPACE_SPACE_H

#include "planner/space/axes.h"

struct space {
	int n;                         /* enumerated */
	int n_all, capacity;           /* and with those that were added */
	struct plan *plans;            /* malloc'ed; in enumeration order, strategy by strategy */
	int *departures;               /* malloc'ed; of each enumerated plan (departures.h) */
	int first[STRATEGY_COUNT + 1]; /* strategy s has plans[first[s] .. first[s + 1]) */
	bool allowed[STRATEGY_COUNT];
	/* Allowed, but no plan of it could be made: why, in one sentence. Else NULL. */
	const char *impossible[STRATEGY_COUNT];
	bool same_batch; /* all plans have one global batch; else they compare per token */
};

/* Strings come from `arena`; space_finish frees the rest. EXIT_CODE_USAGE when no plan at all can
 * be made: the first strategy's reason; also when a value that the user listed is in no plan. */
bool space_build(const struct question *question, struct arena *arena, struct space *space,
	struct error *error);
/* Does the file in which the question's plans have to be said (`plan --for`) say all of the plan?
 */
bool wording_says(const struct question *question, const struct plan *plan, struct arena *arena);
/* Has it tensor, pipeline, context or expert ranks? */
bool has_axes(const struct plan *plan);
/* Does the plan have one of a lever's values? */
bool space_pulls(enum knob_id id, const struct plan *plan);
/* Appends a plan that no axis makes; returns its index. May move `plans`. */
int space_add(struct space *space, const struct plan *plan);
void space_finish(struct space *space);

/* The question with tensor ranks and as many context ranks as can be among what is searched; false
 * where they are, or were given. */
bool space_divide(const struct question *question, struct question *other);

/* `plan` with everything that the question leaves open at its default, in its strategy and shard
 * group; where there is no such plan, also in its axes. False: there is none even then. */
bool usual_plan(const struct question *question, const struct plan *plan, struct arena *arena,
	struct plan *usual);

#endif
