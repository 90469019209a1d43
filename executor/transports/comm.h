/* Collectives between ranks, behind one table of functions: a transport.
 *
 * A rank has one struct comm, which one thread uses (the communication thread; between steps the
 * interpreter). Ranks with one program carry out the same sequence of collectives, and all ranks
 * that of those which join programs; a transport compares what each is about to do before any data
 * moves. Messages go from one program to another, and have an order in each direction.
 *
 * Sums are made in the declared order: one balanced tree over the positions in the group, split at
 * the largest power of two below its size. So they do not depend on the transport, and a group that
 * is a subtree of a larger one gives the larger one's partial sums. */
#ifndef EXECUTOR_TRANSPORTS_COMM_H
#define EXECUTOR_TRANSPORTS_COMM_H

#include "executor/job/job.h"
#include "kernels/kernels.h"
#include "schedule/schedule.h"

/* Sums of INT64 are the digits of exact sums (kernels/exact_sum.h): their order is free. */
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
	/* Elements: all-gather, reduce-scatter and all-to-all, of one rank's chunk; all-reduce and
	 * send-receive, of the whole. */
	int64_t count;
	/* All-to-all of different numbers: elements for each member, and of each, one behind the
	 * other in input and output; NULL: `count` of them. At most BOARD_SPLITS members. */
	const int64_t *sends, *receives;
	const void *input; /* all-reduce: = output */
	void *output;
	void *stream; /* of a device, to enqueue on; NULL: it is done when the call returns */
	void *clock;  /* on the device: where to note that all have come; NULL: nowhere */
	int64_t step;
	int op, unit;    /* for messages; -1 = none */
	int group_index; /* in the list of groups that the transport was opened with */
	/* s until a rank that does not come is called hung; 0 = as the transport was opened with */
	double patience;
};

/* From one rank to another, between stages of a pipeline. */
struct comm_message {
	/* The sender is the first of two members; `count` bytes from `input`, or to `output`. */
	struct collective of;
	enum direction direction;
	int micro_batch, chunk;
};

/* All-to-all: elements for the member at that position, and of it. */
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
	int64_t wire_bytes;    /* that this rank fetched from others, or sent in messages */
	int64_t network_bytes; /* that this rank sent to other machines */
	int64_t row_bytes;     /* of wire_bytes, by all-to-alls of different numbers */
};

struct comm;

struct transport {
	const char *name;
	/* What other ranks read (input of all-gather and reduce-scatter, buffer of all-reduce) must
	 * lie in memory that the transport can reach: any block of the rank's heap. False after a
	 * fault, which has been recorded. */
	bool (*run)(struct comm *comm, const struct collective *collective);
	/* NULL: there are no messages. What is sent lies in the heap, and stays as it is until
	 * `taken` counts it; a receive returns when it is there. */
	bool (*send)(struct comm *comm, const struct comm_message *message);
	bool (*receive)(struct comm *comm, const struct comm_message *message);
	/* How many in that direction have reached their receiver. */
	uint32_t (*taken)(struct comm *comm, enum direction direction);
	/* Moves what is on its way for at most so many s; false: there is nothing, or a fault.
	 * NULL: receivers fetch. */
	bool (*progress)(struct comm *comm, double seconds);
	void (*finish)(struct comm *comm); /* frees `state` */
};

struct comm {
	const struct transport *transport;
	int rank, ranks;
	int program_ranks;             /* so many consecutive ranks have one program; 0 = all */
	const struct kernels *kernels; /* for sums */
	struct kernel_context *context;
	const struct schedule *schedule; /* for names in messages; NULL: there are numbers only */
	struct fault fault;
	struct comm_counters counters;
	double patience; /* s, of every collective at least; 0 = none of its own */
	/* clock_now() when all members had come to the last collective; 0 where the transport does
	 * not know. */
	double assembled;
	void *state; /* of the transport */
};

struct segment;

/* Through a segment that the ranks share. The comm borrows segment, kernels and context. */
bool comm_open_shm(struct comm *comm, struct segment *segment, const struct kernels *kernels,
	struct kernel_context *context, struct error *error);
/* Moves nothing, for any number of ranks: the interpreter without peers. */
void comm_open_null(struct comm *comm, int rank, int ranks);
void comm_close(struct comm *comm);

bool comm_run(struct comm *comm, const struct collective *collective);
/* All ranks; every rank's `bytes` of input, in rank order. Input in the heap, as above. */
bool comm_exchange(struct comm *comm, const void *input, void *output, int64_t bytes);
/* With a patience of its own, s. */
bool comm_exchange_within(
	struct comm *comm, const void *input, void *output, int64_t bytes, double patience);
bool comm_send(struct comm *comm, const struct comm_message *message);
bool comm_receive(struct comm *comm, const struct comm_message *message);
/* Whether a group is of ranks with several programs. */
bool comm_joins_programs(const struct comm *comm, const struct comm_group *group);
/* To tell people: " of " and the unit of an operation of that rank; and the operation, by number
 * and name. Nothing for what is no operation of the schedule (-1). */
void comm_tell_unit(const struct comm *comm, int rank, int unit, struct text *text);
void comm_tell_operation(const struct comm *comm, int rank, int op, struct text *text);
/* The group of that rank. */
struct comm_group comm_group_of(const struct group *group, int rank);

int64_t comm_element_bytes(enum comm_element element);
bool comm_element_is_float(enum comm_element element);
/* Of floating-point elements. */
enum dtype comm_element_dtype(enum comm_element element);

#endif
