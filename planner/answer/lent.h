/* Private to answer/: what the caller lends to a search. */
#ifndef PLANNER_ANSWER_LENT_H
#define PLANNER_ANSWER_LENT_H

#include <stdbool.h>
#include <stdint.h>

/* How far a search is. */
struct looked {
	int64_t plans, of; /* looked at; of how many, 0: that is not known */
	double step_time;  /* s: of the best so far; 0: none fits yet */
	double gap;        /* of that one; < 0: not known */
};

/* The planner has no threads, clock or terminal of its own. The answer depends on none of this, but
 * for a search that is stopped. */
struct lent {
	void *context;
	int workers; /* 1 or more */
	/* piece(data, i, worker) once for every i of 0 .. n-1, `worker` being one of 0 ..
	 * workers-1; pieces of one worker never overlap. NULL: one piece after another. */
	void (*each)(
		void *context, int n, void (*piece)(void *data, int index, int worker), void *data);
	/* Asked before every plan, by the thread that called the planner; false: no further plan is
	 * looked at, the answer is the best so far. NULL: all are. */
	bool (*go_on)(void *context, const struct looked *looked);
	/* The same of the searches beside the answer's (thresholds, levers, ways out), which nobody
	 * is told of: asked by any thread; true: no further plan is looked at, and what such a
	 * search would have said is left out. NULL: never. */
	bool (*stopped)(void *context);
};

#endif
