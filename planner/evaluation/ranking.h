/* Private to evaluation/: the order of candidates, and the only door into the answer.
 *
 * Order: the objective's cost; then time, memory, network, host memory (the objective's own
 * skipped); then enumeration order. Costs are whole numbers, so there is always one first.
 *
 * A candidate whose memory is tight (allocator retries expected) gives way to any that fits with
 * room. Where ranks of the first divide the model, a candidate without wins that costs little more
 * (twice the question's `simplicity`). Of those that cost little more than that (`simplicity`), the
 * one that departs in the fewest knobs from what its framework does without a word wins. */
#ifndef PLANNER_EVALUATION_RANKING_H
#define PLANNER_EVALUATION_RANKING_H

#include "planner/evaluation/costs.h"

#define RANKING_FUZZ   1.01 /* costs that are this close are no advantage */
#define RANKING_WINDOW 1.10 /* runners-up cost at most this much more than the first */
#define RANKING_REACH  1.05 /* an open micro-batch may gain so much between powers of two */
enum { RANKING_RUNNERS_UP = 5 };

struct ranked {
	int plan; /* index in the space */
	enum strategy strategy;
	bool tight;
	bool divided; /* tensor, pipeline, context or expert ranks */
	int departures;
	struct costs costs;
};

struct ranking {
	enum cost_kind objective;
	double close;       /* costs of so many times the first are as good */
	double close_plain; /* of a candidate that is not divided, where the first is */
	enum wanted wanted; /* the front where it is all */
	double reach; /* the best of a strategy is wanted where it costs so many times the first; 0:
		       * as `wanted` says */
	double window; /* of runners-up */
	int n, capacity;
	struct ranked *entries; /* malloc'ed; in order */
};

/* < 0: a before b. */
int ranked_compare(enum cost_kind objective, const struct ranked *a, const struct ranked *b);

/* `simplicity`: a share of the cost (question.h). */
void ranking_init(struct ranking *ranking, enum objective objective, double simplicity);
void ranking_finish(struct ranking *ranking);
/* Takes a candidate that fits. */
void ranking_add(struct ranking *ranking, const struct ranked *candidate);
/* In place of the entry of its plan. */
void ranking_change(struct ranking *ranking, const struct ranked *candidate);

/* The winner of one strategy, or of all (STRATEGY_COUNT); NULL when none fits. */
const struct ranked *ranking_best(const struct ranking *ranking, int strategy);

/* The first in order that fits with room; the first of all where none does. NULL when none fits. */
const struct ranked *ranking_first(const struct ranking *ranking);
/* Could a candidate with room whose objective costs at least `bound` be that? */
bool ranking_may_be_first(const struct ranking *ranking, int64_t bound);
/* The largest `bound` for which it could; INT64_MAX: any. */
int64_t ranking_most_wanted(const struct ranking *ranking);

/* The winner and, in order, those that are worth showing beside it: better by more than the fuzz in
 * some cost than everything shown before, and within the window; with room, where the winner has
 * it. Returns their number. */
int ranking_front(
	const struct ranking *ranking, const struct ranked *front[1 + RANKING_RUNNERS_UP]);

/* The Pareto front: in order, those that are better by more than its fuzz in some cost than
 * everything listed before them; with room, where the first has it; and of at most so many times
 * its cost. Returns their number. */
#define RANKING_PARETO_WINDOW 2.0
#define RANKING_PARETO_FUZZ   1.03 /* 1.01 lists twice as many, most of them near twins */
enum { RANKING_PARETO_MAX = 256 };
int ranking_pareto(const struct ranking *ranking, const struct ranked **front, int most);
/* Whether the Pareto front of the entries lists one that comes before `plan`, and is as good up to
 * the fuzz, whatever `plan` costs from `bounds` on. When that is so for everything that is no
 * entry, the front is that of all. */
bool ranking_excludes(const struct ranking *ranking, const struct ranked *const *front, int n,
	int plan, const struct costs *bounds);
/* The same for whatever costs more than the result in the objective, and from `bounds` on in the
 * rest. INT64_MAX: none. */
int64_t ranking_excludes_above(const struct ranking *ranking, const struct ranked *const *front,
	int n, const struct costs *bounds);

/* Is that cost of the objective, up to the fuzz, as good as that of the first? */
bool ranking_is_rival(const struct ranking *ranking, int64_t cost);

/* Could a candidate whose objective costs at least costs.of[objective], and whose other costs are
 * not known, still be the winner of all; change that, the winner of its strategy, or the front? */
bool ranking_may_win(const struct ranking *ranking, const struct ranked *candidate);
bool ranking_needs(const struct ranking *ranking, const struct ranked *candidate);

#endif
