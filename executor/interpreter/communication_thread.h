/* The communication thread of a rank: carries out collectives in the order in which they were
 * issued, while the interpreter computes. */
#ifndef EXECUTOR_INTERPRETER_COMMUNICATION_THREAD_H
#define EXECUTOR_INTERPRETER_COMMUNICATION_THREAD_H

#include <pthread.h>

#include "executor/ranks/ranks.h"
#include "executor/transports/transports.h"

struct comm_thread {
	/* Set before the start; `run` is called in the thread, false ends it. */
	bool (*run)(void *data, int op);
	/* Called while there is nothing to run: true when it has moved something, or slept, and is
	 * to be called again. May be NULL. */
	bool (*idle)(void *data);
	void *data;
	const struct patience *patience;
	/* private */
	pthread_t id;
	bool started;
	int *queue; /* ring of `capacity` operations */
	uint32_t capacity, pushed;
	struct event tail; /* how many were pushed */
};

/* At most `capacity` operations are ever waiting. */
bool comm_thread_start(struct comm_thread *thread, int capacity, struct error *error);
void comm_thread_push(struct comm_thread *thread, int op);
/* Lets what was pushed finish, and joins. */
void comm_thread_stop(struct comm_thread *thread);

#endif
