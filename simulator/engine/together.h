/* Several classes on one clock. */
#ifndef SIMULATOR_ENGINE_TOGETHER_H
#define SIMULATOR_ENGINE_TOGETHER_H

#include "simulator/engine/engine.h"

struct engines {
	int n;
	struct engine *of; /* by class */
	struct meeting *meetings;
};
/* Arrays come from `arena`. */
void engines_init(struct engines *engines, const struct schedule *schedule,
	const struct engine_options *options, struct arena *arena);
/* As engine_run. A class that is starved ends it for all. */
bool engines_run(struct engines *engines, struct error *error);

/* together.c: the operation that runs there has come to its meeting, or ended; the rates of this
 * class are new. */
void meeting_come(struct engine *engine, struct queue *queue, int meeting);
void meeting_leave(struct engine *engine, struct queue *queue);
void meeting_pace(struct engine *engine);

static inline double engine_last_step(const struct engine *engine)
{
	return engine->finished[engine->n_steps - 1] - engine_step_begin(engine);
}

/* Seconds of a step: of those that count, the mean. Where the data loader is barely the slower one,
 * more steps than are simulated pass before it is waited for. */
static inline double engine_step_time(const struct engine *engine)
{
	int last = engine->n_steps - 1, n = engine->n_counted;
	double step = n == 1 ? engine_last_step(engine)
			     : (engine->finished[last] - engine->finished[last - n]) / n;

	return fmax(step, plan_loader_time(&engine->schedule->plan));
}

/* A step is over when it is over for all. */
static inline double engines_step_time(const struct engines *engines)
{
	double step = 0;

	for (int c = 0; c < engines->n; c++)
		step = fmax(step, engine_step_time(&engines->of[c]));
	return step;
}

static inline double engines_last_step(const struct engines *engines)
{
	double step = 0;

	for (int c = 0; c < engines->n; c++)
		step = fmax(step, engine_last_step(&engines->of[c]));
	return step;
}

/* S of a step in which a class does nothing because of others: it awaits them, or has ended. */
static inline double engines_bubble(const struct engines *engines, int class)
{
	const struct engine *engine = &engines->of[class];
	double after = engine->n_steps > 1 ? 0 : engines_last_step(engines) - engine->finished[0];

	return engine->tally.bubble + after;
}

#endif
