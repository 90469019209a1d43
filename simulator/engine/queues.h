/* The state of an engine's streams, of its communicators and of the issuing thread. */
#ifndef SIMULATOR_ENGINE_QUEUES_H
#define SIMULATOR_ENGINE_QUEUES_H

#include "simulator/engine/lists.h"

/* When the host launched an operation, and when it was done with it. */
struct issued {
	double at, done;
};

struct meeting;

/* A stream, whose operations run in list order. `next` is the one that runs, or runs next. */
struct queue {
	struct list list;
	struct cursor next;
	int64_t position; /* of `next` */
	bool running;
	double ran, left; /* s since `next` began; s that it still takes when nothing slows it */
	double rate;      /* work done per second; 1 when nothing slows it */
	double host_done; /* when the host was done with `next` */
	/* A running operation in which other classes take part (together.c). While `awaits` they
	 * have not begun theirs and no work is done; then `meeting` is where they meet, and
	 * `own_rate` the rate that this class alone would allow. */
	bool awaits;
	struct meeting *meeting;
	double own_rate;
	/* The wait that holds up `next`: the queue (-1: none) and the position there. */
	int blocked_on;
	int64_t blocked_position;
	double launched;     /* kernels issued and not finished */
	double *last_issued; /* [list.n] when the operation at each place was last issued */
	/* Operations issued and not started: a ring buffer; `capacity` is a power of two. */
	struct issued *ring;
	int first, n_issued, capacity;
};

struct communicator {
	struct list list;
	struct cursor next;
	int64_t position; /* of `next`, the only operation that may run on it */
};

struct issuer {
	struct list list;
	struct cursor next;
	double time;
	int blocked_on; /* the queue that it waits for; -1: none */
	int64_t blocked_position;
	bool queue_is_full; /* it waits for room in that stream's launch queue */
	int batches;        /* taken from the data loader */
	/* A supply made it wait until the device is idle, and then `driver` s for the driver. */
	bool drains;
	double driver;
	int drained_by; /* the instance whose end made the device idle; -1: none */
};

#endif
