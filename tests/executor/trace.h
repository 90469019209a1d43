/* The calls of a run to the fake GPU (fakes/trace.c), and whether they follow the schedule: their
 * order, the waits before each operation, and the memory accessed. */
#ifndef TESTS_EXECUTOR_TRACE_H
#define TESTS_EXECUTOR_TRACE_H

#include "schedule/schedule.h"

enum trace_kind {
	TRACE_STREAM, /* made by the thread */
	TRACE_EVENT,
	TRACE_DEVICE, /* memory; pinned memory */
	TRACE_PINNED,
	TRACE_RECORD, /* of an event on a stream */
	TRACE_WAIT,   /* of a stream for an event */
	TRACE_SEEN,   /* the thread has found that an event has come */
	TRACE_CALL,   /* of a kernel or a copy */
	TRACE_COLLECTIVE,
	TRACE_CAPTURE, /* begins */
	TRACE_LAUNCH,  /* of a graph */
	TRACE_ABORT,   /* of a communicator */
	TRACE_DESTROY,
};

struct trace_touch {
	uint64_t address;
	int64_t bytes;
	bool write;
};

struct trace_line {
	enum trace_kind kind;
	int thread, stream;
	uint64_t what; /* event or memory */
	int64_t bytes; /* of the memory, or a collective's gathered size */
	int members, n_touches;
	struct trace_touch *touches;
};

struct trace {
	int n, room;
	struct trace_line *lines;
};

/* Fails the test where the file is none. Arrays come from `arena`. */
void trace_read(struct trace *trace, const char *path, struct arena *arena);

/* What was found, so that a test can see that there was something. */
struct trace_counts {
	int ranks, passes, graphs; /* of all ranks; passes include rehearsal and warm-up */
	int operations, waits, calls, collectives;
};

/* False says in `said` where rank and schedule part. `shared`: ranks share a GPU. */
bool trace_follows(const struct trace *trace, const struct schedule *schedule, bool shared,
	struct trace_counts *counts, char said[256]);

#endif
