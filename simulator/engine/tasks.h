/* Operations as the engine needs them. */
#ifndef SIMULATOR_ENGINE_TASKS_H
#define SIMULATOR_ENGINE_TASKS_H

#include "simulator/costs/costs.h"
#include "simulator/engine/lists.h"

/* What is carried out, as in struct simulation_options. */
struct engine_options {
	bool no_contention, runs_ahead;
	double exchange_wait; /* s */
	unsigned without;     /* bits, 1 << enum cost_part */
};

/* A wait: the operation and the queue that carries it out. */
struct wait {
	struct position place;
	int queue;
};

/* An operation, reduced to what the engine needs: a pipeline has hundreds of thousands. */
struct task {
	const struct cost *cost; /* of engine->costs */
	struct wait *waits;      /* its own, and behind them the host's */
	struct position place;   /* its own */
	int n_waits, n_host_waits;
	int communicator; /* -1: of no communicator */
	int meeting;      /* of engines->meetings, where other classes take part; -1 */
	int begins;       /* the loop whose iterations begin with it on the compute stream; -1 */
	int times;        /* carried out in a step */
	int depth : 8;    /* of loops round it */
	int queue : 8;
	bool outer : 1; /* the one loop round it is of micro-batches */
	bool communicates : 1, computes : 1;
	bool is_compute : 1; /* computes on the compute stream: communication beside it is hidden */
	bool blocks_host : 1; /* the issuing thread carries it out itself */
	bool takes_batch : 1; /* the first of a micro-batch */
};

static inline struct wait *task_host_waits(const struct task *task)
{
	return task->waits + task->n_waits;
}

#endif
