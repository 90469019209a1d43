/* The event engine: runs the operations of one class, or of all classes on one clock. */
#ifndef SIMULATOR_ENGINE_ENGINE_H
#define SIMULATOR_ENGINE_ENGINE_H

#include <math.h>

#include "simulator/engine/queues.h"
#include "simulator/engine/tasks.h"

/* Steps of a run: with a host that runs ahead; with a supply, and how many of those count. A supply
 * may end its run earlier, when it has found a cycle of steps. */
enum { SIMULATED_STEPS_MAX = 3, SHORT_STEPS = 8, SHORT_STEPS_COUNTED = 4 };

/* The cost of taking memory on the issuing thread. */
struct stall {
	bool drains;    /* the driver waits until the device is idle */
	double seconds; /* that the driver then takes */
};

/* Serves the memory that the issuing thread takes when it issues an operation. `take` returns false
 * when there is none left. When a step begins in the state in which an earlier one began, the
 * supply may end the run there by lowering n_steps; then the steps between the two count. */
struct supply {
	void *self;
	bool (*take)(void *self, const struct cursor *at, struct stall *stall);
};

/* --- what is measured of a run ------------------------------------------------------------- */

/* Sums over the last step. */
struct axis_tally {
	double ran, exposed; /* s in which its communications ran; in which nothing computed too */
};
struct tally {
	double exposed; /* s in which a communication ran and nothing computed */
	double bubble;  /* s in which neither ran, because another class was awaited */
	double by_kind[OP_KIND_COUNT];
	struct axis_tally by_axis[GROUP_KIND_COUNT];
};

/* Times of all instances of operations; the index is position + step * n_carried_out. */
struct record {
	double *issued, *end;
	double *host_done, *start; /* NULL: not wanted */
	int *drained_by;           /* the instance that ended last before the drained device let
				    * the host go on; -1: none. NULL: not wanted */
	int *ops;
	int *ended, n_ended; /* instances in the order in which they finished */
};

/* Is called at every start and end of an operation while the engine runs. Iterations that are
 * skipped are told of by `repeat`: what happened since `mark` happens `times` more times. */
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
	double launch_queue; /* kernels that may be launched and not finished on a stream */
	/* A host that waits for the end of each step finds every step like the first one, so one is
	 * simulated. Otherwise three are, of which the last counts; with a supply eight are. */
	int n_steps, n_counted;
	int n_ops, n_carried_out; /* operations of the list; the same with loops counted out */
	struct task *tasks;
	struct cost_table costs;
	int n_queues;
	struct queue queues[STREAM_COUNT];
	int compute; /* the queue of the compute stream; -1: there is none */
	int n_communicators;
	struct communicator *communicators;
	/* The data loader: s between two batches (0: it is never waited for), and s that the
	 * issuing thread spends on each. */
	double batch_interval, batch_cost;
	double exchange; /* s between a step's last operation and its end */
	struct issuer host;
	double now;
	double next, elapsed; /* the time of the next event, and s until then */
	bool rates_stale;
	bool touched; /* another class or the clock changed something: an operation may start */
	int64_t n_issued, n_completed, unfinished[SHORT_STEPS]; /* instances; by step */
	int64_t n_held_up;            /* how often an operation waited for its launch by the host */
	double finished[SHORT_STEPS]; /* end of each step */
	struct tally tally;
	/* The tally and the time when the round began that stands for others (struct rounds), and s
	 * that these others take if they are like it. */
	struct tally round_begin;
	double round_began, more_rounds;
	struct record *record;           /* NULL: not wanted */
	const struct observer *observer; /* NULL: none */
	const struct supply *supply;     /* NULL: there is always enough memory */
	bool starved;                    /* the supply had no memory left, which ended the run */
	struct steady *steady;           /* NULL: every iteration is simulated */
	struct engines *together;        /* NULL: there is no other class */
};

/* All classes on one clock. */
struct engines {
	int n;
	struct engine *of; /* by class */
	struct meeting *meetings;
	/* Seconds of a step in rounds that are not simulated, and the class that sets their pace.
	 */
	double more_rounds;
	int pacemaker;
};
/* Arrays come from `arena`. */
void engines_init(struct engines *engines, const struct schedule *schedule,
	const struct engine_options *options, struct arena *arena);
/* As engine_run. A class that is starved ends the run of all. */
bool engines_run(struct engines *engines, struct error *error);
/* Seconds of a step, which ends when it ends for all classes: the mean over the steps that count,
 * and the last step. */
double engines_step_time(const struct engines *engines);
double engines_last_step(const struct engines *engines);
/* Seconds of a step in which a class waits for other classes, or has ended before them. */
double engines_bubble(const struct engines *engines, int class);

/* One class alone. Arrays come from `arena`. */
void engine_init(struct engine *engine, const struct schedule *schedule, int class,
	const struct engine_options *options, struct arena *arena);
/* Memory is short in this class, or in another one (`supply` NULL): every iteration of all steps is
 * simulated, none is skipped. Call it after engine_init and before engine_record. */
void engine_supply(struct engine *engine, const struct supply *supply);
/* Records when every instance was issued and when it ended; with `details` also when it started,
 * and when the host was done with it. Call it before engine_run. */
void engine_record(struct engine *engine, bool details);
/* The place in the host's list of a recorded instance. */
struct cursor engine_instance(const struct engine *engine, int instance);
/* Runs all steps, or until the supply ends; a deadlock is EXIT_CODE_INTERNAL and names an
 * operation. */
bool engine_run(struct engine *engine, struct error *error);

/* The position of an operation, or of one that it waits for, among all instances of all steps. */
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

/* How often an operation is carried out in a step, rounds counted out. */
static inline int engine_times(const struct engine *engine, int op)
{
	int rounds = program_is_in_round(engine->program, op) ? engine->program->rounds.times : 1;

	return engine->tasks[op].times * rounds;
}

static inline double engine_step_begin(const struct engine *engine)
{
	return engine->n_steps > 1 ? engine->finished[engine->n_steps - 2] : 0;
}

#endif
