/* What the parts of the fake GPU share. */
#ifndef TESTS_EXECUTOR_FAKE_CUDA_PRIVATE_H
#define TESTS_EXECUTOR_FAKE_CUDA_PRIVATE_H

#include "fake_cuda.h"
#include "kernels/kernels.h"

/* Threads and streams: each has a place in every vector clock. */
enum { FAKE_ACTORS = 192 };

enum fake_node_kind { NODE_CALL, NODE_RECORD, NODE_WAIT, NODE_MEET };

/* One recording of an event. */
struct mark {
	bool done;
	double time;
	uint32_t clock[FAKE_ACTORS];
	struct mark *next;
};
struct fake_event {
	struct mark *mark; /* the last; NULL = never recorded */
};

struct fake_meeting;
struct fake_node {
	enum fake_node_kind kind;
	const char *name;
	void (*run)(void *arguments);
	void *arguments;
	struct fake_touch *touches;
	int n_touches;
	struct mark *mark;
	struct fake_meeting *meeting;
	uint32_t clock[FAKE_ACTORS]; /* of the thread that enqueued it */
	struct fake_node *next;
};

struct fake_stream {
	int actor, owner;
	bool in_steps; /* events were recorded on it */
	struct fake_node *head, *tail;
	uint32_t clock[FAKE_ACTORS];
	struct fake_stream *next;
};

struct allocation {
	char *memory;
	int64_t bytes;
	bool pinned;
	struct allocation *next;
};

/* All of these with the lock. */
void fake_lock(void);
void fake_unlock(void);
/* Gives the lock away until another thread has done something, or a moment has passed. */
void fake_wait(void);
void fake_wake(void);
int fake_new_actor(void);
void fake_count_collective(void);
struct fake_node *fake_enqueue(struct fake_stream *stream, enum fake_node_kind kind,
	const char *name, const void *arguments, size_t bytes, const struct fake_touch *touches,
	int n_touches);
void fake_begin_node(struct fake_stream *stream);
void fake_check_node(struct fake_stream *stream);
void fake_join_clocks(struct fake_stream *stream, const struct fake_stream *other);
void fake_end_node(struct fake_stream *stream);

/* fake_nccl.c: a node that runs when all its members have come to it. */
bool fake_meeting_is_complete(const struct fake_meeting *meeting);
void fake_meeting_run(struct fake_meeting *meeting);

/* fake_kernels.c: the reference kernels, enqueued. */
extern const struct kernels fake_kernels;

#endif
