#include "executor/interpreter/communication_thread.h"
#include "executor/ranks/ranks.h"

#include <stdlib.h>
#include <string.h>

enum { NO_MORE = -1 };

static void be_idle(struct comm_thread *thread, uint32_t target)
{
	const _Atomic uint32_t *abort = thread->patience->abort;

	while (thread->idle != NULL && !event_reached(&thread->tail, target) &&
		(abort == NULL || atomic_load(abort) == 0) && thread->idle(thread->data))
		;
}

static void *comm_thread_main(void *argument)
{
	struct comm_thread *thread = argument;

	for (uint32_t taken = 0;; taken++) {
		be_idle(thread, taken + 1);
		if (event_wait(&thread->tail, taken + 1, thread->patience) != EVENT_REACHED)
			return NULL;
		int op = thread->queue[taken % thread->capacity];
		if (op == NO_MORE || !thread->run(thread->data, op))
			return NULL;
	}
}

bool comm_thread_start(struct comm_thread *thread, int capacity, struct error *error)
{
	thread->capacity = (uint32_t)capacity + 1; /* and the stop */
	thread->queue = calloc(thread->capacity, sizeof(int));
	if (thread->queue == NULL)
		base_out_of_memory(thread->capacity * sizeof(int));
	int failure = cores_start_thread(&thread->id, comm_thread_main, thread);
	if (failure != 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "communication thread: %s",
			strerror(failure));
	thread->started = true;
	return true;
}

void comm_thread_push(struct comm_thread *thread, int op)
{
	thread->queue[thread->pushed++ % thread->capacity] = op;
	event_set(&thread->tail, thread->pushed);
}

void comm_thread_stop(struct comm_thread *thread)
{
	if (thread->started) {
		comm_thread_push(thread, NO_MORE);
		pthread_join(thread->id, NULL);
	}
	free(thread->queue);
	thread->queue = NULL;
	thread->started = false;
}
