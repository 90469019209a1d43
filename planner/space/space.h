/* The set of plans that a question allows: for each strategy the product of its axes. Every point
 * goes through question_put and plan_resolve, as if the user had typed it. */
#ifndef PLANNER_SPACE_SPACE_H
#define PLANNER_SPACE_SPACE_H

#include "planner/space/axes.h"

struct space {
	int n;               /* plans of the axes */
	int n_all, capacity; /* the same and those of space_add */
	struct plan *plans;  /* [n_all] malloc'ed; strategy by strategy, then added ones */
	int *departures;     /* [n] malloc'ed; departures_from of each plan */
	int first[STRATEGY_COUNT + 1]; /* strategy s has plans[first[s] .. first[s + 1]) */
	bool allowed[STRATEGY_COUNT];
	/* Why no plan of an allowed strategy could be made, in one sentence. Else NULL. */
	const char *impossible[STRATEGY_COUNT];
	bool same_batch; /* all plans have the same global batch; else times are per token */
};

struct sampler; /* bounds/ */

/* What a search knows from the search of a question that differs from its own in one value. */
struct earlier {
	const struct space *space;     /* the same plans; NULL: there may be others */
	const struct sampler *sampler; /* what was measured of bounds */
	bool sends_alike; /* what ranks send takes as long; else only what they compute */
};

/* Strings come from `arena`; space_finish frees the rest. EXIT_CODE_USAGE: no plan at all can be
 * made (the message is the first strategy's), or a value that the user listed is in no plan. */
bool space_build(const struct question *question, struct arena *arena, struct space *space,
	struct error *error);
/* Can the configuration file of the question (`plan --for`) express all of the plan? */
bool wording_says(const struct question *question, const struct plan *plan, struct arena *arena);
/* Does the plan have tensor, pipeline, context or expert ranks, which divide the model? */
bool has_axes(const struct plan *plan);
/* Is the lever pulled in the plan: has it one of the values that the knob table marks as such? */
bool space_pulls(enum knob_id id, const struct plan *plan);
/* Appends a plan that no axis makes; returns its index. May move `plans`. */
int space_add(struct space *space, const struct plan *plan);
void space_finish(struct space *space);

/* Makes `other`, the question that also searches tensor ranks, and as many context ranks as can be.
 * False: the question does so already, the user gave both, or devices are CPUs. */
bool space_divide(const struct question *question, struct question *other);

/* The usual plan: of the strategy and shard group of `plan`, with everything else that the question
 * leaves open at its default. Where there is no such plan, the mesh is also that of `plan`. False:
 * there is none even then. */
bool usual_plan(const struct question *question, const struct plan *plan, struct arena *arena,
	struct plan *usual);

/* states.c: what a trained parameter has beside its value for compute, namely the master copy, the
 * optimizer's moments and the gradient. Known from a plan alone, before any schedule. Bytes of one
 * parameter, between steps and in the last backward: master and moments; gradient. */
double states_kept(const struct plan *plan);
double states_gradient(const struct plan *plan);

/* Every copy of the model has each state on some rank, so the fullest rank holds at least the mean,
 * and so does the fullest node. */
struct states {
	double on_device; /* bytes of a rank at the update; 0 where units are offloaded */
	double in_node; /* bytes of the memory of a node's host; 0 unless all units are offloaded */
};
struct states states_mean(const struct question *question, const struct plan *plan);
/* Does no device hold as much, or no node? */
bool states_overflow(const struct question *question, const struct plan *plan);

#endif
