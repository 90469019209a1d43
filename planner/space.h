/* Private to planner/: the set of plans that a question allows.
 *
 * A space is a product of axes per strategy. An axis is an option that the user left open, with its
 * values as text, simplest first; every point goes through choices_set and plan_resolve, as if it
 * had been typed. What the user fixed is no axis. docs/planner.md lists the axes. */
#ifndef PLANNER_SPACE_H
#define PLANNER_SPACE_H

#include "planner/planner.h"

struct space {
	int n, capacity;
	struct plan *plans;            /* malloc'ed; in enumeration order, strategy by strategy */
	int first[STRATEGY_COUNT + 1]; /* strategy s has plans[first[s] .. first[s + 1]) */
	bool allowed[STRATEGY_COUNT];
	/* Allowed, but no plan of it could be made: why, in one sentence. Else NULL. */
	const char *impossible[STRATEGY_COUNT];
	bool same_batch; /* all plans have one global batch; else they compare per token */
};

/* Strings come from `arena`; space_finish frees the rest. EXIT_CODE_USAGE when no plan at all can
 * be made: the first strategy's reason. */
bool space_build(const struct question *question, struct arena *arena, struct space *space,
	struct error *error);
void space_finish(struct space *space);

/* The wrap policies worth trying, simplest first; policies that make the same units as an earlier
 * one are left out. At most SPACE_VALUES_MAX. */
enum { SPACE_VALUES_MAX = 64 };
int space_wraps(const struct plan *plan, const struct model *model, struct arena *arena,
	const char *wraps[SPACE_VALUES_MAX]);

/* Shard groups of the hybrid strategies: proper divisors of the ranks that fill whole nodes or an
 * equal part of each, ascending. */
int space_shard_groups(const struct topology *topology, int64_t groups[SPACE_VALUES_MAX]);

/* Without any batch option: tokens of one step that micro-batches may grow to (the batch of
 * Llama-2, Touvron et al. 2023, section 2). */
#define SPACE_FREE_BATCH_TOKENS INT64_C(4194304)

#endif
