/* Private to transports: ranks of one machine, which read in each other's windows of a segment.
 *
 * Of a group, `members` are the positions whose ranks are on this machine: all of them under the
 * shm transport. */
#ifndef EXECUTOR_TRANSPORTS_NODE_H
#define EXECUTOR_TRANSPORTS_NODE_H

#include "base/base.h"
#include "executor/ranks/ranks.h"
#include "executor/transports/comm.h"

/* The counter `progress` is PHASES * sequence + phase, so that one number says both. */
enum phase { PHASE_POSTED = 1, PHASE_REDUCED, PHASE_GATHERED, PHASE_DONE, PHASES };

/* Positions in a group: [first, end). */
struct members {
	int first, end;
};

struct node_link {
	struct segment *segment; /* that the ranks of this machine share */
	struct segment *control; /* that the launcher of this rank reads: where faults are told */
	int first_rank;          /* of this machine: has board and window 0 */
	char *window;            /* of this rank */
	int64_t window_bytes;
	enum lane lane;                      /* of the current collective */
	uint32_t sequence;                   /* and its number in that lane */
	uint32_t last[LANES];                /* number of the last collective in each lane */
	uint32_t received[BOARD_DIRECTIONS]; /* messages so far */
	struct patience patience;
	const void **sources; /* [ranks], scratch */
};

/* Borrows the segments; `rank` is the caller's in the run, `ranks` all of the run. */
void node_link_open(struct node_link *link, struct segment *shared, struct segment *control,
	int rank, int ranks, int first_rank, struct arena *arena);

/* The patience of the collective, or the transport's where it has none. */
struct patience node_patience(const struct node_link *link, const struct collective *c);
/* Posts what this rank is about to do, under the next sequence number. */
void node_post(struct comm *comm, struct node_link *link, const struct collective *c);
const struct post *node_peer_post(const struct node_link *link, int rank);
void node_say(const struct comm *comm, struct node_link *link, enum phase phase);
/* Waits until every member has reached that phase of this collective. */
bool node_await(struct comm *comm, struct node_link *link, const struct collective *c,
	struct members members, enum phase phase);
/* Waits until a peer's counter has reached `target`; `c` is for the message when it does not. */
bool node_await_event(struct comm *comm, struct node_link *link, const struct collective *c,
	int peer, struct event *event, uint32_t target);
struct board *node_board(const struct node_link *link, int rank);
/* Checks, before data moves, that every member is about to do the same. */
bool node_agree(struct comm *comm, struct node_link *link, const struct collective *c,
	struct members members);
/* Is `theirs` what this rank has posted? Records the fault when it is not. */
bool node_same(struct comm *comm, struct node_link *link, int peer, const struct post *theirs);
/* Records the fault that a rank does not come. Always returns false. */
bool node_hangs(struct comm *comm, struct node_link *link, const struct collective *c, int peer,
	const char *last_seen);

/* The input of the member at that position (or its buffer of an all-reduce), in its window. */
const char *node_input(const struct node_link *link, const struct collective *c, int index);
/* Returns the member's output, if that is in its window too. */
const char *node_output(const struct node_link *link, const struct collective *c, int index);
bool node_reaches(const struct node_link *link, const void *address, int64_t bytes);

/* All-to-all: the chunk that the member at that position has for the caller. False, with a recorded
 * fault, when its size is not what the caller expects. */
bool node_given(struct comm *comm, struct node_link *link, const struct collective *c, int index,
	const char **data);

/* Copies, and counts the bytes as fetched from another rank unless `own`. */
void node_fetch(struct comm *comm, void *to, const void *from, int64_t bytes, bool own);

/* --- messages.c --- */

/* Returns the n-th message of this rank in its direction. */
struct parcel node_parcel(
	const struct comm *comm, const struct node_link *link, const struct comm_message *message);
/* Is `theirs` the message that this rank receives now? Records the fault when it is not. */
bool node_expects(struct comm *comm, struct node_link *link, const struct comm_message *message,
	const struct parcel *theirs);
/* The message between two ranks of this machine: as the functions of struct transport. */
bool node_send(struct comm *comm, struct node_link *link, const struct comm_message *message);
bool node_receive(struct comm *comm, struct node_link *link, const struct comm_message *message);
uint32_t node_taken(
	const struct comm *comm, const struct node_link *link, enum direction direction);

/* The part of an all-reduce's buffer that the member at `index` sums up. */
struct slice_range {
	int64_t first, count;
};
struct slice_range node_slice(const struct collective *c, int index);

/* --- shm.c --- */

/* Runs a collective whose group is on this machine. */
bool comm_run_in_node(struct comm *comm, struct node_link *link, const struct collective *c);

/* --- ordered_sum.c --- */

/* Computes to[0..n) = the sum of `count` sources, floats in the declared tree; seeded faults are
 * included. */
void comm_sum(struct comm *comm, const struct collective *c, void *to, const void *const *sources,
	int count, int64_t n);

#endif
