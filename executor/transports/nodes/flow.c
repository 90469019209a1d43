/* Moves the data of a collective between machines, without spinning. */
#include "executor/transports/nodes/state.h"

/* A rank of another machine is called hung later than one of this machine, whose ranks know more
 * exactly who is to blame. */
#define NETWORK_PATIENCE(timeout) (1.5 * (timeout) + 2)

/* A sleeper looks at the abort flag after so many seconds. */
#define NAP 0.1

void nodes_begin(struct nodes *nodes)
{
	nodes->n_transfers = 0;
	nodes->next_slot = nodes->slots;
}

struct transfer *nodes_add(
	struct nodes *nodes, const struct collective *c, int position, bool sends, int64_t n)
{
	struct transfer *t = &nodes->transfers[nodes->n_transfers++];

	*t = (struct transfer){.rank = comm_group_rank(&c->group, position),
		.sends = sends,
		.element_bytes = comm_element_bytes(c->element),
		.n = n,
		.multiplicity = 1,
		.used = INT64_MAX};
	if (sends)
		t->post = *node_peer_post(&nodes->link, nodes->layout.rank);
	return t;
}

void nodes_give_slots(struct nodes *nodes, struct transfer *t, int multiplicity)
{
	t->multiplicity = multiplicity;
	t->slots = nodes->next_slot;
	t->used = 0;
	nodes->next_slot += TRANSFER_DEPTH * transfer_slot_bytes(t);
}

/* Tells the watchdogs of this machine that this rank is there, and waits itself. */
static void beat(struct nodes *nodes)
{
	struct node_link *link = &nodes->link;
	struct board *board = segment_board(link->segment, nodes->layout.rank - link->first_rank);

	atomic_fetch_add(&board->beats, 1);
}

/* Returns what this rank waits for: rather what comes than what goes. */
static const struct transfer *first_unfinished(const struct nodes *nodes)
{
	const struct transfer *going = NULL;

	for (int i = 0; i < nodes->n_transfers; i++) {
		const struct transfer *t = &nodes->transfers[i];

		if (transfer_finished(t))
			continue;
		if (!t->sends)
			return t;
		going = going != NULL ? going : t;
	}
	return going;
}

bool nodes_wait_for_wire(struct comm *comm, const struct collective *c, int rank, double since)
{
	struct nodes *nodes = comm->state;
	double timeout = node_patience(&nodes->link, c).timeout;
	struct error error = {0};

	beat(nodes);
	segment_begin_call(nodes->link.control, CALL_MPI_MOVE);
	bool sound = wire_progress(&nodes->wire, NAP, &error);
	segment_end_call(nodes->link.control);
	if (!sound)
		return segment_fault_error(nodes->link.control, &error);
	if (atomic_load(nodes->link.patience.abort) != 0)
		return false;
	if (timeout <= 0 || clock_now() - since < NETWORK_PATIENCE(timeout))
		return true;
	return node_hangs(comm, &nodes->link, c, rank, "; it is on another machine");
}

static void start_piece(struct comm *comm, const struct collective *c, struct transfer *t)
{
	struct nodes *nodes = comm->state;
	int64_t piece = t->started, bytes = transfer_piece_bytes(t, piece);

	if (t->sends && t->data == NULL)
		nodes_sum_subtrees(comm, c, t->at + piece * TRANSFER_PIECE,
			transfer_piece_elements(t, piece), transfer_piece_data(t, piece));
	transfer_start(t, &nodes->wire);
	bool leaves = nodes_of_rank(nodes, t->rank) != nodes_own(nodes);
	if (t->sends)
		comm->counters.network_bytes += leaves ? bytes : 0;
	else
		comm->counters.wire_bytes += bytes / t->multiplicity;
}

/* Starts and notes what is possible; returns false after a fault. */
static bool advance(struct comm *comm, const struct collective *c, struct transfer *t)
{
	struct nodes *nodes = comm->state;

	if (!transfer_open(t, &nodes->wire))
		return true;
	if (!t->sends && !t->verified) {
		if (!node_same(comm, &nodes->link, t->rank, &t->post))
			return false;
		t->verified = true;
	}
	transfer_reap(t);
	while (transfer_may_start(t))
		start_piece(comm, c, t);
	return true;
}

static bool has_piece(const struct transfer *t, int64_t piece)
{
	return piece >= 0 && t->sends ? true
				      : transfer_finished(t) || (piece >= 0 && t->done > piece);
}

/* Waits for one piece from all; with piece < 0 for all of it, in both directions. */
static bool await_piece(struct comm *comm, const struct collective *c, int64_t piece)
{
	struct nodes *nodes = comm->state;
	bool ok = true;

	while (ok) {
		bool enough = true;

		for (int i = 0; i < nodes->n_transfers && ok; i++) {
			ok = advance(comm, c, &nodes->transfers[i]);
			enough = enough && has_piece(&nodes->transfers[i], piece);
		}
		if (!ok || enough)
			break;
		const struct transfer *waiting = first_unfinished(nodes);
		ok = nodes_wait_for_wire(comm, c, waiting->rank, waiting->moved_at);
	}
	return ok;
}

bool nodes_await_piece(struct comm *comm, const struct collective *c, int64_t piece)
{
	return await_piece(comm, c, piece);
}

bool nodes_await_all(struct comm *comm, const struct collective *c)
{
	return await_piece(comm, c, -1);
}
