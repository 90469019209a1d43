#include "executor/interpreter/interpreter.h"

#include "executor/compute/compute.h"

#include <string.h>
#include <time.h>

enum { LEAKED_BYTES = 1 << 20 };

/* Waits for operation w of this step, or for n_ops + w of the step before when w < 0. Events count
 * passes, which are steps from 1: the step before the first one is pass 0, and every event begins
 * with that value. */
static bool wait_finished(struct interpreter *in, int w)
{
	int op = w >= 0 ? w : in->program->n_ops + w;
	uint32_t pass = w >= 0 ? in->pass : in->pass - 1;

	return event_wait(&in->finished[op], pass, &in->patience) == EVENT_REACHED;
}

static bool is_collective(const struct interpreter *in, int index)
{
	return op_kind_class(in->program->ops[index].kind) == OP_CLASS_COLLECTIVE;
}

static bool is_message(const struct interpreter *in, int index)
{
	return op_kind_class(in->program->ops[index].kind) == OP_CLASS_MESSAGE;
}

/* The communication thread has collectives, messages, all that follows them on their streams (such
 * as adding up what they have reduced), and copies between device and host memory. The walking
 * thread has compute and the operations of the host stream. */
static bool belongs_to_thread(const struct interpreter *in, int index)
{
	enum stream stream = in->program->ops[index].stream;

	return in->backend.asynchronous == NULL &&
	       (is_collective(in, index) || (stream != STREAM_COMPUTE && stream != STREAM_HOST));
}

static bool wait_all(struct interpreter *in, struct slice waits)
{
	const int *list = slice_of(in->program, waits);

	for (int i = 0; i < waits.count; i++)
		if (!wait_finished(in, list[i]))
			return false;
	return true;
}

static double now(const struct interpreter *in)
{
	return clock_now() - in->start;
}

static void finish(struct interpreter *in, int op)
{
	in->timeline.spans[op].end = now(in);
	event_set(&in->finished[op], in->pass);
}

/* --- collectives, in the communication thread --- */

/* For each kind of operation: is its input, and its output, the data of the whole group? Else it is
 * one rank's part, or what a rank sends to the next one. */
static const struct collective_form {
	enum collective_kind kind;
	bool whole_in, whole_out;
} forms[OP_KIND_COUNT] = {
	[OP_ALL_GATHER] = {COLLECTIVE_ALL_GATHER, false, true},
	[OP_REDUCE_SCATTER] = {COLLECTIVE_REDUCE_SCATTER, true, false},
	[OP_ALL_REDUCE] = {COLLECTIVE_ALL_REDUCE, true, true},
	[OP_ALL_TO_ALL] = {COLLECTIVE_ALL_TO_ALL, true, true},
	[OP_SEND_RECV] = {COLLECTIVE_SEND_RECV, false, false},
};

/* Does the output overwrite the input? */
static bool is_in_place(const struct op *op)
{
	return op->kind == OP_ALL_REDUCE;
}

static enum comm_element element_type_of(const struct interpreter *in, const int *uses)
{
	const struct buffer *buffer = &in->program->buffers[uses[0]];

	if (buffer->role == BUFFER_NORM_SCALARS || buffer->dtype == DTYPE_INT64)
		return COMM_INT64; /* digits, or exact sums */
	return buffer->dtype == DTYPE_BF16 ? COMM_BF16 : COMM_FP32;
}

/* Returns the seconds for which the device has to hold back what follows the operation, so that it
 * lasts as long as predicted. The host itself holds the operations of its own stream. */
static double held_on_device(const struct interpreter *in, int index)
{
	bool on_device =
		in->backend.asynchronous != NULL && in->program->ops[index].stream != STREAM_HOST;

	return on_device && in->expected != NULL && !in->rehearsal ? in->expected->held[index] : 0;
}

/* True for an exchange of rows between experts. How many go to each rank is known only in the
 * step. */
static bool exchanges_rows(const struct interpreter *in, int index)
{
	const struct op *op = &in->program->ops[index];

	return op->kind == OP_ALL_TO_ALL && in->schedule->groups[op->group].kind == GROUP_EXPERT;
}

/* The address of an operand. The input of an exchange between tensor ranks is only a part of its
 * buffer, which the backend finds. */
static void *operand_of(const struct interpreter *in, int index, int use)
{
	const struct op *op = &in->program->ops[index];
	/* Before the first step there are no buffers. */
	bool part = use == 0 && op_exchanges(op) && !exchanges_rows(in, index) &&
		    in->backend.exchanged != NULL && in->pass > 0;

	return part ? in->backend.exchanged(in->backend.data, index)
		    : buffers_address(in->buffers, slice_of(in->program, op->uses)[use]);
}

static void fill_collective(const struct interpreter *in, int index, struct collective *c)
{
	const struct op *op = &in->program->ops[index];
	const int *uses = slice_of(in->program, op->uses);
	bool in_place = is_in_place(op);

	*c = (struct collective){.kind = forms[op->kind].kind,
		.element = element_type_of(in, uses),
		.group = comm_group_of(&in->schedule->groups[op->group], in->comm->rank),
		.input = operand_of(in, index, 0),
		.output = operand_of(in, index, in_place ? 0 : op->uses.count - 1),
		.step = in->step,
		.op = index,
		.unit = op->unit,
		.group_index = op->group,
		.patience = in->expected != NULL ? in->expected->patience[index] : 0};
	/* This program's prediction does not say how long other programs may take. */
	if (comm_joins_programs(in->comm, &c->group))
		c->patience = 0;
	if (in->backend.asynchronous != NULL)
		c->stream = in->backend.asynchronous->stream(in->backend.device, op->stream);
	if (held_on_device(in, index) > 0)
		c->clock = in->backend.asynchronous->clock(in->backend.device, index);
	c->count = op->bytes / comm_element_bytes(c->element);
	if (!in_place && op->kind != OP_SEND_RECV)
		c->count /= c->group.size;
}

/* Checks once, before the first step, that the buffers are as large as the collective says. */
static bool check_collective(const struct interpreter *in, int index, struct error *error)
{
	const struct op *op = &in->program->ops[index];
	const int *uses = slice_of(in->program, op->uses);
	bool in_place = is_in_place(op);
	struct collective c;

	if (op->uses.count < (in_place ? 1 : 2) || op->group < 0)
		return error_set(error, EXIT_CODE_INTERNAL, "operation %d (%s) lacks operands",
			index, op_kind_name(op->kind));
	if (exchanges_rows(in, index))
		return true;
	fill_collective(in, index, &c);
	int64_t chunk = c.count * comm_element_bytes(c.element), whole = chunk * c.group.size;
	int64_t in_bytes = forms[op->kind].whole_in && !in_place ? whole : chunk;
	int64_t out_bytes = forms[op->kind].whole_out && !in_place ? whole : chunk;
	if (in->program->buffers[uses[0]].bytes < in_bytes ||
		in->program->buffers[uses[in_place ? 0 : op->uses.count - 1]].bytes < out_bytes)
		return error_set(error, EXIT_CODE_INTERNAL,
			"operation %d (%s of %lld bytes) is larger than its buffers", index,
			op_kind_name(op->kind), (long long)op->bytes);
	return true;
}

static bool run_rows(struct interpreter *in, int index, struct collective *c, struct error *error)
{
	const struct backend *backend = &in->backend;
	struct row_exchange exchange = {0};

	if (!backend->begin_rows(backend->data, index, &exchange, error))
		return false;
	c->input = exchange.input;
	c->output = exchange.output;
	c->sends = exchange.sends;
	c->receives = exchange.receives;
	return comm_run(in->comm, c) && backend->end_rows(backend->data, index, &exchange, error);
}

static bool run_collective(struct interpreter *in, int index, struct error *error)
{
	struct collective c;

	fill_collective(in, index, &c);
	if (in->rehearsal)
		return true;
	return exchanges_rows(in, index) && in->backend.begin_rows != NULL
		       ? run_rows(in, index, &c, error)
		       : comm_run(in->comm, &c);
}

/* --- messages, in the communication thread --- */

static struct comm_message message_of(const struct interpreter *in, int index)
{
	const struct op *op = &in->program->ops[index];
	void *data = buffers_address(in->buffers, slice_of(in->program, op->uses)[0]);
	bool sends = op->kind == OP_SEND;
	int ranks = in->comm->program_ranks;
	int own = in->comm->rank, other = op->message.peer * ranks + own % ranks;
	int sender = sends ? own : other;

	return (struct comm_message){.of = {.kind = COLLECTIVE_SEND_RECV,
					     .element = COMM_BYTE,
					     .group = {.first = sender,
						     .size = 2,
						     .stride = (sends ? other : own) - sender,
						     .index = !sends},
					     .count = op->bytes,
					     .input = sends ? data : NULL,
					     .output = sends ? NULL : data,
					     .step = in->step,
					     .op = index,
					     .unit = -1},
		.direction = op->message.direction,
		.micro_batch = op->micro_batch,
		.chunk = op->message.chunk};
}

/* A send ends when its receiver has the message. */
static void end_sends(struct interpreter *in)
{
	for (int d = 0; d < BOARD_DIRECTIONS; d++) {
		struct sends *sends = &in->sends[d];

		if (sends->taken == sends->n)
			continue;
		uint32_t taken = in->comm->transport->taken(in->comm, (enum direction)d);
		for (; sends->taken < sends->n && taken - sends->before > (uint32_t)sends->taken;
			sends->taken++)
			event_set(&in->finished[sends->ops[sends->taken]], sends->pass);
	}
}

static void note_send(struct interpreter *in, enum direction direction, int index)
{
	struct sends *sends = &in->sends[direction];

	if (sends->pass != in->pass) {
		sends->before += (uint32_t)sends->n;
		sends->n = sends->taken = 0;
		sends->pass = in->pass;
	}
	sends->ops[sends->n++] = index;
}

/* A rehearsal sends and receives nothing. */
static bool run_message(struct interpreter *in, int index)
{
	const struct comm_message message = message_of(in, index);

	if (in->rehearsal)
		return true;
	if (in->program->ops[index].kind == OP_RECV)
		return comm_receive(in->comm, &message);
	note_send(in, message.direction, index);
	return comm_send(in->comm, &message);
}

static bool move_messages(void *data)
{
	static const double nap = 1e-3;
	struct interpreter *in = data;
	const struct transport *transport = in->comm->transport;
	bool moves = transport->progress != NULL && transport->progress(in->comm, nap);

	end_sends(in);
	return moves;
}

/* The communication thread has no caller to return an error to: it stops the whole rank. */
static bool fail_in_thread(struct interpreter *in, const struct error *error)
{
	if (error->message[0] != '\0')
		in->thread_error = *error;
	atomic_store(&in->stop, 1);
	return false;
}

/* Lets an operation last as long as predicted. A collective or a message begins when all members
 * have come to it. */
static void hold(struct interpreter *in, int index, struct pace_tally *tally)
{
	double start = in->start + in->timeline.spans[index].start;

	if (in->expected == NULL || in->rehearsal)
		return;
	if ((is_collective(in, index) || is_message(in, index)) && in->comm->assembled > start)
		start = in->comm->assembled;
	expectation_hold(in->expected, index, start, &in->stop, tally);
}

/* For a SEND this ends only the time of the operation: end_sends says when the message is there. */
static void end_in_thread(struct interpreter *in, int index)
{
	end_sends(in);
	hold(in, index, &in->thread_tally);
	if (in->program->ops[index].kind == OP_SEND && !in->rehearsal)
		in->timeline.spans[index].end = now(in);
	else
		finish(in, index);
}

static bool run_in_thread(void *data, int index)
{
	struct interpreter *in = data;
	struct error error = {0};
	bool ok;

	if (!wait_all(in, in->program->ops[index].waits))
		return fail_in_thread(in, &error);
	if (in->fault.kind == FAULT_DROP_WAIT)
		nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
	in->timeline.spans[index].start = now(in);
	if (is_collective(in, index))
		ok = run_collective(in, index, &error);
	else if (is_message(in, index))
		ok = run_message(in, index);
	else
		ok = in->backend.run(in->backend.data, index, &error);
	if (!ok)
		return fail_in_thread(in, &error);
	end_in_thread(in, index);
	return true;
}

/* --- memory --- */

static bool take_all(struct interpreter *in, const struct op *op, struct error *error)
{
	const int *takes = slice_of(in->program, op->takes);

	for (int i = 0; i < op->takes.count; i++)
		if (!buffers_take(in->buffers, takes[i], error))
			return false;
	return true;
}

static void release_all(struct interpreter *in, const struct op *op)
{
	const int *gives = slice_of(in->program, op->gives);

	for (int i = 0; i < op->gives.count; i++)
		buffers_release(in->buffers, gives[i]);
}

/* Buffers that operations of the communication thread give back become reusable when these have
 * finished, in issue order. A message that is not received yet does not hold up later operations.
 */
static void release_pending(struct interpreter *in)
{
	for (int i = in->first_pending; i < in->n_pending; i++) {
		int op = in->pending[i];

		if (op >= 0 && event_reached(&in->finished[op], in->pass)) {
			release_all(in, &in->program->ops[op]);
			in->pending[i] = -1;
		} else if (op >= 0 && in->program->ops[op].kind != OP_SEND) {
			return;
		}
		if (i == in->first_pending && in->pending[i] < 0)
			in->first_pending++;
	}
}

/* The ledger of an operation counts its takes and not yet its gives, in list order. */
static void record_ledger(struct interpreter *in, int index)
{
	const struct op *op = &in->program->ops[index];
	const int *gives = slice_of(in->program, op->gives);

	memcpy(in->timeline.live[index], in->buffers->ledger, sizeof(in->timeline.live[0]));
	for (int i = 0; i < op->gives.count; i++)
		buffers_give(in->buffers, gives[i]);
}

/* FAULT_LEDGER_LEAK: memory of the rank that no buffer of the schedule stands for. */
static bool leak(struct interpreter *in, int index, struct error *error)
{
	if (index != in->program->n_ops / 2 ||
		!fault_hits(&in->fault, FAULT_LEDGER_LEAK, in->comm->rank, in->step))
		return true;
	in->leaked = heap_take(&in->buffers->heap, LEAKED_BYTES, error);
	in->buffers->ledger[CATEGORY_TEMPORARY_BUFFERS] += LEAKED_BYTES;
	return in->leaked >= 0;
}

static void plug_leak(struct interpreter *in)
{
	if (in->leaked < 0)
		return;
	heap_give(&in->buffers->heap, in->leaked);
	in->buffers->ledger[CATEGORY_TEMPORARY_BUFFERS] -= LEAKED_BYTES;
	in->leaked = -1;
}

/* --- the walk --- */

static bool wait_host(struct interpreter *in, const struct op *op, struct error *error)
{
	const int *waits = slice_of(in->program, op->host_waits);
	const struct device_ops *device = in->backend.asynchronous;

	for (int i = 0; i < op->host_waits.count; i++) {
		if (device == NULL && !wait_finished(in, waits[i]))
			return false;
		if (device != NULL && waits[i] >= 0 &&
			!device->wait(in->backend.device, waits[i], error))
			return false;
	}
	return true;
}

static bool run_here(struct interpreter *in, int index, struct error *error)
{
	in->timeline.spans[index].start = now(in);
	if (!in->backend.run(in->backend.data, index, error))
		return false;
	hold(in, index, &in->tally);
	finish(in, index);
	/* The fault breaks values, not memory: what it gives back stays until all that was issued
	 * before has finished. */
	if (in->fault.kind == FAULT_DROP_WAIT)
		in->pending[in->n_pending++] = index;
	else
		release_all(in, &in->program->ops[index]);
	return true;
}

/* Enqueued on the device. What the operation gives back can be used again at once: the device's
 * placement gives two buffers one address only where the schedule orders them.
 */
static bool enqueue(struct interpreter *in, int index, struct error *error)
{
	const struct device_ops *device = in->backend.asynchronous;
	bool collective = is_collective(in, index);
	double held = held_on_device(in, index);
	void *data = in->backend.device;

	if (!device->begin(data, index, error))
		return false;
	in->timeline.spans[index].start = now(in);
	if (held > 0 && !collective && !device->start(data, index, error))
		return false;
	bool ok = collective ? run_collective(in, index, error)
			     : in->backend.run(in->backend.data, index, error);
	if (!ok || (held > 0 && !device->hold(data, index, held, error)))
		return false;
	if (in->program->ops[index].stream == STREAM_HOST)
		hold(in, index, &in->tally);
	if (!device->end(data, index, error))
		return false;
	release_all(in, &in->program->ops[index]);
	return true;
}

/* What the issuing thread carries out takes memory when it starts: what it waits for may have given
 * some back. */
static bool issue(struct interpreter *in, int index, struct error *error)
{
	const struct op *op = &in->program->ops[index];
	bool here = in->backend.asynchronous == NULL && !belongs_to_thread(in, index);

	if (in->board_op != NULL)
		atomic_store_explicit(in->board_op, index, memory_order_relaxed);
	if (!wait_host(in, op, error))
		return false;
	in->timeline.spans[index].issued = now(in);
	if (here && in->fault.kind != FAULT_DROP_WAIT && !wait_all(in, op->waits))
		return false;
	release_pending(in);
	if (!take_all(in, op, error) || !leak(in, index, error))
		return false;
	record_ledger(in, index);
	if (in->backend.asynchronous != NULL)
		return enqueue(in, index, error);
	if (here)
		return run_here(in, index, error);
	in->pending[in->n_pending++] = index;
	comm_thread_push(&in->thread, index);
	return true;
}

/* Counts by how much operations on the device were later than predicted, which is known when the
 * step has ended. */
static void count_late(struct interpreter *in)
{
	for (int i = 0; i < in->program->n_ops; i++)
		if (held_on_device(in, i) > 0)
			expectation_count(
				in->backend.asynchronous->late(in->backend.device, i), &in->tally);
}

static bool drain(struct interpreter *in, struct error *error)
{
	const struct device_ops *device = in->backend.asynchronous;

	if (device != NULL && !device->end_step(in->backend.device, in->timeline.spans, error))
		return false;
	count_late(in);
	if (in->last_in_thread >= 0 && !wait_finished(in, in->last_in_thread))
		return false;
	for (int i = 0; i < in->program->n_ops && device == NULL; i++)
		if (in->program->ops[i].kind == OP_SEND && !wait_finished(in, i))
			return false;
	release_pending(in);
	plug_leak(in);
	return true;
}

/* Adds `times` times b to a, counter by counter. */
static struct comm_counters add_counters(
	struct comm_counters a, const struct comm_counters *b, int times)
{
	a.wire_bytes += times * b->wire_bytes;
	a.network_bytes += times * b->network_bytes;
	a.row_bytes += times * b->row_bytes;
	for (int k = 0; k < COUNT_OF(a.collectives); k++)
		a.collectives[k] += times * b->collectives[k];
	return a;
}

/* The transport sees nothing of a step that is one launch, which moves what the last walked step
 * has moved. */
static void count_collectives(
	struct interpreter *in, const struct comm_counters *before, bool walked)
{
	if (walked)
		in->moved = add_counters(in->comm->counters, before, -1);
	else
		in->comm->counters = add_counters(in->comm->counters, &in->moved, 1);
}

bool interpret_step(struct interpreter *in, int64_t step, bool rehearsal, struct error *error)
{
	in->pass++;
	in->step = step;
	in->rehearsal = rehearsal;
	in->n_pending = in->first_pending = 0;
	in->start = clock_now();
	if (in->board_step != NULL)
		atomic_store_explicit(in->board_step, (int32_t)step, memory_order_relaxed);
	const struct device_ops *device = in->backend.asynchronous;
	const struct comm_counters before = in->comm->counters;
	bool walk = true;
	bool ok = device == NULL || device->begin_step(in->backend.device, rehearsal, &walk, error);
	if (!walk && in->board_op != NULL)
		atomic_store_explicit(in->board_op, -1, memory_order_relaxed);
	for (int i = 0; i < in->program->n_ops && ok && walk; i++)
		ok = issue(in, i, error);
	ok = ok && drain(in, error);
	/* The communication thread counts too, until the step has been drained. */
	if (ok)
		count_collectives(in, &before, walk);
	if (!ok && atomic_load(&in->stop) && in->thread_error.message[0] != '\0')
		error_set(error, in->thread_error.code, "%s", in->thread_error.message);
	atomic_store(&in->stop, !ok);
	return ok;
}

bool interpreter_open(struct interpreter *in, struct error *error)
{
	int n = in->program->n_ops;

	timeline_init(&in->timeline, n, &in->arena);
	in->finished = ARENA_ARRAY(&in->arena, struct event, n);
	in->pending = ARENA_ARRAY(&in->arena, int, n);
	in->last_in_thread = in->leaked = -1;
	for (int d = 0; d < BOARD_DIRECTIONS; d++)
		in->sends[d].ops = ARENA_ARRAY(&in->arena, int, n);
	for (int i = 0; i < n; i++) {
		if (is_collective(in, i) && !check_collective(in, i, error))
			return false;
		if (belongs_to_thread(in, i))
			in->last_in_thread = i;
	}
	in->patience = (struct patience){.abort = &in->stop};
	in->thread = (struct comm_thread){
		.run = run_in_thread, .idle = move_messages, .data = in, .patience = &in->patience};
	return comm_thread_start(&in->thread, n, error);
}

void interpreter_close(struct interpreter *in)
{
	comm_thread_stop(&in->thread);
	arena_finish(&in->arena);
}
