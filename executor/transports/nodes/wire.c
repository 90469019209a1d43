#include "executor/transports/nodes/wire.h"

#include <stddef.h>

static struct wire_message message_of(const void *data, int64_t bytes)
{
	return (struct wire_message){.data = (char *)data, .bytes = bytes};
}

void wire_send(struct wire *wire, int rank, enum wire_channel channel, const void *data,
	int64_t bytes, struct wire_message *message)
{
	*message = message_of(data, bytes);
	wire->kind->send(wire, rank, channel, message);
}

void wire_receive(struct wire *wire, int rank, enum wire_channel channel, void *data, int64_t bytes,
	struct wire_message *message)
{
	*message = message_of(data, bytes);
	wire->kind->receive(wire, rank, channel, message);
}

bool wire_progress(struct wire *wire, double seconds, struct error *error)
{
	return wire->kind->progress(wire, seconds, error);
}

void wire_finish(struct wire *wire)
{
	if (wire->kind != NULL)
		wire->kind->finish(wire);
	*wire = (struct wire){0};
}
