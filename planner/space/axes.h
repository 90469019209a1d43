/* Private to space/: the knobs that a search may turn, and the values of each.
 *
 * An axis is a knob that the user left open, with its values, simplest first. What the
 * user fixed has no values. docs/planner.md lists them. */
#ifndef PLANNER_SPACE_AXES_H
#define PLANNER_SPACE_AXES_H

#include "planner/answer/answer.h"

/* Outermost first: neighbours in enumeration order differ in the knobs that matter least. */
extern const enum knob_id axes_in_order[];
extern const int n_axes;

enum { SPACE_VALUES_MAX = KNOB_LIST_MAX };

struct axis {
	int n;
	union knob_value values[SPACE_VALUES_MAX];
};

/* A strategy's axes. */
struct axes {
	struct axis of[KNOB_COUNT];
	bool same_batch; /* all plans have one global batch */
};

/* `plan`: of the strategy, with everything open at its default. `by_name`: the user named the
 * strategy. False: a hybrid strategy that has no proper shard group. */
bool axes_fill(const struct question *question, const struct plan *plan, bool by_name,
	struct arena *arena, struct axes *axes);

/* plan_resolve, with everything open at its default; where the batch is too small for all ranks to
 * have a sequence, with the fewest that may divide the model. */
bool axes_resolve(const struct question *question, struct arena *arena, struct plan *plan,
	struct error *error);

/* The first value of the shard group's axis, which a hybrid strategy needs to be resolved at all;
 * 0 when it has none. */
int64_t axes_first_group(
	const struct question *question, enum strategy strategy, struct arena *arena);

/* The wrap policies worth trying, simplest first; policies that make the same units as an earlier
 * one are left out. `with_ends`: also with head and embedding apart. */
int space_wraps(const struct plan *plan, const struct model *model, bool with_ends,
	struct arena *arena, union knob_value wraps[SPACE_VALUES_MAX]);

/* What a lever may become of what it is in `plan`; `error`: why something else may not. */
int space_levers(const struct question *question, const struct plan *plan, enum knob_id id,
	union knob_value values[SPACE_VALUES_MAX], struct error *error);

/* Shard groups of the hybrid strategies: proper divisors of the ranks that fill whole nodes or an
 * equal part of each, ascending. */
int space_shard_groups(const struct topology *topology, int64_t groups[SPACE_VALUES_MAX]);

/* The shard group that fills a node, else the largest; 0 when there is none. */
int64_t axes_natural_group(const struct topology *topology);

/* Without any batch option: tokens of one step that micro-batches may grow to (the batch of
 * Llama-2, Touvron et al. 2023, section 2). */
#define SPACE_FREE_BATCH_TOKENS INT64_C(4194304)

#endif
