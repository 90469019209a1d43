/* Private to planner/: several evaluations at once, by the workers that the caller lends. */
#ifndef PLANNER_EVALUATION_SEVERAL_H
#define PLANNER_EVALUATION_SEVERAL_H

#include "planner/space/space.h"

struct evaluator;

/* The workers that the caller lends, and lent.each with them (planner/answer/lent.h). */
int lent_workers(const struct question *question);
void lent_each(const struct question *question, int n,
	void (*piece)(void *data, int index, int worker), void *data);
/* The question for a search beside the main one, which the caller is not told of. `quiet` is filled
 * with what that search may use of the caller's; it must live as long as the question. `alone`: the
 * search is one piece of work, and does its own pieces one after another. */
struct question lent_quietly(const struct question *question, bool alone, struct lent *quiet);
/* Does the caller want such searches to stop? */
bool lent_stopped(const struct question *question);

/* One evaluator for each worker. */
struct evaluators {
	int n;
	struct evaluator *of; /* malloc'ed */
};

void evaluators_init(struct evaluators *evaluators, const struct question *question);
void evaluators_know(struct evaluators *evaluators, const struct divided_models *models);
int64_t evaluators_evaluated(const struct evaluators *evaluators);
void evaluators_finish(struct evaluators *evaluators);

#endif
