/* Plans that treat blocks or units unequally, as options beside an answer; other stages for
 * pipelines; and CPU offload where the devices' memory does not suffice. */
#ifndef PLANNER_MIXED_MIXED_H
#define PLANNER_MIXED_MIXED_H

#include "planner/evaluation/evaluation.h"

enum { MIXES_MAX = 3 };

/* A mix that saves less than this share of the time per token is not worth an option. */
#define MIX_LEAST_GAIN 0.002

struct mix {
	struct plan plan;
	int64_t cost; /* time per token (costs.h) */
};

/* Mixes that fit with room and are faster than a plan of the space, the fastest first, in `arena`.
 * Only the families of the few best plans that would fit with some blocks checkpointed are tried.
 * Returns their number. */
bool mixes_find(struct search *search, int chosen, struct arena *arena, struct mix mixes[MIXES_MAX],
	int *n, struct error *error);

/* May the search change the stages of a pipeline? */
bool stages_are_open(const struct question *question, const struct plan *plan);

/* A pipeline's plan with its blocks shared out differently over its stages, so that it has room and
 * a step takes less than `wanted` seconds. exists false: none was found. Strings are in the
 * evaluator until its next plan. */
struct shared {
	bool exists;
	struct plan plan;
	struct prediction prediction;
};

/* Could it succeed if no rank lacked memory? `usual`: step time in s. False: stages_share finds
 * none. Allocates from `arena`. */
bool stages_may_share(const struct question *question, const struct plan *plan, double usual,
	double wanted, struct arena *arena);
/* `usual`: the prediction of the plan as it is, with its memory. Allocates from `arena`. */
bool stages_share(struct evaluator *evaluator, const struct plan *plan,
	const struct prediction *usual, double wanted, struct arena *arena, struct shared *shared,
	struct error *error);

/* The question with every kind of CPU offload that its runtime has, and without plans that do not
 * offload. False: the user has decided about offload, or the runtime has none. */
bool offload_question(const struct question *question, struct arena *arena, struct question *other);

#endif
