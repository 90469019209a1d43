/* Private to answer/: what the caller lends to a search. */
#ifndef PLANNER_ANSWER_LENT_H
#define PLANNER_ANSWER_LENT_H

#include <stdbool.h>
#include <stdint.h>

/* The progress of a search. */
struct looked {
	int64_t plans, of; /* plans looked at; of how many (0: not known) */
	double step_time;  /* s of the best plan so far; 0: none fits yet */
	double gap;        /* its gap (struct answer); < 0: not known */
};

/* The planner has no threads, clock or terminal of its own, so the caller lends them. The answer
 * does not depend on them, unless a search is stopped. */
struct lent {
	void *context;
	int workers; /* 1 or more */
	/* Calls piece(data, i, worker) once for every i of 0 .. n-1, with a worker of 0 ..
	 * workers-1; pieces of one worker never overlap in time. NULL: pieces are done in turn. */
	void (*each)(
		void *context, int n, void (*piece)(void *data, int index, int worker), void *data);
	/* Called before every plan by the thread that called the planner. False: no further plan is
	 * looked at, and the answer is the best so far. NULL: the search never stops. */
	bool (*go_on)(void *context, const struct looked *looked);
	/* Called by any thread in searches beside the main one (thresholds, levers, ways out),
	 * whose progress is not reported. True: such a search ends and its result is left out of
	 * the answer. NULL: never. */
	bool (*stopped)(void *context);
};

#endif
