/* Messages between ranks of one machine: the receiver fetches from the sender's window. The sender
 * goes on at once, and may write to its memory again when `taken` says so. */
#include <string.h>

#include "executor/transports/node.h"

static struct channel *channel_of(
	const struct node_link *link, int sender, enum direction direction)
{
	return &node_board(link, sender)->channels[direction];
}

static uint32_t value_of(const struct event *event)
{
	return atomic_load_explicit(&event->value, memory_order_acquire);
}

struct parcel node_parcel(
	const struct comm *comm, const struct node_link *link, const struct comm_message *m)
{
	const struct collective *of = &m->of;
	struct parcel parcel = {.sender = comm_group_rank(&of->group, 0),
		.receiver = comm_group_rank(&of->group, 1),
		.micro_batch = m->micro_batch,
		.chunk = m->chunk,
		.step = of->step,
		.bytes = of->count,
		.op = of->op};

	if (of->input != NULL)
		parcel.offset = (const char *)of->input - link->window;
	if (fault_hits(&comm->fault, FAULT_MISMATCH, comm->rank, of->step))
		parcel.micro_batch++;
	return parcel;
}

static void describe(struct text *text, const struct parcel *p)
{
	text_printf(text,
		"%lld bytes of micro-batch %d, stage %d of rank %d, step %lld, to rank %d",
		(long long)p->bytes, p->micro_batch, p->chunk, p->sender, (long long)p->step,
		p->receiver);
}

bool node_expects(struct comm *comm, struct node_link *link, const struct comm_message *m,
	const struct parcel *theirs)
{
	const struct parcel mine = node_parcel(comm, link, m);
	struct text text = {0};

	if (mine.sender == theirs->sender && mine.receiver == theirs->receiver &&
		mine.micro_batch == theirs->micro_batch && mine.chunk == theirs->chunk &&
		mine.step == theirs->step && mine.bytes == theirs->bytes)
		return true;
	text_printf(&text, "rank %d expects another message (%s): ", comm->rank,
		direction_names[m->direction]);
	describe(&text, &mine);
	text_add(&text, "; it was sent ");
	describe(&text, theirs);
	segment_fault(link->control, EXIT_CODE_FAULT, "%s", text_string(&text));
	text_finish(&text);
	return false;
}

/* A sender waits when BOARD_PARCELS messages are on their way. */
bool node_send(struct comm *comm, struct node_link *link, const struct comm_message *m)
{
	struct channel *channel = channel_of(link, comm->rank, m->direction);
	uint32_t number = value_of(&channel->sent) + 1;

	if (number > BOARD_PARCELS &&
		!node_await_event(comm, link, &m->of, comm_group_rank(&m->of.group, 1),
			&channel->taken, number - BOARD_PARCELS))
		return false;
	channel->parcels[number % BOARD_PARCELS] = node_parcel(comm, link, m);
	event_set(&channel->sent, number);
	return true;
}

bool node_receive(struct comm *comm, struct node_link *link, const struct comm_message *m)
{
	int sender = comm_group_rank(&m->of.group, 0);
	struct channel *channel = channel_of(link, sender, m->direction);
	uint32_t number = ++link->received[m->direction];

	if (!node_await_event(comm, link, &m->of, sender, &channel->sent, number))
		return false;
	const struct parcel *parcel = &channel->parcels[number % BOARD_PARCELS];
	if (!node_expects(comm, link, m, parcel))
		return false;
	comm->assembled = clock_now();
	memcpy(m->of.output,
		segment_window(link->segment, sender - link->first_rank) + parcel->offset,
		(size_t)m->of.count);
	event_set(&channel->taken, number);
	return true;
}

uint32_t node_taken(const struct comm *comm, const struct node_link *link, enum direction direction)
{
	return value_of(&channel_of(link, comm->rank, direction)->taken);
}
