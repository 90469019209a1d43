#include "executor/interpreter/communication_thread.h"
#include "executor/ranks/ranks.h"

#include <stdlib.h>
#include <string.h>

enum { ENGINE_STOP = -1 };

static void *engine_main(void *argument)
{
	struct engine *engine = argument;

	for (uint32_t taken = 0;; taken++) {
		if (event_wait(&engine->tail, taken + 1, engine->patience) != EVENT_REACHED)
			return NULL;
		int op = engine->queue[taken % engine->capacity];
		if (op == ENGINE_STOP || !engine->run(engine->data, op))
			return NULL;
	}
}

bool engine_start(struct engine *engine, int capacity, struct error *error)
{
	engine->capacity = (uint32_t)capacity + 1; /* and the stop */
	engine->queue = calloc(engine->capacity, sizeof(int));
	if (engine->queue == NULL)
		base_out_of_memory(engine->capacity * sizeof(int));
	int failure = cores_start_thread(&engine->thread, engine_main, engine);
	if (failure != 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "communication thread: %s",
			strerror(failure));
	engine->started = true;
	return true;
}

void engine_push(struct engine *engine, int op)
{
	engine->queue[engine->pushed++ % engine->capacity] = op;
	event_set(&engine->tail, engine->pushed);
}

void engine_stop(struct engine *engine)
{
	if (engine->started) {
		engine_push(engine, ENGINE_STOP);
		pthread_join(engine->thread, NULL);
	}
	free(engine->queue);
	engine->queue = NULL;
	engine->started = false;
}
