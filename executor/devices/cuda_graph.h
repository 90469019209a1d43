/* A step as one CUDA graph: captured while the second step of a run is walked, launched in that
 * step and in all that follow it. The first step is given operation by operation, so that libraries
 * have made what they need.
 *
 * The capture begins on the compute stream; every other stream joins it by an event of that one, is
 * tied to the others where the schedule waits, and is joined back at the end. Where the host would
 * wait for an operation (host_waits), everything that is captured later waits for it instead: the
 * same order without the host. Times come from event nodes around every operation. */
#ifndef EXECUTOR_DEVICES_CUDA_GRAPH_H
#define EXECUTOR_DEVICES_CUDA_GRAPH_H

#include "schedule/schedule.h"

struct device_cuda;

enum graph_state {
	GRAPH_NEVER,  /* every step is walked */
	GRAPH_LATER,  /* the next step is the first, and is walked */
	GRAPH_NEXT,   /* the next step is captured */
	GRAPH_WRITES, /* this step is being captured */
	GRAPH_READY,  /* steps are launches */
};

struct device_graph {
	enum graph_state state;
	int64_t nodes; /* of the graph, when it is ready */
	/* private */
	void *executable;
	void **links;                     /* [n_ops] events behind operations, in the capture */
	void *fork, *joins[STREAM_COUNT]; /* events: all streams begin, this one has ended */
	bool inside[STREAM_COUNT];        /* streams that have joined the capture */
};

/* Must be called before the first step: the second one will be captured. */
bool device_graph_want(struct device_cuda *device, struct error *error);
/* Must be called before communicators are destroyed whose collectives the graph contains. */
void device_graph_close(struct device_cuda *device);

static inline bool device_graph_writes(const struct device_graph *graph)
{
	return graph->state == GRAPH_WRITES;
}

/* --- of cuda.c --- */
bool device_graph_begin_step(struct device_cuda *device, struct error *error);
/* The stream takes part in the capture from now on. */
bool device_graph_enter(struct device_cuda *device, enum stream stream, struct error *error);
/* Notes that the operation has been captured, so that others can wait for it. */
bool device_graph_link(struct device_cuda *device, int op, struct error *error);
/* Ends a capture if there is one, and launches the graph. */
bool device_graph_end_step(struct device_cuda *device, struct error *error);

#endif
