/* Private to engine: what its files ask of one another. */
#ifndef SIMULATOR_ENGINE_INSIDE_H
#define SIMULATOR_ENGINE_INSIDE_H

#include "simulator/engine/engine.h"

/* tasks.c: the operations; when their queues are known, what they wait for. */
void engine_init_tasks(struct engine *engine, int class, const struct engine_options *options);
void engine_init_waits(struct engine *engine);

/* engine.c: starts what can start now, and finds the next event; goes to `to`, `elapsed` s further,
 * where that one is. */
void engine_settle(struct engine *engine);
void engine_advance(struct engine *engine, double to, double elapsed);
bool engine_is_stuck(const struct engine *engine, struct error *error);

/* together.c: the operation that runs there has come to its meeting, or ended; the rates of this
 * class are new. */
void meeting_come(struct engine *engine, struct queue *queue, int meeting);
void meeting_leave(struct engine *engine, struct queue *queue);
void meeting_pace(struct engine *engine);

/* host.c: issues whatever the issuing thread reaches without waiting. */
void host_run(struct engine *engine);
/* When it goes on by itself; INFINITY: it waits for something else, or is ahead in time. */
double host_wakes(const struct engine *engine);

/* contention.c: the rates of what runs now. */
void contention_rates(struct engine *engine);

/* steady.c: finds periods, and passes over them. */
struct steady *steady_new(const struct engine *engine, struct arena *arena);
/* Nothing more starts at this time, and an iteration of `loop` has begun. */
void steady_pass(struct engine *engine, int loop);

/* A supply may end it at any time. */
static inline bool engine_is_over(const struct engine *engine)
{
	return engine->starved ||
	       engine->n_completed >= (int64_t)engine->n_steps * engine->n_carried_out;
}

/* Every operation of the queue before this position has finished. */
static inline bool has_finished(const struct engine *engine, int queue, int64_t position)
{
	return engine->queues[queue].position > position;
}

#endif
