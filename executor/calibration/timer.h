/* Private to calibration: the ranks' side of timing collectives. Groups, sizes and tries are the
 * same for all; what is timed, and by which clock, is the transport's. */
#ifndef EXECUTOR_CALIBRATION_TIMER_H
#define EXECUTOR_CALIBRATION_TIMER_H

#include "executor/launch/launch.h"
#include "executor/memory/memory.h"

/* Gathered sizes, bytes, and how often each is timed. */
struct timer_sizes {
	const int64_t *bytes;
	int n;
	int tries;      /* of each; 0: the fewer the larger they are */
	double longest; /* s of one; what would take longer is left out */
};

/* s of one collective, and since the first of its size began: on a busy machine most of that goes
 * by between them. */
struct timer_try {
	double seconds, since;
};

struct timer {
	struct segment *segment;
	struct cluster cluster;
	struct comm comm; /* of the host */
	struct kernel_context context;
	struct heap heap;
	void *scratch;
	struct timer_try *all; /* [ranks] of one try */
	struct group *groups;
	int n_groups;
	struct timer_sizes sizes;
	void *whole, *chunk; /* where collectives find the largest size, and a rank's part of it */
	/* This rank's seconds of one collective. False after a fault, which has been recorded or is
	 * in `error`. */
	bool (*run)(struct timer *timer, const struct collective *collective, double *seconds,
		struct error *error);
	void *device; /* of `run` */
	struct text report;
};

/* Joins the others, with a window of that size. */
bool timer_open(struct timer *timer, int64_t window_bytes, struct error *error);
void *timer_take(struct timer *timer, int64_t bytes, struct error *error);
/* Which groups there are: inside a node, over the nodes, all. `parts`: 2, 4, ... of a node too. */
void timer_choose_groups(struct timer *timer, bool parts, struct arena *arena);
/* Fills the report. */
bool timer_run(struct timer *timer, struct error *error);
void timer_close(struct timer *timer, bool sound);

/* time_gpus.c: NCCL's, by events on the ranks' GPUs. */
bool rank_time_gpu_collectives(struct segment *segment, struct error *error);

/* The operations that are timed over host memory. */
struct timer_sizes timer_host_sizes(bool quick);
/* The bytes that a rank's window needs. */
int64_t timer_window_bytes(bool quick, bool on_gpu);

#endif
