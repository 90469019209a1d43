/* Private to space/: the knobs that a search may turn, and the values of each.
 *
 * An axis is a knob that the user left open, with its values, the simplest first. A knob that the
 * user fixed has no values. docs/planner.md lists the axes. */
#ifndef PLANNER_SPACE_AXES_H
#define PLANNER_SPACE_AXES_H

#include "planner/answer/answer.h"

/* The order of loops in an enumeration, the outermost first: neighbouring plans differ in the knobs
 * that matter least. */
extern const enum knob_id axes_in_order[];
extern const int n_axes;

enum { SPACE_VALUES_MAX = KNOB_LIST_MAX };

struct axis {
	int n;
	union knob_value values[SPACE_VALUES_MAX];
};

/* The axes of one strategy. */
struct axes {
	struct axis of[KNOB_COUNT];
	bool same_batch; /* all plans have the same global batch */
};

/* Fills the axes of a strategy. `plan`: of the strategy, with everything open at its default.
 * `by_name`: the user named the strategy. False: it is hybrid, and has no proper shard group. */
bool axes_fill(const struct question *question, const struct plan *plan, bool by_name,
	struct arena *arena, struct axes *axes);

/* Does it ask for what only plans with expert ranks have: DeepEP, rows beside compute? */
bool asks_for_expert_ranks(const struct question *question);

/* As plan_resolve, with everything open at its default. Where the batch has fewer sequences than
 * there are data-parallel ranks, as few ranks as possible divide the model. */
bool axes_resolve(const struct question *question, struct arena *arena, struct plan *plan,
	struct error *error);

/* The first value of the shard group's axis that divides the ranks which given axes leave. A hybrid
 * strategy needs one to be resolved at all. 0 when it has none. */
int64_t axes_first_group(
	const struct question *question, enum strategy strategy, struct arena *arena);

/* The wrap policies worth trying, simplest first; policies that make the same units as an earlier
 * one are left out. `with_ends`: also with head and embedding apart. */
int space_wraps(const struct plan *plan, const struct model *model, bool with_ends,
	struct arena *arena, union knob_value wraps[SPACE_VALUES_MAX]);

/* The values that a lever can be changed to from that in `plan`. Returns their number; `error` says
 * why another value cannot be had. */
int space_levers(const struct question *question, const struct plan *plan, enum knob_id id,
	union knob_value values[SPACE_VALUES_MAX], struct error *error);

/* The shard groups of hybrid strategies, ascending: proper divisors of the number of ranks that
 * fill whole nodes or divide a node equally. Returns their number. */
int space_shard_groups(const struct topology *topology, int64_t groups[SPACE_VALUES_MAX]);

/* The shard group that fills a node of which `together` ranks divide the model, else the largest; 0
 * when there is none. */
int64_t axes_natural_group(const struct topology *topology, int64_t together);
/* How many ranks divide the model, as far as the question gives it. */
int64_t question_ranks_together(const struct question *question);
/* The options that give those ranks, as typed: "--tensor 8 --pipeline 2"; "" if none does. */
const char *question_together_typed(const struct question *question, struct arena *arena);

/* Without a batch option: the most tokens per step for which micro-batches grow (the batch of
 * Llama 2, Touvron et al. 2023, section 2). */
#define SPACE_FREE_BATCH_TOKENS INT64_C(4194304)

#endif
