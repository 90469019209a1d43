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
struct axis_tally {
	double ran, exposed; /* s of its communications, and of those in which nothing computed */
};
struct tally {
	double exposed; /* s in which a communication ran and nothing computed */
	double bubble;  /* s in which neither did, because another class was awaited */
	double by_kind[OP_KIND_COUNT];
	struct axis_tally by_axis[GROUP_KIND_COUNT];
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
	int class;
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
	struct cost_table costs;
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
	double next, elapsed; /* of the next event: when, and in how many s */
	bool rates_stale;
	bool touched; /* by another class, or by time: something may start */
	int64_t n_issued, n_completed, unfinished[SHORT_STEPS];
	int64_t n_held_up; /* grows when something waits for its launch, not for what runs */
	double finished[SHORT_STEPS]; /* end of each step */
	struct tally tally;
	struct record *record;           /* NULL: not wanted */
	const struct observer *observer; /* NULL: none */
	const struct supply *supply;     /* NULL: memory is there */
	bool starved;                    /* the supply had none, and the run ended */
	struct steady *steady;           /* NULL: every iteration is simulated */
	struct engines *together;        /* NULL: there is no other class */
};

/* All classes on one clock. */
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
/* Seconds of a step, which is over when it is over for all: of those that count, the mean; of the
 * last one. */
double engines_step_time(const struct engines *engines);
double engines_last_step(const struct engines *engines);
/* S of a step in which a class does nothing because of others: it awaits them, or has ended. */
double engines_bubble(const struct engines *engines, int class);

/* One class alone. Arrays come from `arena`. */
void engine_init(struct engine *engine, const struct schedule *schedule, int class,
	const struct engine_options *options, struct arena *arena);
/* Memory is short, of this class or (NULL) of another one: every iteration of all steps is
 * simulated. After engine_init and before engine_record. */
void engine_supply(struct engine *engine, const struct supply *supply);
/* Keeps when everything was issued and ended; `details`: also when it started, and when the host
 * was done with it. Before engine_run. */
void engine_record(struct engine *engine, bool details);
/* Where the operation of an instance on record stands in the host's list. */
struct cursor engine_instance(const struct engine *engine, int instance);
/* Runs all steps, or until the supply ends; a deadlock is EXIT_CODE_INTERNAL and names an
 * operation. */
bool engine_run(struct engine *engine, struct error *error);

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

static inline double engine_step_begin(const struct engine *engine)
{
	return engine->n_steps > 1 ? engine->finished[engine->n_steps - 2] : 0;
}

#endif
