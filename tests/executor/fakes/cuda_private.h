/* Shared by the parts of the fake GPU. */
#ifndef TESTS_EXECUTOR_FAKE_CUDA_PRIVATE_H
#define TESTS_EXECUTOR_FAKE_CUDA_PRIVATE_H

#include <pthread.h>

#include "kernels/kernels.h"
#include "tests/executor/fakes/cuda.h"

/* Threads and streams: each has a place in every vector clock. */
enum { FAKE_ACTORS = 192 };
enum { FAKE_ERROR = 999, FAKE_MEMORY = 1 << 30 };

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
	/* The last recording inside a capture: of which, which of its list, and behind what. */
	int64_t capture; /* 0 = the last one was none */
	int recording;
	int64_t *behind;
};

struct fake_meeting;
struct fake_capture;
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
	double issued;               /* by that thread's time */
	int64_t number;              /* of all that were enqueued */
	int gpu;                     /* NODE_MEET: where its kernel has room to run */
	bool started;                /* and that it has it */
	struct fake_node *next;
};

struct fake_stream {
	int actor, owner;
	int queue;     /* of the machine: what lies there begins in order; -1 = none */
	bool in_steps; /* events were recorded on it */
	struct fake_capture *capture; /* that takes what it is given; NULL = none */
	struct fake_node *head, *tail;
	uint32_t clock[FAKE_ACTORS];
	double time; /* s: what was enqueued has passed */
	struct fake_stream *next;
};

struct allocation {
	char *memory;
	int64_t bytes;
	bool pinned, of_nccl;
	char *range; /* the mapping that a large one is part of; NULL: it is malloc's */
	size_t reserved;
	struct allocation *next;
};

/* The state of the machine, and of the calling thread. */
extern struct fake_machine {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int gpus, first_gpu; /* those that this process sees */
	uint64_t random;
	int n_actors, n_streams;
	int n_queues; /* 0: one for each stream */
	int64_t n_nodes;
	struct fake_stream *streams;
	struct allocation *allocations;
	int64_t allocated;
	char fault[400];
} fake_machine;
extern _Thread_local struct fake_thread {
	int actor;                    /* from 1; 0 = not yet known */
	struct fake_capture *capture; /* that it has begun and not ended */
	int gpu;                      /* of the machine, whose context is current */
	uint32_t clock[FAKE_ACTORS];
	double time;
} fake_thread;

/* 0, or FAKE_ERROR once there is a fault. */
int fake_outcome(void);
void *fake_calloc(size_t bytes); /* for the caller to free; never NULL */

/* All of these with the lock. */
void fake_lock(void);
void fake_unlock(void);
/* Gives the lock away until another thread has done something, or a moment has passed. */
void fake_wait(void);
void fake_wake(void);
int fake_new_actor(void);
struct fake_node *fake_enqueue(struct fake_stream *stream, enum fake_node_kind kind,
	const char *name, const void *arguments, size_t bytes, const struct fake_touch *touches,
	int n_touches);
void fake_begin_node(struct fake_stream *stream);
void fake_check_node(struct fake_stream *stream);
void fake_join_clocks(struct fake_stream *stream, const struct fake_stream *other);
void fake_end_node(struct fake_stream *stream);
/* The later of both, place by place. */
void fake_join(uint32_t *into, const uint32_t *from);
/* One node of a stream that is drawn; false when none can go on. */
bool fake_run_one(void);

struct mark *fake_new_mark(void);
struct fake_stream *fake_new_stream(void);
void fake_forget_stream(struct fake_stream *stream);

/* graph.c: for streams that are captured; with the lock too. */
void fake_capture_call(struct fake_stream *stream, const char *name, void (*run)(void *),
	const void *arguments, size_t bytes, const struct fake_touch *touches, int n_touches);
/* Whatever `again` enqueues then, with every launch. */
void fake_capture_again(struct fake_stream *stream,
	void (*again)(void *arguments, struct fake_stream *stream), const void *arguments,
	size_t bytes);
void fake_capture_record(struct fake_stream *stream, struct fake_event *event, bool for_the_host);
/* The stream joins the capture of that event, if it is in none. */
void fake_capture_wait(struct fake_stream *stream, const struct fake_event *event);
void fake_graph_install(struct cuda_api *api);

/* trace.c, with the lock too: nothing where FAKE_TRACE names no file. */
void fake_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* What came last, also when the process is killed. */
void fake_trace_flush(void);
void fake_trace_touches(const char *what, const struct fake_stream *stream, int members,
	int64_t bytes, const struct fake_touch *touches, int n_touches);

/* memory.c, with the lock too. */
struct allocation *fake_find_allocation(const void *address); /* NULL: nobody's */
void fake_check_access(
	const struct fake_stream *stream, const char *name, const struct fake_touch *touch);
char *fake_add_allocation(size_t bytes, bool pinned);
void fake_remove_allocation(const void *memory, bool pinned);

/* clock.c. Without fake_clock_start times are real, and nothing can be held. */
bool fake_clock_is_dry(void);
void fake_clock_issue(struct fake_node *node);
/* Before the head of the stream runs, and behind it. */
void fake_clock_begin(struct fake_stream *stream);
void fake_clock_end(struct fake_stream *stream);
/* A collective of that gathered size between streams, each with its node at the head. */
void fake_clock_meet(struct fake_stream **streams, int n, int64_t bytes);
/* A collective of NCCL's has been given. */
void fake_clock_call(void);
/* The thread has waited for that. */
void fake_clock_wait(double time);
double fake_clock_of(const struct fake_stream *stream); /* for events */
void fake_launch_pace_begin(void *stream, void **arguments);
void fake_launch_pace_end(void *stream, void **arguments);

/* nccl.c: a node that runs when all its members have come to it. */
bool fake_meeting_is_complete(struct fake_meeting *meeting);
/* Gives kernels of collectives the room that they need on their GPUs. */
void fake_meetings_start(void);
void fake_meeting_run(struct fake_stream *stream);

/* kernels.c: the reference kernels, enqueued; what they compute with. */
extern const struct kernels fake_kernels;
struct kernel_context *fake_worker(void);

/* fakes/algorithms.c */
int fake_gemm_algorithms(struct kernel_context *context, const struct gemm *g,
	struct gemm_algorithm *algorithms, int most);
void fake_choose_gemms(struct kernel_context *context, struct gemm_choice *choices, int n);
int64_t fake_gemm_version(struct kernel_context *context);
/* Takes the choice for the product that is enqueued or made ready; false with the context's error.
 */
bool fake_take_choice(struct kernel_context *context, const struct gemm *g);
double fake_gemm_speed(const struct gemm *g);
void fake_check_bf16(const struct gemm *g);

/* Says who chose what, by context, until it chooses nothing. */
enum { FAKE_CONTEXTS = 64 };
struct fake_choosers {
	struct fake_chooser {
		const struct kernel_context *context;
		void *choices; /* of the library's kind */
		int n;
	} of[FAKE_CONTEXTS];
};
void fake_choose(
	struct fake_choosers *all, const struct kernel_context *context, void *choices, int n);
/* attention.c */
int fake_attention_algorithms(struct kernel_context *context, enum attention_pass pass,
	const struct attention_backward *shape, struct attention_algorithm *algorithms,
	int64_t *bytes, int most);
void fake_choose_attention(struct kernel_context *context, struct attention_choice *choices, int n);
int64_t fake_attention_version(struct kernel_context *context);
bool fake_take_attention(struct kernel_context *context, const struct attention *a);
bool fake_take_attention_backward(
	struct kernel_context *context, const struct attention_backward *b);
double fake_attention_speed(enum attention_pass pass, const struct attention *a);
/* With the lock: what a copy gives in a machine where nothing is computed. */
void fake_dry_copy(void *to, const void *from, int64_t bytes);

/* Must be called with the lock. It is what a copy gives in a machine where nothing is computed. */
extern const struct device_kernels fake_device_kernels;
bool fake_open(struct kernel_context *context, struct error *error);
void fake_close(struct kernel_context *context);
/* Leaves the largest that is outside in the context's word. */
void fake_check_tokens(
	struct kernel_context *context, const int32_t *ids, int64_t n, int64_t vocabulary);

#endif
