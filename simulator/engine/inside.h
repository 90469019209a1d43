/* Private to engine: what its files ask of one another. */
#ifndef SIMULATOR_ENGINE_INSIDE_H
#define SIMULATOR_ENGINE_INSIDE_H

#include "simulator/engine/engine.h"

/* tasks.c: makes the tasks; then, when their queues are known, their waits. */
void engine_init_tasks(struct engine *engine, int class, const struct engine_options *options);
void engine_init_waits(struct engine *engine);

/* engine.c: engine_settle starts what can start now and finds the time of the next event;
 * engine_advance moves the clock to that time, `to`, which is `elapsed` s away. */
void engine_settle(struct engine *engine);
void engine_advance(struct engine *engine, double to, double elapsed);
bool engine_is_stuck(const struct engine *engine, struct error *error);

/* together.c: the operation that runs on a queue arrives at its meeting with other classes, or
 * leaves it at its end; meeting_pace is called when the rates of this class have changed. */
void meeting_come(struct engine *engine, struct queue *queue, int meeting);
void meeting_leave(struct engine *engine, struct queue *queue);
void meeting_pace(struct engine *engine);

/* host.c: issues whatever the issuing thread reaches without waiting. */
void host_run(struct engine *engine);
/* The time at which the issuing thread goes on by itself. INFINITY: only an event lets it go on, or
 * it has no supply and need not keep to the clock. */
double host_wakes(const struct engine *engine);

/* contention.c: the rates of what runs now. */
void contention_rates(struct engine *engine);

/* steady.c: what was added to the tally since `before` is added so many times more. */
void tally_repeat(struct tally *tally, const struct tally *before, int times);
/* Finds iterations of a loop that repeat the one before, and skips them. */
struct steady *steady_new(const struct engine *engine, struct arena *arena);
/* To be called when an iteration of `loop` has begun and nothing more can start at this time. */
void steady_pass(struct engine *engine, int loop);

/* Is the run over? A supply may end it at any time. */
static inline bool engine_is_over(const struct engine *engine)
{
	return engine->starved ||
	       engine->n_completed >= (int64_t)engine->n_steps * engine->n_carried_out;
}

/* Have all operations of the queue up to and including this position finished? */
static inline bool has_finished(const struct engine *engine, int queue, int64_t position)
{
	return engine->queues[queue].position > position;
}

#endif
