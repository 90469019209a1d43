#include "executor/transports/nodes/transfer.h"

static int64_t pieces_of(const struct transfer *t)
{
	return ceil_div(t->n, TRANSFER_PIECE);
}

int64_t transfer_piece_elements(const struct transfer *t, int64_t piece)
{
	return min_i64(TRANSFER_PIECE, t->n - piece * TRANSFER_PIECE);
}

int64_t transfer_piece_bytes(const struct transfer *t, int64_t piece)
{
	return t->multiplicity * transfer_piece_elements(t, piece) * t->element_bytes;
}

char *transfer_piece_data(const struct transfer *t, int64_t piece)
{
	if (t->data != NULL)
		return t->data + piece * TRANSFER_PIECE * t->element_bytes;
	return t->slots + piece % TRANSFER_DEPTH * transfer_slot_bytes(t);
}

int64_t transfer_slot_bytes(const struct transfer *t)
{
	return t->multiplicity * min_i64(TRANSFER_PIECE, t->n) * t->element_bytes;
}

bool transfer_open(struct transfer *t, struct wire *wire)
{
	if (!t->opened) {
		t->opened = true;
		t->moved_at = clock_now();
		if (t->sends)
			wire_send(wire, t->rank, WIRE_COLLECTIVES, &t->post, sizeof(t->post),
				&t->header);
		else
			wire_receive(wire, t->rank, WIRE_COLLECTIVES, &t->post, sizeof(t->post),
				&t->header);
	}
	return t->sends || t->header.done;
}

bool transfer_may_start(const struct transfer *t)
{
	int64_t free_from = t->sends ? t->done : min_i64(t->done, t->used);

	return t->started < pieces_of(t) && t->started < free_from + TRANSFER_DEPTH;
}

void transfer_start(struct transfer *t, struct wire *wire)
{
	int64_t piece = t->started++;
	struct wire_message *message = &t->messages[piece % TRANSFER_DEPTH];
	char *data = transfer_piece_data(t, piece);

	if (t->sends)
		wire_send(wire, t->rank, WIRE_COLLECTIVES, data, transfer_piece_bytes(t, piece),
			message);
	else
		wire_receive(wire, t->rank, WIRE_COLLECTIVES, data, transfer_piece_bytes(t, piece),
			message);
}

void transfer_reap(struct transfer *t)
{
	while (t->done < t->started && t->messages[t->done % TRANSFER_DEPTH].done) {
		t->done++;
		t->moved_at = clock_now();
	}
}

bool transfer_finished(const struct transfer *t)
{
	return t->header.done && t->done == pieces_of(t) && (t->sends || t->verified);
}
