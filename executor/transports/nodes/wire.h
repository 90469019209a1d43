/* Private to transports: messages between ranks of different machines.
 *
 * In each channel the messages between two ranks arrive in the order in which they were sent. A
 * receive takes the next one, whose size the receiver knows. Only wire_progress blocks, and it
 * sleeps meanwhile. One thread uses a wire. */
#ifndef EXECUTOR_TRANSPORTS_NODES_WIRE_H
#define EXECUTOR_TRANSPORTS_NODES_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct wire;

/* A message on its way. The wire uses this struct and the data until `done`. */
struct wire_message {
	bool done;
	/* private */
	char *data;
	int64_t bytes, moved;
	struct wire_message *next;
};

/* Messages of one channel keep their order and do not wait for those of another: collectives have
 * one, and messages of a pipeline one for each direction. */
enum wire_channel { WIRE_COLLECTIVES, WIRE_FORWARD, WIRE_BACKWARD };

struct wire_kind {
	const char *name;
	void (*send)(struct wire *wire, int rank, enum wire_channel channel,
		struct wire_message *message);
	void (*receive)(struct wire *wire, int rank, enum wire_channel channel,
		struct wire_message *message);
	/* Moves what can be moved; when that is nothing, sleeps for at most `seconds`. False when
	 * a connection broke. */
	bool (*progress)(struct wire *wire, double seconds, struct error *error);
	void (*finish)(struct wire *wire);
};

struct wire {
	const struct wire_kind *kind;
	void *state;
};

/* `data` may be read until the message is done. */
void wire_send(struct wire *wire, int rank, enum wire_channel channel, const void *data,
	int64_t bytes, struct wire_message *message);
void wire_receive(struct wire *wire, int rank, enum wire_channel channel, void *data, int64_t bytes,
	struct wire_message *message);
bool wire_progress(struct wire *wire, double seconds, struct error *error);
void wire_finish(struct wire *wire);

/* Over connected stream sockets: fds[r] leads to rank r, -1 where no message goes. The wire closes
 * them. */
bool wire_open_sockets(struct wire *wire, const int *fds, int ranks, struct error *error);

#endif
