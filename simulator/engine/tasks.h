/* Operations as the engine needs them. */
#ifndef SIMULATOR_ENGINE_TASKS_H
#define SIMULATOR_ENGINE_TASKS_H

#include "simulator/costs/costs.h"
#include "simulator/engine/lists.h"

/* The same as in struct simulation_options. */
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
	struct wait *waits;      /* [n_waits] of its stream, then [n_host_waits] of the host */
	struct position place;   /* of the operation itself */
	int n_waits, n_host_waits;
	int communicator; /* -1: it uses none */
	int meeting;      /* index in engines->meetings; -1: no other class takes part */
	int begins;       /* the loop whose iterations begin with it on the compute stream; -1 */
	int times;        /* how often it runs in a step */
	int depth : 8;    /* number of loops around it */
	int queue : 8;
	bool outer : 1; /* the only loop around it is that of micro-batches */
	bool communicates : 1, computes : 1;
	bool is_compute : 1; /* computes on the compute stream: communication beside it is hidden */
	bool blocks_host : 1; /* the issuing thread carries it out itself */
	bool takes_batch : 1; /* the first operation of a micro-batch, which needs its data */
};

static inline struct wait *task_host_waits(const struct task *task)
{
	return task->waits + task->n_waits;
}

#endif
