/* The face of planner/: the best plan for a question, and why. */
#ifndef PLANNER_PLANNER_H
#define PLANNER_PLANNER_H

#include "planner/answer/answer.h"
#include "planner/diagnosis/diagnosis.h"
#include "planner/fitting/fitting.h"

/* EXIT_CODE_USAGE when the question contradicts itself. Nothing fitting is not an error. */
bool planner_plan(const struct question *question, struct arena *arena, struct answer *answer,
	struct error *error);

/* Shares the blocks of a pipeline out over its stages so that a step takes the least time, and has
 * room where any way does (--layers-per-stage auto); the plan stays as it is where none is better.
 * EXIT_CODE_USAGE: it has one stage, or its runtime cannot say which blocks a stage has. */
bool planner_share_stages(const struct question *question, struct arena *arena, struct plan *plan,
	struct error *error);

/* Same work: the question must have fixed the plan's sequence length and global batch. `answer` is
 * planner_plan's for it. EXIT_CODE_USAGE when the plan cannot be for this model and topology. */
bool planner_compare(const struct question *question, const struct plan *mine,
	const struct answer *answer, struct arena *arena, struct comparison *comparison,
	struct error *error);

/* `target`: of FIND_NETWORK, in (0, 1). */
bool planner_find(const struct question *question, enum find find, double target,
	struct arena *arena, struct finding *finding, struct error *error);

#endif
