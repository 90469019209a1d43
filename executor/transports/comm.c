/* What all transports share, and the two transports that need no other rank. */
#include "executor/transports/comm.h"

#include <string.h>

int64_t comm_element_bytes(enum comm_element element)
{
	static const int64_t bytes[] = {[COMM_FP32] = sizeof(float),
		[COMM_INT64] = sizeof(int64_t),
		[COMM_BYTE] = 1,
		[COMM_BF16] = 2};

	return bytes[element];
}

bool comm_element_is_float(enum comm_element element)
{
	return element == COMM_FP32 || element == COMM_BF16;
}

enum dtype comm_element_dtype(enum comm_element element)
{
	return element == COMM_BF16 ? DTYPE_BF16 : DTYPE_FP32;
}

struct comm_group comm_group_of(const struct group *group, int rank)
{
	int size = (int)group->size, stride = (int)group->stride;
	int index = rank / stride % size;

	return (struct comm_group){
		.first = rank - index * stride, .size = size, .stride = stride, .index = index};
}

bool comm_joins_programs(const struct comm *comm, const struct comm_group *group)
{
	int last = comm_group_rank(group, group->size - 1), n = comm->program_ranks;

	return n > 0 && group->first / n != last / n;
}

/* Returns the program that a rank runs, or NULL where it is not known. */
static const struct program *program_of(const struct comm *comm, int rank)
{
	if (comm->schedule == NULL)
		return NULL;
	return comm->schedule->programs +
	       (comm->program_ranks > 0 ? rank / comm->program_ranks : 0);
}

void comm_tell_unit(const struct comm *comm, int rank, int unit, struct text *text)
{
	const struct program *program = program_of(comm, rank);

	if (unit >= 0 && program != NULL && unit < program->n_units)
		text_printf(text, " of %s", program->units[unit].name);
	else if (unit >= 0)
		text_printf(text, " of unit %d", unit);
}

void comm_tell_operation(const struct comm *comm, int rank, int op, struct text *text)
{
	const struct program *program = program_of(comm, rank);

	if (op < 0)
		return;
	text_printf(text, "operation %d", op);
	if (program == NULL || op >= program->n_ops)
		return;
	text_printf(text, ", %s", op_kind_name(program->ops[op].kind));
	comm_tell_unit(comm, rank, program->ops[op].unit, text);
}

static struct collective patient(const struct comm *comm, const struct collective *collective)
{
	struct collective c = *collective;

	c.patience = comm->patience > c.patience ? comm->patience : c.patience;
	return c;
}

bool comm_run(struct comm *comm, const struct collective *collective)
{
	const struct collective c = patient(comm, collective);
	int64_t before = comm->counters.wire_bytes;

	comm->counters.collectives[collective->kind]++;
	comm->assembled = 0;
	bool ok = comm->transport->run(comm, &c);
	if (c.sends != NULL)
		comm->counters.row_bytes += comm->counters.wire_bytes - before;
	return ok;
}

bool comm_send(struct comm *comm, const struct comm_message *message)
{
	comm->counters.wire_bytes += message->of.count;
	return comm->transport->send(comm, message);
}

bool comm_receive(struct comm *comm, const struct comm_message *message)
{
	struct comm_message m = *message;

	m.of = patient(comm, &message->of);
	comm->assembled = 0;
	return comm->transport->receive(comm, &m);
}

bool comm_exchange(struct comm *comm, const void *input, void *output, int64_t bytes)
{
	return comm_exchange_within(comm, input, output, bytes, 0);
}

bool comm_exchange_within(
	struct comm *comm, const void *input, void *output, int64_t bytes, double patience)
{
	struct comm_counters before = comm->counters;
	bool ok = comm_run(comm, &(struct collective){.kind = COLLECTIVE_ALL_GATHER,
					 .element = COMM_BYTE,
					 .group = {.first = 0,
						 .size = comm->ranks,
						 .stride = 1,
						 .index = comm->rank},
					 .count = bytes,
					 .input = input,
					 .output = output,
					 .step = -1,
					 .op = -1,
					 .unit = -1,
					 .patience = patience});

	/* This was no operation of the schedule, and the counters are only about those. */
	comm->counters = before;
	return ok;
}

void comm_close(struct comm *comm)
{
	if (comm->transport != NULL && comm->transport->finish != NULL)
		comm->transport->finish(comm);
	*comm = (struct comm){0};
}

static bool null_run(struct comm *comm, const struct collective *c)
{
	(void)comm;
	(void)c;
	return true;
}

static bool null_message(struct comm *comm, const struct comm_message *m)
{
	(void)comm;
	(void)m;
	return true;
}

/* Any number will do, since nothing waits. */
static uint32_t null_taken(struct comm *comm, enum direction direction)
{
	(void)comm;
	(void)direction;
	return UINT32_MAX;
}

static const struct transport transport_null = {.name = "null",
	.run = null_run,
	.send = null_message,
	.receive = null_message,
	.taken = null_taken};

void comm_open_null(struct comm *comm, int rank, int ranks)
{
	*comm = (struct comm){.transport = &transport_null,
		.rank = rank,
		.ranks = ranks,
		.fault = {.rank = -1, .step = -1}};
}
