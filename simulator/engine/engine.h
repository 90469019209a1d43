/* The event engine. */
#ifndef SIMULATOR_ENGINE_ENGINE_H
#define SIMULATOR_ENGINE_ENGINE_H

#include <math.h>

#include "simulator/engine/queues.h"
#include "simulator/engine/tasks.h"

/* A run with a supply may end earlier, when the supply has found a cycle of steps. */
enum { SIMULATED_STEPS_MAX = 3, SHORT_STEPS = 8, SHORT_STEPS_COUNTED = 4 };

/* What memory costs the issuing thread: time of the driver, which may want the device idle. */
struct stall {
	bool drains;
	double seconds;
};

/* Memory that the issuing thread takes for each operation, when it comes to issue it. False: there
 * is none. When a step begins as an earlier one did, it may end the run there: it lowers n_steps,
 * and the steps between count. */
struct supply {
	void *self;
	bool (*take)(void *self, const struct cursor *at, struct stall *stall);
};

/* --- what is read off ---------------------------------------------------------------------- */

/* Sums over the last step. */
struct tally {
	double exposed; /* s in which a collective ran and nothing computed */
	double by_kind[OP_KIND_COUNT];
};

/* Every instance: position + step * n_carried_out. */
struct record {
	double *issued, *end;
	double *host_done, *start; /* NULL: not wanted */
	int *drained_by;           /* for whose end, the last of all, a supply made the host wait;
				    * -1. NULL: not wanted */
	int *ops;
	int *ended, n_ended; /* instances in the order in which they finished */
};

/* Told of every start and end of an operation while the engine runs, and of periods that were
 * found and are not simulated: what happened since `mark` happens `times` times more. */
struct observer {
	void *self;
	void (*starts)(void *self, int op, const struct cursor *at);
	void (*ends)(void *self, int op);
	void (*mark)(void *self, int depth);
	void (*repeat)(void *self, int depth, int times);
};

/* --- the engine ---------------------------------------------------------------------------- */

struct engine {
	const struct schedule *schedule;
	const struct program *program;
	const struct topology *topology;
	struct arena *arena;
	bool contention, runs_ahead;
	double launch_queue; /* kernels of a stream that the host may be ahead by */
	/* A host that waits for the end of a step finds every step as it found the first one: one
	 * is simulated. Otherwise three, of which the last counts; with a supply eight. */
	int n_steps, n_counted;
	int n_ops, n_carried_out; /* of the list; as often as its loops say, in one step */
	struct task *tasks;
	int n_queues;
	struct queue queues[STREAM_COUNT];
	int compute; /* the queue of the compute stream; -1 */
	int n_communicators;
	struct communicator *communicators;
	/* The data loader: s from one micro-batch's batch to the next, 0 = it has no rate; what the
	 * issuing thread spends on a batch. */
	double batch_interval, batch_cost;
	double exchange; /* s between a step's last operation and its end */
	struct issuer host;
	double now;
	bool rates_stale;
	int64_t n_issued, n_completed, unfinished[SHORT_STEPS];
	double finished[SHORT_STEPS]; /* end of each step */
	struct tally tally;
	struct record *record;           /* NULL: not wanted */
	const struct observer *observer; /* NULL: none */
	const struct supply *supply;     /* NULL: memory is there */
	bool starved;                    /* the supply had none, and the run ended */
	struct steady *steady;           /* NULL: every iteration is simulated */
};

/* Arrays come from `arena`. */
void engine_init(struct engine *engine, const struct schedule *schedule, int class,
	const struct engine_options *options, struct arena *arena);
/* Memory is short: every iteration of all steps is simulated. After engine_init and before
 * engine_record. */
void engine_supply(struct engine *engine, const struct supply *supply);
/* Keeps when everything was issued and ended; `details`: also when it started, and when the host
 * was done with it. Before engine_run. */
void engine_record(struct engine *engine, bool details);
/* Where the operation of an instance on record stands in the host's list. */
struct cursor engine_instance(const struct engine *engine, int instance);
/* Runs all steps, or until the supply ends; a deadlock is EXIT_CODE_INTERNAL and names an
 * operation. */
bool engine_run(struct engine *engine, struct error *error);

/* tasks.c: the operations; when their queues are known, what they wait for. */
void engine_init_tasks(struct engine *engine, int class, unsigned without);
void engine_init_waits(struct engine *engine);

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

/* Where an operation, or what it waits for, stands among all that is carried out in all steps. */
static inline int64_t position_of(const struct engine *engine, const struct task *task,
	const struct position *place, const struct cursor *cursor)
{
	int64_t position = (int64_t)cursor->step * engine->n_carried_out + place->first;

	if (task->depth == 0)
		return position;
	if (task->depth == 2)
		return position + (int64_t)cursor->round[0] * place->outer +
		       (int64_t)cursor->round[1] * place->inner;
	return position + (int64_t)cursor->round[0] * (task->outer ? place->outer : place->inner);
}

/* The operation at a place of a list. */
static inline const struct task *task_at(
	const struct engine *engine, const struct list *list, const struct cursor *cursor)
{
	return &engine->tasks[list->ops[cursor->at]];
}

/* Every operation of the queue before this position has finished. */
static inline bool has_finished(const struct engine *engine, int queue, int64_t position)
{
	return engine->queues[queue].position > position;
}

static inline double engine_step_begin(const struct engine *engine)
{
	return engine->n_steps > 1 ? engine->finished[engine->n_steps - 2] : 0;
}

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

#endif
