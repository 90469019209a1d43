/* Private to transports: one flow of data from or to a rank of another machine, in pieces.
 *
 * Its first message says what the sender is about to do, so that ranks that disagree receive
 * nothing. Pieces lie in the data itself, or pass through TRANSFER_DEPTH slots: a piece may then
 * start when the piece that had its slot before was used. */
#ifndef EXECUTOR_TRANSPORTS_NODES_TRANSFER_H
#define EXECUTOR_TRANSPORTS_NODES_TRANSFER_H

#include "executor/ranks/ranks.h"
#include "executor/transports/nodes/wire.h"

enum {
	TRANSFER_PIECE = 64 << 10, /* elements */
	TRANSFER_DEPTH = 4,        /* pieces on their way */
};

struct transfer {
	int rank; /* the other one */
	bool sends;
	int64_t element_bytes;
	int64_t n;        /* elements */
	int multiplicity; /* arrays of n elements each: partial sums that are still apart */
	char *data;       /* NULL: pieces pass through slots */
	char *slots;
	int64_t at;   /* when sums are sent: the first element that is summed */
	int64_t used; /* pieces whose slot may be taken again; INT64_MAX without slots */
	/* private */
	int64_t started, done; /* pieces */
	bool opened, verified;
	int cursor; /* of the fold */
	double moved_at;
	struct post post; /* the sender's */
	struct wire_message header, messages[TRANSFER_DEPTH];
};

int64_t transfer_piece_elements(const struct transfer *t, int64_t piece);
int64_t transfer_piece_bytes(const struct transfer *t, int64_t piece);
char *transfer_piece_data(const struct transfer *t, int64_t piece);
int64_t transfer_slot_bytes(const struct transfer *t);

/* Begins to send or receive `post` if it has not begun; true when that is done. */
bool transfer_open(struct transfer *t, struct wire *wire);
/* May the next piece start now? A sender of slots fills it before transfer_start. */
bool transfer_may_start(const struct transfer *t);
void transfer_start(struct transfer *t, struct wire *wire);
/* Notes what the wire has finished. */
void transfer_reap(struct transfer *t);
bool transfer_finished(const struct transfer *t);

#endif
