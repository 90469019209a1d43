/* Operations as the engine needs them. */
#ifndef SIMULATOR_ENGINE_TASKS_H
#define SIMULATOR_ENGINE_TASKS_H

#include "simulator/costs/costs.h"
#include "simulator/engine/lists.h"

/* What is carried out, as in struct simulation_options. */
struct engine_options {
	bool no_contention, runs_ahead, follows;
	unsigned without; /* bits, 1 << enum cost_part */
};

/* A wait: the operation and the queue that carries it out. */
struct wait {
	struct position place;
	int queue;
};

/* An operation, reduced to what the engine needs. */
struct task {
	const struct cost *cost; /* of engine->costs */
	struct position place;   /* its own */
	struct wait *waits, *host_waits;
	int n_waits, n_host_waits;
	int depth; /* of loops round it */
	int queue;
	int communicator; /* -1: of no communicator */
	int meeting;      /* of engines->meetings, where other classes take part; -1 */
	bool outer;       /* the one loop round it is of micro-batches */
	bool communicates, computes;
	bool is_compute;  /* computes on the compute stream: communication beside it is hidden */
	bool blocks_host; /* the issuing thread carries it out itself */
	bool takes_batch; /* the first of a micro-batch */
	int begins;       /* the loop whose iterations begin with it on the compute stream; -1 */
	int times;        /* carried out in a step */
};

#endif
