/* Collectives between ranks, behind one table of functions: a transport.
 *
 * A rank has one struct comm. One thread at a time uses it: the communication thread, and between
 * steps the interpreter. Ranks that run the same program carry out the same sequence of
 * collectives; so do all ranks for collectives that join programs. Before any data moves, a
 * transport compares what each member is about to do. Messages go between ranks of different
 * programs, and arrive in order in each direction.
 *
 * Sums are made in the declared order: a balanced tree over the positions in the group, split at
 * the largest power of two below its size. So their bits do not depend on the transport, and a
 * group that is a subtree of a larger one gives the partial sums of the larger one. */
#ifndef EXECUTOR_TRANSPORTS_COMM_H
#define EXECUTOR_TRANSPORTS_COMM_H

#include "executor/job/job.h"
#include "kernels/kernels.h"
#include "schedule/schedule.h"

/* INT64 are the limbs of exact sums (kernels/common/exact_sum.h), which may be added in any order.
 */
enum comm_element { COMM_FP32, COMM_INT64, COMM_BYTE, COMM_BF16 };

/* Ranks {first, first + stride, ...}; `index` is the position of the caller. */
struct comm_group {
	int first, size, stride, index;
};

static inline int comm_group_rank(const struct comm_group *group, int index)
{
	return group->first + index * group->stride;
}

/* Positions of the neighbours in a ring. */
static inline int comm_group_before(const struct comm_group *group)
{
	return (group->index + group->size - 1) % group->size;
}

static inline int comm_group_behind(const struct comm_group *group)
{
	return (group->index + 1) % group->size;
}

struct collective {
	enum collective_kind kind;
	enum comm_element element;
	struct comm_group group;
	/* Elements of one rank's chunk in an all-gather, reduce-scatter or all-to-all; of the whole
	 * buffer in an all-reduce or send-receive. */
	int64_t count;
	/* All-to-all with chunks of different sizes: elements [group.size] that go to each member
	 * and that come from each; chunks follow one another in input and output. NULL: all have
	 * `count`. At most BOARD_SPLITS members. */
	const int64_t *sends, *receives;
	const void *input; /* all-reduce: = output */
	void *output;
	void *stream; /* of a device, to enqueue on; NULL: it is done when the call returns */
	void *clock;  /* on the device: where to note when all members had come; NULL: nowhere */
	int64_t step;
	int op, unit;    /* for error messages; -1 = none */
	int group_index; /* in the list of groups that the transport was opened with */
	/* s until a member that does not come counts as hung; 0 = the transport's own patience */
	double patience;
};

/* A message from one rank to another, between stages of a pipeline. */
struct comm_message {
	/* A group of two, the sender first; `count` bytes go from its `input` to the receiver's
	 * `output`. */
	struct collective of;
	enum direction direction;
	int micro_batch, chunk;
};

/* All-to-all: elements that go to the member at that position, and that come from it. */
static inline int64_t comm_sent(const struct collective *c, int index)
{
	return c->sends != NULL ? c->sends[index] : c->count;
}

static inline int64_t comm_received(const struct collective *c, int index)
{
	return c->receives != NULL ? c->receives[index] : c->count;
}

struct comm_counters {
	int64_t collectives[COLLECTIVES_OF_STEPS]; /* by enum collective_kind */
	int64_t wire_bytes;    /* fetched from other ranks, or sent in messages */
	int64_t network_bytes; /* sent to other machines */
	int64_t row_bytes;     /* the part of wire_bytes in all-to-alls with `sends` */
};

struct comm;

struct transport {
	const char *name;
	/* Buffers that other ranks read (the input of an all-gather or reduce-scatter, the buffer
	 * of an all-reduce) must be blocks of the rank's heap, which the transport can reach. False
	 * after a fault, which is recorded in the segment. */
	bool (*run)(struct comm *comm, const struct collective *collective);
	/* NULL: this transport has no messages. `send` returns at once: its input lies in the heap
	 * and must not change until `taken` counts the message. `receive` returns when the message
	 * is there. */
	bool (*send)(struct comm *comm, const struct comm_message *message);
	bool (*receive)(struct comm *comm, const struct comm_message *message);
	/* How many messages in that direction have reached their receiver. */
	uint32_t (*taken)(struct comm *comm, enum direction direction);
	/* Moves messages that are under way, for at most that long; false when there are none, or
	 * after a fault. NULL: receivers fetch messages by themselves. */
	bool (*progress)(struct comm *comm, double seconds);
	void (*finish)(struct comm *comm); /* frees `state` */
};

struct comm {
	const struct transport *transport;
	int rank, ranks;
	int program_ranks;             /* consecutive ranks that run one program; 0 = all */
	const struct kernels *kernels; /* for sums */
	struct kernel_context *context;
	const struct schedule *schedule; /* for names in error messages; NULL: they have numbers */
	struct fault fault;
	struct comm_counters counters;
	double patience; /* s, the least that any collective has; 0 = no such limit */
	/* clock_now() when all members had come to the last collective; 0 when the transport cannot
	 * tell. */
	double assembled;
	void *state; /* of the transport */
};

struct segment;

/* Opens the shm transport, through a segment that the ranks share. The comm borrows segment,
 * kernels and context. */
bool comm_open_shm(struct comm *comm, struct segment *segment, const struct kernels *kernels,
	struct kernel_context *context, struct error *error);
/* Opens a transport that moves nothing: it runs the interpreter of one rank of any number, without
 * the others. */
void comm_open_null(struct comm *comm, int rank, int ranks);
void comm_close(struct comm *comm);

bool comm_run(struct comm *comm, const struct collective *collective);
/* Gathers `bytes` of every rank over all ranks. The input is a block of the heap, as above. */
bool comm_exchange(struct comm *comm, const void *input, void *output, int64_t bytes);
/* Does the same with a patience of its own, s. */
bool comm_exchange_within(
	struct comm *comm, const void *input, void *output, int64_t bytes, double patience);
bool comm_send(struct comm *comm, const struct comm_message *message);
bool comm_receive(struct comm *comm, const struct comm_message *message);
/* Do ranks of the group run several programs? */
bool comm_joins_programs(const struct comm *comm, const struct comm_group *group);
/* For error messages: adds " of " and the name of the unit; adds an operation of that rank by its
 * number and name. Both add nothing for -1. */
void comm_tell_unit(const struct comm *comm, int rank, int unit, struct text *text);
void comm_tell_operation(const struct comm *comm, int rank, int op, struct text *text);
/* The group of this kind that the rank is in. */
struct comm_group comm_group_of(const struct group *group, int rank);

int64_t comm_element_bytes(enum comm_element element);
bool comm_element_is_float(enum comm_element element);
/* The element must be a floating-point one. */
enum dtype comm_element_dtype(enum comm_element element);

#endif
