/* Private to engine: snapshots of the engine's state, and whether an iteration of a loop begins in
 * the same state as the one before it. Such iterations are skipped. */
#ifndef SIMULATOR_ENGINE_STEADY_H
#define SIMULATOR_ENGINE_STEADY_H

#include "simulator/engine/inside.h"

struct queue_state {
	struct cursor next;
	bool running;
	double ran, left, host_done;
	/* Operations that were launched and had not started when the iteration began. */
	struct issued *launches;
	int n_launches, capacity;
};

struct snapshot {
	bool valid;
	int n_ended;
	struct cursor compute;
	double now;
	struct queue_state queues[STREAM_COUNT];
	struct cursor *communicators;
	struct cursor host;
	double host_time;
	int host_blocked_on;
	int64_t n_held_up;
	struct tally tally;
};

struct steady {
	struct snapshot before[LOOP_DEPTH];
	/* [queue][loop] Operations of one iteration, counted as often as nested loops repeat them,
	 * and their kernels. */
	int *operations[STREAM_COUNT];
	double *kernels[STREAM_COUNT];
	int *lengths; /* [loop] operations of one iteration on all queues */
	bool limited; /* the host waits for operations inside of loops */
};

/* A loop that begins an iteration, and the snapshot of the iteration before. */
struct turn {
	struct engine *engine;
	const struct snapshot *before;
	int loop, depth;
	double period;
	bool host_repeats;
	int times; /* iterations that can be skipped */
};

/* compare.c. Does the iteration begin as the one before it? Sets `times`. */
bool turn_is_periodic(struct turn *turn);
/* Is cursor b exactly one iteration of the loop after a? */
bool turn_is_next(const struct turn *turn, const struct cursor *a, const struct cursor *b);
/* Is the cursor at an operation of the loop? */
bool turn_is_inside(const struct turn *turn, const struct list *list, const struct cursor *cursor);
/* Is the queue inside the loop, at another place than one iteration before? */
bool turn_moves(const struct turn *turn, int queue);
/* The position of the operation at a cursor (position_of). */
int64_t turn_position(
	const struct engine *engine, const struct list *list, const struct cursor *cursor);
/* The i-th launch of the queue that has not started. */
const struct issued *turn_launch(const struct queue *queue, int i);

#endif
