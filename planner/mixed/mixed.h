/* Plans whose blocks or units differ, as options beside an answer; stages that do; and CPU offload
 * where the devices alone do not suffice. */
#ifndef PLANNER_MIXED_MIXED_H
#define PLANNER_MIXED_MIXED_H

#include "planner/evaluation/evaluation.h"

enum { MIXES_MAX = 3 };

/* A mix saves at least this much of the time of a token, or it is none worth writing down. */
#define MIX_LEAST_GAIN 0.002

struct mix {
	struct plan plan;
	int64_t cost; /* time per token (costs.h) */
};

/* Mixes that fit with room and are faster than a plan of the space, the fastest first; in `arena`.
 * A plan that fits is looked for around the few best that would if some of their blocks were
 * checkpointed: not all are looked at. Returns their number. */
bool mixes_find(struct search *search, int chosen, struct arena *arena, struct mix mixes[MIXES_MAX],
	int *n, struct error *error);

/* May a search say which blocks the stages of a pipeline have? */
bool stages_are_open(const struct question *question, const struct plan *plan);

/* A pipeline's plan with its blocks shared out over its stages otherwise, so that it has room and a
 * step takes less than `wanted` seconds. exists false: none was found. Strings live in the
 * evaluator until its next plan. */
struct shared {
	bool exists;
	struct plan plan;
	struct prediction prediction;
};

/* Would it if no rank lacked memory? `usual`: s of a step. False: stages_share finds none.
 * Allocates from `arena`. */
bool stages_may_share(const struct question *question, const struct plan *plan, double usual,
	double wanted, struct arena *arena);
/* `usual`: of the plan as it is, with its memory. Allocates from `arena`. */
bool stages_share(struct evaluator *evaluator, const struct plan *plan,
	const struct prediction *usual, double wanted, struct arena *arena, struct shared *shared,
	struct error *error);

/* The question with every kind of CPU offload that its runtime has, and no plan without. False: the
 * user decided about it, or there is none. */
bool offload_question(const struct question *question, struct arena *arena, struct question *other);

#endif
