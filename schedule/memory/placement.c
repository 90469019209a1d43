/* Where the buffers of a program lie on a device. */
#include <stdlib.h>
#include <string.h>

#include "schedule/memory/memory.h"

/* --- order --- */

/* Says what happens before what: by the order of streams, by the waits of the schedule, and by the
 * issuing thread, which blocks for host_waits and carries out the host's stream itself. */
struct happens_before {
	const struct program *program;
	int32_t (*clocks)[STREAM_COUNT]; /* [n_ops]: the last operation of each stream, or -1 */
};

static void join(int32_t *into, const int32_t *from)
{
	for (int s = 0; s < STREAM_COUNT; s++)
		into[s] = into[s] > from[s] ? into[s] : from[s];
}

static void join_waits(const struct happens_before *order, const struct slice waits, int32_t *clock)
{
	const int *list = slice_of(order->program, waits);

	for (int i = 0; i < waits.count; i++)
		if (list[i] >= 0) /* the step before has ended */
			join(clock, order->clocks[list[i]]);
}

static void happens_before_make(
	const struct program *program, struct arena *arena, struct happens_before *order)
{
	int32_t host[STREAM_COUNT], streams[STREAM_COUNT][STREAM_COUNT];

	*order = (struct happens_before){.program = program};
	order->clocks = arena_alloc(arena, (size_t)program->n_ops + 1, sizeof(order->clocks[0]));
	memset(host, 0xff, sizeof(host));
	memset(streams, 0xff, sizeof(streams));
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		int32_t *clock = order->clocks[i];

		join_waits(order, op->host_waits, host);
		memcpy(clock, host, sizeof(host));
		join(clock, streams[op->stream]);
		join_waits(order, op->waits, clock);
		clock[op->stream] = i;
		memcpy(streams[op->stream], clock, sizeof(host));
		if (op->stream == STREAM_HOST)
			memcpy(host, clock, sizeof(host));
	}
}

/* True when `first`, an operation of `stream`, has finished before `then` starts. */
static inline bool happens_before(
	const struct happens_before *order, int first, enum stream stream, int then)
{
	return first != then && order->clocks[then][stream] >= first;
}

/* --- addresses --- */

struct lifetime {
	int buffer;
	int take, give; /* operations; -1: none, it keeps its place to itself */
	enum stream given_on;
	int64_t bytes;
	bool host;
};

/* Buffers that begin at the same offset, so that no two of them are there at once: each is given
 * back before the next one is taken. Empty: buffers beside each other that keep their places. */
struct slot {
	int64_t start, end; /* of the longest */
	struct lifetime *chain;
	int n, room;
};

struct placer {
	struct arena *arena;
	struct happens_before order;
	struct lifetime *all; /* the largest first */
	int n;
	struct slot *slots; /* by offset */
	int n_slots;
	int64_t *offsets; /* [buffer] */
};

static void find_lifetimes(const struct program *program, struct lifetime *all)
{
	for (int b = 0; b < program->n_buffers; b++)
		all[b] = (struct lifetime){.buffer = b,
			.take = -1,
			.give = -1,
			.bytes = round_up(
				max_i64(program->buffers[b].bytes, 1), PLACEMENT_ALIGNMENT),
			.host = buffer_in_host(&program->buffers[b])};
	for (int i = 0; i < program->n_ops; i++) {
		const int *takes = slice_of(program, program->ops[i].takes);
		const int *gives = slice_of(program, program->ops[i].gives);

		for (int k = 0; k < program->ops[i].takes.count; k++)
			all[takes[k]].take = i;
		for (int k = 0; k < program->ops[i].gives.count; k++) {
			all[gives[k]].give = i;
			all[gives[k]].given_on = program->ops[i].stream;
		}
	}
}

static bool stays(const struct lifetime *life)
{
	return life->take < 0 || life->give < 0;
}

/* Sorts the largest first, and of equals the one taken first. */
static int by_size(const void *left, const void *right)
{
	const struct lifetime *a = left, *b = right;

	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	if (a->take != b->take)
		return a->take < b->take ? -1 : 1;
	return a->buffer - b->buffer;
}

/* The first of a chain that is taken after an operation. */
static int first_after(const struct slot *slot, int op)
{
	int from = 0, to = slot->n;

	while (from < to) {
		int middle = (from + to) / 2;
		if (slot->chain[middle].take > op)
			to = middle;
		else
			from = middle + 1;
	}
	return from;
}

/* The end of the bytes of a slot that the buffer may not share; 0: it may share all of them. Those
 * that it may not share are neighbours in the chain. */
static int64_t end_of_others(
	const struct placer *p, const struct slot *slot, const struct lifetime *life)
{
	int64_t bytes = 0;

	if (slot->n == 0 || stays(life))
		return slot->end;
	int next = first_after(slot, life->take);
	for (int i = next - 1; i >= 0; i--) {
		const struct lifetime *before = &slot->chain[i];
		if (happens_before(&p->order, before->give, before->given_on, life->take))
			break;
		bytes = max_i64(bytes, slot->chain[i].bytes);
	}
	for (int i = next; i < slot->n; i++) {
		if (happens_before(&p->order, life->give, life->given_on, slot->chain[i].take))
			break;
		bytes = max_i64(bytes, slot->chain[i].bytes);
	}
	return bytes > 0 ? slot->start + bytes : 0;
}

/* Finds the lowest offset at which the buffer overlaps none with which it may not share. */
static int64_t lowest(const struct placer *p, const struct lifetime *life)
{
	int64_t at = 0;

	for (int i = 0; i < p->n_slots && p->slots[i].start < at + life->bytes; i++)
		if (p->slots[i].end > at)
			at = max_i64(at, end_of_others(p, &p->slots[i], life));
	return at;
}

static void add_slot(struct placer *p, int position, int64_t at)
{
	memmove(p->slots + position + 1, p->slots + position,
		(size_t)(p->n_slots - position) * sizeof(*p->slots));
	p->slots[position] = (struct slot){.start = at, .end = at};
	p->n_slots++;
}

static void add_to_chain(struct slot *slot, const struct lifetime *life, struct arena *arena)
{
	int position = first_after(slot, life->take);

	if (slot->n == slot->room) {
		struct lifetime *old = slot->chain;
		slot->room = slot->room > 0 ? 2 * slot->room : 1;
		slot->chain = ARENA_ARRAY(arena, struct lifetime, slot->room);
		if (slot->n > 0)
			memcpy(slot->chain, old, (size_t)slot->n * sizeof(*old));
	}
	memmove(slot->chain + position + 1, slot->chain + position,
		(size_t)(slot->n - position) * sizeof(*life));
	slot->chain[position] = *life;
	slot->n++;
}

static void place(struct placer *p, const struct lifetime *life)
{
	int64_t at = lowest(p, life);
	int position = p->n_slots;

	while (position > 0 && p->slots[position - 1].start >= at)
		position--;
	bool beside =
		position > 0 && p->slots[position - 1].n == 0 && p->slots[position - 1].end == at;
	if (stays(life) && beside)
		position--;
	else if (position == p->n_slots || p->slots[position].start != at)
		add_slot(p, position, at);
	struct slot *slot = &p->slots[position];
	slot->end = max_i64(slot->end, at + life->bytes);
	if (!stays(life))
		add_to_chain(slot, life, p->arena);
	p->offsets[life->buffer] = at;
}

static int64_t place_tier(struct placer *p, bool host)
{
	int64_t end = 0;

	p->n_slots = 0;
	for (int i = 0; i < p->n; i++) {
		const struct lifetime *life = &p->all[i];

		if (life->host != host)
			continue;
		place(p, life);
		end = max_i64(end, p->offsets[life->buffer] + life->bytes);
	}
	return end;
}

void schedule_addresses(
	const struct program *program, struct arena *arena, struct addresses *addresses)
{
	int n = program->n_buffers;
	struct placer p = {.arena = arena,
		.n = n,
		.all = ARENA_ARRAY(arena, struct lifetime, n + 1),
		.slots = ARENA_ARRAY(arena, struct slot, n + 1),
		.offsets = ARENA_ARRAY(arena, int64_t, n + 1)};

	happens_before_make(program, arena, &p.order);
	find_lifetimes(program, p.all);
	qsort(p.all, (size_t)n, sizeof(*p.all), by_size);
	addresses->device_bytes = place_tier(&p, false);
	addresses->host_bytes = place_tier(&p, true);
	addresses->offsets = p.offsets;
}
