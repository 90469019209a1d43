/* Messages between stages of a pipeline. What goes to a rank of another machine is a parcel, then
 * the data. */
#include "executor/transports/nodes/state.h"

static enum wire_channel channel_of(enum direction direction)
{
	return direction == DIRECTION_FORWARD ? WIRE_FORWARD : WIRE_BACKWARD;
}

static bool is_here(const struct nodes *nodes, int rank)
{
	return nodes_of_rank(nodes, rank) == nodes_own(nodes);
}

static struct departure *departure(struct departures *d, uint32_t number)
{
	return &d->of[number % BOARD_PARCELS];
}

/* Notes what has gone. */
static void reap(struct departures *d)
{
	while (d->gone != d->sent && departure(d, d->gone + 1)->header.done &&
		departure(d, d->gone + 1)->data.done)
		d->gone++;
}

/* A sender waits when BOARD_PARCELS messages are on their way. */
static bool await_room(struct comm *comm, const struct comm_message *m, struct departures *d)
{
	double since = clock_now();

	for (reap(d); d->sent - d->gone == BOARD_PARCELS; reap(d))
		if (!nodes_wait_for_wire(comm, &m->of, comm_group_rank(&m->of.group, 1), since))
			return false;
	return true;
}

bool nodes_send(struct comm *comm, const struct comm_message *m)
{
	struct nodes *nodes = comm->state;
	struct departures *d = &nodes->departures[m->direction];
	int receiver = comm_group_rank(&m->of.group, 1);

	if (is_here(nodes, receiver))
		return node_send(comm, &nodes->link, m);
	if (!await_room(comm, m, d))
		return false;
	struct departure *leaves = departure(d, ++d->sent);
	leaves->parcel = node_parcel(comm, &nodes->link, m);
	wire_send(&nodes->wire, receiver, channel_of(m->direction), &leaves->parcel,
		sizeof(leaves->parcel), &leaves->header);
	wire_send(&nodes->wire, receiver, channel_of(m->direction), m->of.input, m->of.count,
		&leaves->data);
	comm->counters.network_bytes += m->of.count;
	return nodes_progress(comm, 0) || atomic_load(nodes->link.patience.abort) == 0;
}

static bool await(struct comm *comm, const struct comm_message *m, const struct wire_message *comes)
{
	double since = clock_now();

	while (!comes->done)
		if (!nodes_wait_for_wire(comm, &m->of, comm_group_rank(&m->of.group, 0), since))
			return false;
	return true;
}

bool nodes_receive(struct comm *comm, const struct comm_message *m)
{
	struct nodes *nodes = comm->state;
	struct departure *comes = &nodes->arriving;
	int sender = comm_group_rank(&m->of.group, 0);

	if (is_here(nodes, sender))
		return node_receive(comm, &nodes->link, m);
	wire_receive(&nodes->wire, sender, channel_of(m->direction), &comes->parcel,
		sizeof(comes->parcel), &comes->header);
	if (!await(comm, m, &comes->header) || !node_expects(comm, &nodes->link, m, &comes->parcel))
		return false;
	comm->assembled = clock_now();
	wire_receive(&nodes->wire, sender, channel_of(m->direction), m->of.output, m->of.count,
		&comes->data);
	return await(comm, m, &comes->data);
}

uint32_t nodes_taken(struct comm *comm, enum direction direction)
{
	struct nodes *nodes = comm->state;
	struct departures *d = &nodes->departures[direction];

	reap(d);
	return d->sent > 0 ? d->gone : node_taken(comm, &nodes->link, direction);
}

bool nodes_progress(struct comm *comm, double seconds)
{
	struct nodes *nodes = comm->state;
	bool any = false;
	struct error error = {0};

	for (int d = 0; d < BOARD_DIRECTIONS; d++) {
		reap(&nodes->departures[d]);
		any |= nodes->departures[d].gone != nodes->departures[d].sent;
	}
	if (!any)
		return false;
	segment_begin_call(nodes->link.control, CALL_MPI_MOVE);
	bool sound = wire_progress(&nodes->wire, seconds, &error);
	segment_end_call(nodes->link.control);
	return sound || segment_fault_error(nodes->link.control, &error);
}
