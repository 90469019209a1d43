/* Compares a run of the fake GPU with its schedule. */
#include "trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/memory/memory.h"

enum { MOST_RANKS = 16, EVENTS_OF_DEVICE_TRANSPORT = 4 };

/* --- ranks --- */

/* The thread of a rank, and where it is in the schedule. */
struct rank {
	int thread;
	int streams[STREAM_COUNT], n_streams; /* device streams, in the order of enum stream */
	uint64_t arena, pinned; /* where the tiers of placement.h begin; 0 = not yet */
	uint64_t *events;       /* in the order in which they were made */
	int n_events;
	/* These belong to the pass that goes on. */
	int last, open; /* operation that has ended, that has begun; -1 = none */
	bool captured;
	int passes, calls, collectives;
	int (*waited)[STREAM_COUNT]; /* [STREAM_COUNT]: the last operation of another stream */
	bool *seen;                  /* [n_ops]: by the host */
	int (*pending)[64];          /* [STREAM_COUNT]: waits since the last operation there */
	int n_pending[STREAM_COUNT];
	bool *touched; /* [n_buffers]: by the operation that has begun */
};

struct checker {
	const struct schedule *schedule;
	const struct program *program;
	struct arena arena;
	struct addresses addresses;
	struct rank ranks[MOST_RANKS];
	int n_ranks, events_between; /* before those of graphs */
	struct trace_counts *counts;
	char *said;
};

static bool wrong(const struct checker *c, const struct rank *r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static bool wrong(const struct checker *c, const struct rank *r, const char *format, ...)
{
	va_list args;
	int n = snprintf(c->said, 256, "rank of thread %d, pass %d: ", r->thread, r->passes);

	va_start(args, format);
	vsnprintf(c->said + n, (size_t)(256 - n), format, args);
	va_end(args);
	return false;
}

static const struct op *op_at(const struct checker *c, int i)
{
	return &c->program->ops[i];
}

/* The next operation of a device's stream behind `i`; n_ops where there is none. */
static int next_on_device(const struct checker *c, int i)
{
	do
		i++;
	while (i < c->program->n_ops && op_at(c, i)->stream == STREAM_HOST);
	return i;
}

static void begin_pass(const struct checker *c, struct rank *r)
{
	r->last = r->open = -1;
	memset(r->waited, 0xff, STREAM_COUNT * sizeof(r->waited[0]));
	memset(r->seen, 0, (size_t)c->program->n_ops * sizeof(*r->seen));
	memset(r->n_pending, 0, sizeof(r->n_pending));
}

static struct rank *rank_of(struct checker *c, int thread)
{
	for (int i = 0; i < c->n_ranks; i++)
		if (c->ranks[i].thread == thread)
			return &c->ranks[i];
	return NULL;
}

static struct rank *new_rank(struct checker *c, int thread)
{
	struct rank *r = &c->ranks[c->n_ranks++];
	int n = c->program->n_ops;

	if (c->n_ranks > MOST_RANKS)
		abort();
	*r = (struct rank){.thread = thread};
	r->events = ARENA_ARRAY(&c->arena, uint64_t, 3 * n + 64);
	r->waited = arena_alloc(&c->arena, STREAM_COUNT, sizeof(r->waited[0]));
	r->pending = arena_alloc(&c->arena, STREAM_COUNT, sizeof(r->pending[0]));
	r->seen = ARENA_ARRAY(&c->arena, bool, n);
	r->touched = ARENA_ARRAY(&c->arena, bool, c->program->n_buffers);
	begin_pass(c, r);
	return r;
}

/* STREAM_COUNT: another one. */
static int stream_of(const struct rank *r, int stream)
{
	int s = 0;

	while (s < r->n_streams && r->streams[s] != stream)
		s++;
	return s < r->n_streams ? s : STREAM_COUNT;
}

/* --- what events stand for --- */

enum meaning { MEANS_OTHER, MEANS_START, MEANS_END, MEANS_LINK };

/* device_cuda_open makes a start and an end for each operation and two for the step; then come
 * those of the transport, and an edge of graphs for each operation. */
static enum meaning meaning_of(
	const struct checker *c, const struct rank *r, uint64_t event, int *op)
{
	int n = c->program->n_ops, i = r->n_events - 1;

	while (i >= 0 && r->events[i] != event)
		i--;
	*op = i / 2;
	if (i >= 0 && i < 2 * n)
		return i % 2 == 0 ? MEANS_START : MEANS_END;
	*op = i - 2 * n - 2 - c->events_between;
	return *op >= 0 && *op < n ? MEANS_LINK : MEANS_OTHER;
}

/* --- waits --- */

static bool lists(const struct checker *c, struct slice slice, int op)
{
	const int *list = slice_of(c->program, slice);

	for (int i = 0; i < slice.count; i++)
		if (list[i] == op)
			return true;
	return false;
}

/* A captured step waits on its streams where the host would, from there on. */
static bool may_wait(const struct checker *c, const struct rank *r, int op, int other)
{
	if (lists(c, op_at(c, op)->waits, other))
		return true;
	for (int i = 0; r->captured && i <= op; i++)
		if (lists(c, op_at(c, i)->host_waits, other))
			return true;
	return false;
}

static bool check_pending(const struct checker *c, struct rank *r, int op)
{
	enum stream s = op_at(c, op)->stream;

	for (int i = 0; i < r->n_pending[s]; i++)
		if (!may_wait(c, r, op, r->pending[s][i]))
			return wrong(c, r, "operation %d waits for %d, which it need not", op,
				r->pending[s][i]);
	r->n_pending[s] = 0;
	return true;
}

/* That stream has waited for it, or for a later one there. */
static bool has_waited(const struct checker *c, const struct rank *r, enum stream s, int other)
{
	enum stream t = op_at(c, other)->stream;

	return s == t || r->waited[s][t] >= other;
}

static bool check_waits(const struct checker *c, const struct rank *r, int op)
{
	const int *waits = slice_of(c->program, op_at(c, op)->waits);

	for (int i = 0; i < op_at(c, op)->waits.count; i++) {
		int other = waits[i];

		if (other < 0 || op_at(c, other)->stream == STREAM_HOST)
			continue; /* done before this step, or by the walking thread */
		if (!has_waited(c, r, op_at(c, op)->stream, other))
			return wrong(c, r, "operation %d does not wait for %d", op, other);
	}
	return true;
}

/* The host has seen what is in the slice. */
static bool check_seen(const struct checker *c, const struct rank *r, int op, struct slice slice)
{
	const int *waits = slice_of(c->program, slice);

	for (int i = 0; i < slice.count; i++) {
		int other = waits[i];
		bool done = other < 0 || op_at(c, other)->stream == STREAM_HOST || r->seen[other];

		if (!done && !(r->captured && has_waited(c, r, op_at(c, op)->stream, other)))
			return wrong(c, r, "the host does not wait for %d before %d", other, op);
	}
	return true;
}

/* Checks the host's order from behind the last operation to `op`, in list order; in a capture from
 * the start, as each stream waits for itself. */
static bool check_host(const struct checker *c, const struct rank *r, int op)
{
	for (int i = r->captured ? 0 : r->last + 1; i <= op; i++) {
		const struct op *o = op_at(c, i);

		if (!check_seen(c, r, op, o->host_waits) ||
			(o->stream == STREAM_HOST && !check_seen(c, r, op, o->waits)))
			return false;
	}
	return true;
}

/* --- memory --- */

/* Do the bytes belong to a buffer of the list? Those that do are marked. */
static bool mark_in(const struct checker *c, struct rank *r, struct slice slice, bool host,
	int64_t at, int64_t bytes)
{
	const int *list = slice_of(c->program, slice);
	bool found = false;

	for (int i = 0; i < slice.count; i++) {
		const struct buffer *b = &c->program->buffers[list[i]];
		int64_t start = c->addresses.offsets[list[i]];

		if (buffer_in_host(b) == host && at >= start && at + bytes <= start + b->bytes)
			found = r->touched[list[i]] = true;
	}
	return found;
}

/* The norm is learnt by the first update and given back by the last one, which lists it. */
static bool is_norm(const struct checker *c, const struct op *op, int64_t at, int64_t bytes)
{
	for (int i = 0; i < c->program->n_buffers && op->kind == OP_OPTIMIZER; i++) {
		const struct buffer *b = &c->program->buffers[i];

		if (b->role == BUFFER_NORM_SCALARS && at == c->addresses.offsets[i] &&
			bytes == b->bytes)
			return true;
	}
	return false;
}

/* Others' memory is the same buffer's, at the same place, and only read. */
static bool check_touch(struct checker *c, struct rank *r, const struct trace_touch *t)
{
	const struct op *op = op_at(c, r->open);

	for (int i = 0; i < c->n_ranks; i++) {
		const struct rank *of = &c->ranks[i];
		const struct {
			uint64_t base;
			int64_t bytes;
		} tiers[] = {{of->arena, c->addresses.device_bytes},
			{of->pinned, c->addresses.host_bytes}};

		for (int host = 0; host < 2; host++) {
			int64_t at = (int64_t)(t->address - tiers[host].base);

			if (tiers[host].base == 0 || at < 0 || at >= tiers[host].bytes)
				continue;
			if (of != r && (t->write || op_kind_class(op->kind) != OP_CLASS_COLLECTIVE))
				return wrong(c, r, "operation %d touches another rank's memory",
					r->open);
			bool uses = mark_in(c, r, op->uses, host, at, t->bytes);
			return mark_in(c, r, op->takes, host, at, t->bytes) || uses ||
			       (!host && !t->write && is_norm(c, op, at, t->bytes)) ||
			       wrong(c, r,
				       "operation %d (%s) %s %lld bytes of a buffer that is not "
				       "its own",
				       r->open, op_kind_name(op->kind),
				       t->write ? "writes" : "reads", (long long)t->bytes);
		}
	}
	return true; /* scalars, workspaces: no buffers of the schedule */
}

/* --- operations --- */

static bool start_op(struct checker *c, struct rank *r, int op, int stream)
{
	if (r->last >= 0 && next_on_device(c, r->last) == c->program->n_ops && op < r->last)
		begin_pass(c, r);
	if (r->open >= 0)
		return wrong(c, r, "operation %d begins inside of %d", op, r->open);
	if (op != next_on_device(c, r->last))
		return wrong(c, r, "operation %d comes behind %d", op, r->last);
	if (stream != (int)op_at(c, op)->stream)
		return wrong(c, r, "operation %d is not on its stream", op);
	if (r->last < 0)
		r->passes++;
	r->open = op;
	r->calls = r->collectives = 0;
	memset(r->touched, 0, (size_t)c->program->n_buffers * sizeof(*r->touched));
	return check_pending(c, r, op) && check_waits(c, r, op) && check_host(c, r, op);
}

static bool all_touched(const struct checker *c, const struct rank *r, const struct op *op)
{
	const int *uses = slice_of(c->program, op->uses);

	for (int i = 0; i < op->uses.count; i++)
		if (!r->touched[uses[i]])
			return wrong(c, r, "operation %d (%s) leaves a %s alone", r->open,
				op_kind_name(op->kind),
				buffer_role_name(c->program->buffers[uses[i]].role));
	return true;
}

/* What has been called for it. The rehearsal calls nothing, the warm-up no collective. */
static bool check_calls(const struct checker *c, const struct rank *r)
{
	const struct op *op = op_at(c, r->open);
	bool one = op->group >= 0 && c->schedule->groups[op->group].size == 1;

	switch (op_kind_class(op->kind)) {
	case OP_CLASS_COMPUTE:
		return r->calls > 0 || wrong(c, r, "operation %d computes nothing", r->open);
	case OP_CLASS_COLLECTIVE:
		if (one)
			return true;
		if (r->passes == 2)
			return r->collectives + r->calls == 0 ||
			       wrong(c, r, "operation %d moves something", r->open);
		return (r->collectives + r->calls > 0 && all_touched(c, r, op)) ||
		       wrong(c, r, "operation %d moves nothing", r->open);
	case OP_CLASS_COPY:
		return r->calls == 1 ? all_touched(c, r, op)
				     : wrong(c, r, "operation %d is %d copies", r->open, r->calls);
	case OP_CLASS_MARK:
		/* What is kept of resharded parameters is copied. */
		return r->calls == 0 || op->kind == OP_RESHARD ||
		       wrong(c, r, "operation %d is a mark", r->open);
	case OP_CLASS_MESSAGE:
		return wrong(c, r, "operation %d is a message", r->open);
	case OP_CLASS_TRAFFIC:
		return true; /* a shard may be all padding */
	}
	return true;
}

static bool end_op(struct checker *c, struct rank *r, int op, int stream)
{
	if (r->open != op || stream != (int)op_at(c, op)->stream)
		return wrong(c, r, "operation %d ends elsewhere", op);
	if (r->passes > 1 && !check_calls(c, r))
		return false;
	if (r->passes == 1 && r->calls + r->collectives > 0)
		return wrong(c, r, "operation %d is carried out in the rehearsal", op);
	r->last = op;
	r->open = -1;
	c->counts->operations++;
	return true;
}

/* --- lines --- */

static bool on_record(struct checker *c, struct rank *r, const struct trace_line *line)
{
	int op, stream = stream_of(r, line->stream);
	enum meaning meaning = meaning_of(c, r, line->what, &op);

	if (meaning == MEANS_START)
		return start_op(c, r, op, stream);
	if (meaning == MEANS_LINK && (op != r->open || stream != (int)op_at(c, op)->stream))
		return wrong(c, r, "the edge behind operation %d is elsewhere", op);
	return meaning != MEANS_END || end_op(c, r, op, stream);
}

static bool on_wait(struct checker *c, struct rank *r, const struct trace_line *line)
{
	int op, stream = stream_of(r, line->stream);
	enum meaning meaning = meaning_of(c, r, line->what, &op);

	if (meaning == MEANS_START)
		return wrong(c, r, "somebody waits for the start of operation %d", op);
	if (meaning == MEANS_OTHER || stream == STREAM_COUNT)
		return true;
	if (r->n_pending[stream] < COUNT_OF(r->pending[0]))
		r->pending[stream][r->n_pending[stream]++] = op;
	enum stream of = op_at(c, op)->stream;
	if (r->waited[stream][of] < op)
		r->waited[stream][of] = op;
	c->counts->waits++;
	return true;
}

static bool on_call(struct checker *c, struct rank *r, const struct trace_line *line)
{
	if (r->open < 0)
		return r->last < 0 || next_on_device(c, r->last) == c->program->n_ops ||
		       stream_of(r, line->stream) == STREAM_COUNT ||
		       wrong(c, r, "a call behind operation %d belongs to none", r->last);
	const struct op *op = op_at(c, r->open);

	if (stream_of(r, line->stream) != (int)op->stream)
		return wrong(c, r, "operation %d calls on another stream", r->open);
	if (line->kind == TRACE_COLLECTIVE &&
		(line->bytes != op->bytes || op->group < 0 ||
			line->members != (int)c->schedule->groups[op->group].size))
		return wrong(c, r, "operation %d is another collective", r->open);
	for (int i = 0; i < line->n_touches; i++)
		if (!check_touch(c, r, &line->touches[i]))
			return false;
	*(line->kind == TRACE_COLLECTIVE ? &r->collectives : &r->calls) += 1;
	c->counts->calls += line->kind == TRACE_CALL;
	c->counts->collectives += line->kind == TRACE_COLLECTIVE;
	return true;
}

static bool on_line(struct checker *c, struct rank *r, const struct trace_line *line)
{
	int op;

	switch (line->kind) {
	case TRACE_STREAM:
		if (r->n_streams < STREAM_HOST)
			r->streams[r->n_streams++] = line->stream;
		return true;
	case TRACE_EVENT:
		if (r->n_events < 3 * c->program->n_ops + 64)
			r->events[r->n_events++] = line->what;
		return true;
	case TRACE_DEVICE:
		r->arena = r->arena == 0 ? line->what : r->arena;
		return true;
	case TRACE_PINNED:
		r->pinned = r->pinned == 0 ? line->what : r->pinned;
		return true;
	case TRACE_RECORD:
		return on_record(c, r, line);
	case TRACE_WAIT:
		return on_wait(c, r, line);
	case TRACE_SEEN:
		if (meaning_of(c, r, line->what, &op) == MEANS_END)
			r->seen[op] = true;
		return true;
	case TRACE_CALL:
	case TRACE_COLLECTIVE:
		return on_call(c, r, line);
	case TRACE_CAPTURE:
		begin_pass(c, r);
		r->captured = true;
		return true;
	case TRACE_LAUNCH:
		r->captured = false;
		c->counts->graphs++;
		return true;
	case TRACE_ABORT:
	case TRACE_DESTROY:
		return true;
	}
	return true;
}

static bool check_end(const struct checker *c, const struct rank *r)
{
	if (next_on_device(c, r->last) != c->program->n_ops || r->open >= 0)
		return wrong(c, r, "the last operation is %d", r->last);
	return r->passes == c->ranks[0].passes || wrong(c, r, "%d passes", r->passes);
}

bool trace_follows(const struct trace *trace, const struct schedule *schedule, bool shared,
	struct trace_counts *counts, char said[256])
{
	struct checker c = {.schedule = schedule,
		.program = &schedule->programs[0],
		.events_between = shared ? EVENTS_OF_DEVICE_TRANSPORT : 0,
		.counts = counts,
		.said = said};
	bool ok = true;

	*counts = (struct trace_counts){0};
	said[0] = '\0';
	schedule_addresses(c.program, &c.arena, &c.addresses);
	for (int i = 0; i < trace->n && ok; i++) {
		const struct trace_line *line = &trace->lines[i];
		struct rank *r = rank_of(&c, line->thread);

		if (r == NULL && line->kind == TRACE_STREAM)
			r = new_rank(&c, line->thread);
		ok = r == NULL || on_line(&c, r, line);
	}
	for (int i = 0; i < c.n_ranks && ok; i++) {
		ok = check_end(&c, &c.ranks[i]);
		counts->passes += c.ranks[i].passes;
	}
	counts->ranks = c.n_ranks;
	arena_finish(&c.arena);
	return ok;
}
