/* Private to engine: a state, and whether it is that of one iteration before. */
#ifndef SIMULATOR_ENGINE_STEADY_H
#define SIMULATOR_ENGINE_STEADY_H

#include "simulator/engine/inside.h"

struct queue_state {
	struct cursor next;
	bool running;
	double ran, left, host_done;
	/* Of the beginning of a micro-batch: launches that have not started. */
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
	/* By queue and loop: operations of one iteration, nested loops as often as they go, and
	 * their kernels. By loop: all operations. */
	int *operations[STREAM_COUNT], *lengths;
	double *kernels[STREAM_COUNT];
	bool limited; /* the host waits for operations inside of loops */
};

/* A loop that begins an iteration, and the state that is compared. */
struct turn {
	struct engine *engine;
	const struct snapshot *before;
	int loop, depth;
	double period;
	bool host_repeats;
	int times; /* periods that can be passed over */
};

/* compare.c: whether it repeats, and how often that can be passed over. */
bool turn_is_periodic(struct turn *turn);
bool turn_is_next(const struct turn *turn, const struct cursor *a, const struct cursor *b);
bool turn_is_inside(const struct turn *turn, const struct list *list, const struct cursor *cursor);
/* Whether a queue goes on with the loop. */
bool turn_moves(const struct turn *turn, int queue);
/* Where the operation at a cursor stands. */
int64_t turn_position(
	const struct engine *engine, const struct list *list, const struct cursor *cursor);
const struct issued *turn_launch(const struct queue *queue, int i);

#endif
