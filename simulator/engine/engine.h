/* The event engine. */
#ifndef SIMULATOR_ENGINE_ENGINE_H
#define SIMULATOR_ENGINE_ENGINE_H

#include <math.h>

#include "simulator/costs/costs.h"

enum { SIMULATED_STEPS = 3 };

/* An operation, reduced to what the engine needs. */
struct task {
	struct cost cost;
	const int *waits, *host_waits;
	int n_waits, n_host_waits;
	int stream;
	int communicator;       /* -1: of no communicator */
	int communicator_order; /* among the operations of its communicator in one step */
	bool communicates, computes;
	bool is_compute;  /* computes on the compute stream: communication beside it is hidden */
	bool blocks_host; /* the issuing thread carries it out itself */
	bool takes_batch; /* the first of a micro-batch */
};

/* The operations of one stream in list order, and how far it has come. An "instance" is step *
 * n_ops + operation. */
struct queue {
	const int *ops;
	int n_ops;
	int step, next; /* the head: operation `next` of `step` */
	int running;    /* instance; -1 */
	double left;    /* s of work alone that remain */
	double rate;    /* work per second; 1 when alone */
	int blocked_on; /* a wait of the head that has not finished; -1 */
	/* Launched and not finished; the operation that will finish next: `oldest` of
	 * `oldest_step`. */
	double launched;
	int oldest_step, oldest;
};

struct issuer {
	int next; /* instance */
	double time;
	int blocked_on; /* instance; -1 */
	int batches;    /* taken from the data loader */
};

struct engine {
	const struct schedule *schedule;
	const struct program *program;
	const struct topology *topology;
	bool contention, runs_ahead;
	double launch_queue; /* kernels of a stream that the host may be ahead by */
	int n_ops, n_instances;
	struct task *tasks;
	int n_queues;
	struct queue queues[STREAM_COUNT];
	/* The data loader: s from one micro-batch's batch to the next, 0 = it has no rate; what the
	 * issuing thread spends on a batch. */
	double batch_interval, batch_cost;
	int n_communicators;
	int *communicator_done, *communicator_count; /* collectives finished; per step */
	struct issuer host;
	double now;
	bool rates_stale;
	int unfinished[SIMULATED_STEPS];
	/* by instance */
	double *issued, *host_done, *start, *end;
	int n_completed;
	/* What happened, in order: instance i started (i) or finished (~i). */
	int *log, n_log;
	/* at the end of each step */
	double finished[SIMULATED_STEPS], exposed[SIMULATED_STEPS];
	double exposed_now; /* s so far in which a collective ran and nothing computed */
};

/* Arrays come from `arena`. `contention`: operations that run together slow one another;
 * `runs_ahead`: the host does not wait for the end of a step. */
void engine_init(struct engine *engine, const struct schedule *schedule, int class, bool contention,
	bool runs_ahead, struct arena *arena);
/* Runs all steps; a deadlock is EXIT_CODE_INTERNAL and names an operation. */
bool engine_run(struct engine *engine, struct error *error);

/* host.c: issues whatever the issuing thread reaches without waiting. */
void host_run(struct engine *engine);

/* contention.c: the rates of what runs now. */
void contention_rates(struct engine *engine);

static inline int instance_of(const struct engine *engine, int step, int op)
{
	return step * engine->n_ops + op;
}

/* Seconds of a step. Where the data loader is barely the slower one, more steps than are simulated
 * pass before it is waited for. */
static inline double engine_step_time(const struct engine *engine)
{
	enum { LAST = SIMULATED_STEPS - 1 };

	return fmax(engine->finished[LAST] - engine->finished[LAST - 1],
		plan_loader_time(&engine->schedule->plan));
}

static inline const struct task *task_of(const struct engine *engine, int instance)
{
	return &engine->tasks[instance % engine->n_ops];
}

#endif
