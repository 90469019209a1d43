/* What an engine holds of its streams, its communicators and the issuing thread. */
#ifndef SIMULATOR_ENGINE_QUEUES_H
#define SIMULATOR_ENGINE_QUEUES_H

#include "simulator/engine/lists.h"

/* When the host launched an operation, and was done with it. */
struct issued {
	double at, done;
};

struct meeting;

/* A stream: its operations run in list order. `next` is the one that runs, or the first to run. */
struct queue {
	struct list list;
	struct cursor next;
	int64_t position; /* of `next` */
	bool running;
	double ran, left; /* s since it began; s of work alone that remain */
	double rate;      /* work per second; 1 when alone */
	double host_done; /* when the host was done with the one that runs */
	/* Of one that meets others: they have not come, and no work is done; when they have, where
	 * (together.c), and its rate here alone. */
	bool awaits;
	struct meeting *meeting;
	double own_rate;
	/* A wait of `next` that was not over: the queue (-1: none) and the position there. */
	int blocked_on;
	int64_t blocked_position;
	double launched;     /* kernels issued and not finished */
	double *last_issued; /* by place of the list: when it was issued the last time */
	/* Issued and not started: a ring of `capacity`, a power of two. */
	struct issued *ring;
	int first, n_issued, capacity;
};

struct communicator {
	struct list list;
	struct cursor next;
	int64_t position; /* of `next`, which alone may run */
};

struct issuer {
	struct list list;
	struct cursor next;
	double time;
	int blocked_on; /* a queue; -1: free */
	int64_t blocked_position;
	bool queue_is_full; /* it is blocked by the launch queue there */
	int batches;        /* taken from the data loader */
	/* Of a supply: it waits until the device is idle, then for the driver (s). */
	bool drains;
	double driver;
	int drained_by; /* the instance that it last waited for, to issue the next; -1 */
};

#endif
