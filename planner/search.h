/* Private to planner/: which plans of the space are simulated, and what came out. */
#ifndef PLANNER_SEARCH_H
#define PLANNER_SEARCH_H

#include "planner/bound.h"
#include "planner/evaluate.h"
#include "planner/ranking.h"
#include "planner/space.h"

struct outcome {
	bool tightened; /* its bound of memory is of its own schedule */
	bool simulated;
	bool refused; /* the builder could not honour it */
	enum fits fits;
	struct costs costs;
};

struct search {
	const struct question *question;
	struct space space;
	struct bounds bounds;
	struct evaluator evaluator;
	struct ranking ranking;
	struct outcome *outcomes; /* malloc'ed; by plan */
	int64_t limit;            /* bytes of one device; INT64_MAX until a prediction told it */
	int64_t pruned;
	bool offloads;         /* nothing fits without CPU offload, which this search is of */
	int64_t least_without; /* then: bytes that the closest plan without it needs */
	/* Per strategy without a plan that fits: the one that misses by least; else -1. */
	int closest[STRATEGY_COUNT];
	/* The least objective among plans that no simulation saw; INT64_MAX when all were seen. */
	int64_t least_skipped;
	int64_t least_uniform; /* the same before mixed plans were looked at */
};

/* Fills everything. When nothing fits, the user left CPU offload open and it makes something fit,
 * then of the plans with it; `question` is another one then (in `arena`). Strings live in `arena`;
 * search_finish frees the rest, also after an error. */
bool search_run(const struct question *question, struct arena *arena, struct search *search,
	struct error *error);
void search_finish(struct search *search);

#endif
