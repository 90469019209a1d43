#include "executor/memory/placement.h"

#include <stdlib.h>
#include <string.h>

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

/* True when `first` has finished before `then` starts. */
static bool happens_before(const struct happens_before *order, int first, int then)
{
	enum stream stream = order->program->ops[first].stream;

	return first != then && order->clocks[then][stream] >= first;
}

/* --- addresses --- */

struct lifetime {
	int buffer;
	int take, give; /* operations; -1 if resident */
	int64_t bytes;
	bool host;
};

struct placer {
	struct happens_before order;
	struct lifetime *all;
	int n;
	int *placed, n_placed; /* buffers of the tier, by offset */
	int64_t *offsets;
	const struct lifetime *of; /* [buffer] */
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
		for (int k = 0; k < program->ops[i].gives.count; k++)
			all[gives[k]].give = i;
	}
}

static bool may_share(
	const struct happens_before *order, const struct lifetime *a, const struct lifetime *b)
{
	if (a->take < 0 || b->take < 0 || a->give < 0 || b->give < 0)
		return false;
	return happens_before(order, a->give, b->take) || happens_before(order, b->give, a->take);
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

/* Finds the lowest offset at which the buffer overlaps none with which it may not share. */
static void place(struct placer *p, const struct lifetime *life)
{
	int64_t at = 0;
	int position = p->n_placed;

	for (int i = 0; i < p->n_placed; i++) {
		const struct lifetime *other = &p->of[p->placed[i]];
		int64_t start = p->offsets[other->buffer];

		if (may_share(&p->order, life, other))
			continue;
		if (start >= at + life->bytes)
			break;
		at = max_i64(at, start + other->bytes);
	}
	while (position > 0 && p->offsets[p->placed[position - 1]] > at)
		position--;
	memmove(p->placed + position + 1, p->placed + position,
		(size_t)(p->n_placed - position) * sizeof(int));
	p->placed[position] = life->buffer;
	p->n_placed++;
	p->offsets[life->buffer] = at;
}

static int64_t place_tier(struct placer *p, bool host)
{
	int64_t end = 0;

	p->n_placed = 0;
	for (int i = 0; i < p->n; i++) {
		const struct lifetime *life = &p->all[i];

		if (life->host != host)
			continue;
		place(p, life);
		end = max_i64(end, p->offsets[life->buffer] + life->bytes);
	}
	return end;
}

void addresses_make(const struct program *program, struct arena *arena, struct addresses *addresses)
{
	int n = program->n_buffers;
	struct lifetime *of = ARENA_ARRAY(arena, struct lifetime, n + 1);
	struct placer p = {.n = n,
		.all = ARENA_ARRAY(arena, struct lifetime, n + 1),
		.placed = ARENA_ARRAY(arena, int, n + 1),
		.offsets = ARENA_ARRAY(arena, int64_t, n + 1),
		.of = of};

	happens_before_make(program, arena, &p.order);
	find_lifetimes(program, of);
	memcpy(p.all, of, (size_t)n * sizeof(*of));
	qsort(p.all, (size_t)n, sizeof(*p.all), by_size);
	addresses->device_bytes = place_tier(&p, false);
	addresses->host_bytes = place_tier(&p, true);
	addresses->offsets = p.offsets;
}
