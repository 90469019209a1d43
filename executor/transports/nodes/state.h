/* The state of the transport over machines, and what its files share. */
#ifndef EXECUTOR_TRANSPORTS_NODES_STATE_H
#define EXECUTOR_TRANSPORTS_NODES_STATE_H

#include "executor/transports/nodes/nodes.h"
#include "executor/transports/nodes/transfer.h"

/* Messages of this rank to another machine, in one direction. */
struct departures {
	uint32_t sent, gone; /* messages so far; sent == 0: they stay on this machine */
	struct departure {
		struct parcel parcel;
		struct wire_message header, data;
	} of[BOARD_PARCELS]; /* by number, as in struct channel */
};

struct nodes {
	struct arena arena;
	struct node_link link;
	struct layout layout;
	struct wire wire;
	struct transfer *transfers; /* of the collective; [2 * ranks] */
	int n_transfers;
	char *slots, *next_slot; /* memory for pieces, and for this machine's sums */
	int64_t slots_bytes;
	char *bounce;
	struct departures departures[BOARD_DIRECTIONS];
	struct departure arriving; /* the message that is being received */
};

int nodes_of_rank(const struct nodes *nodes, int rank);
int nodes_own(const struct nodes *nodes);
/* The positions in the group that are on that machine; perhaps none. */
struct members nodes_members(const struct nodes *nodes, const struct comm_group *group, int node);
/* The member on `node` that serves the one at `position`, which is on another. */
int nodes_partner(
	const struct nodes *nodes, const struct comm_group *group, int node, int position);

/* The range of the data that the member at that position sums up (or, gathering, contributes). */
struct slice_range nodes_part(const struct collective *c, int position);

/* --- tree_sum.c --- */

/* How many whole subtrees of the declared tree over a group of `size` cover these members. */
int nodes_subtrees(struct members members, int size);
/* Sums elements [at, at + n) over each subtree of this machine's members, one after the other. */
void nodes_sum_subtrees(
	struct comm *comm, const struct collective *c, int64_t at, int64_t n, char *to);
/* to[0..n) = the sum of this machine's subtrees (in `own`, which is overwritten) and of the
 * subtrees of other machines, which the receiving transfers have brought as that piece. */
void nodes_fold(struct comm *comm, const struct collective *c, char *own, int64_t piece, int64_t n,
	char *to);

/* --- flow.c --- */

void nodes_begin(struct nodes *nodes);
/* A flow to or from the member at that position. */
struct transfer *nodes_add(
	struct nodes *nodes, const struct collective *c, int position, bool sends, int64_t n);
/* Lets the pieces pass through slots, `multiplicity` arrays each. */
void nodes_give_slots(struct nodes *nodes, struct transfer *t, int multiplicity);
/* Moves messages until every receiving transfer has brought that piece. */
bool nodes_await_piece(struct comm *comm, const struct collective *c, int64_t piece);
/* Moves messages until all transfers have ended. */
bool nodes_await_all(struct comm *comm, const struct collective *c);
/* Moves what can be moved, or sleeps. False after a fault; it is one when nothing has come from
 * `rank` for too long, `since` being the last time that something did. */
bool nodes_wait_for_wire(struct comm *comm, const struct collective *c, int rank, double since);

/* --- messages.c: as the functions of struct transport --- */

bool nodes_send(struct comm *comm, const struct comm_message *message);
bool nodes_receive(struct comm *comm, const struct comm_message *message);
uint32_t nodes_taken(struct comm *comm, enum direction direction);
bool nodes_progress(struct comm *comm, double seconds);

#endif
