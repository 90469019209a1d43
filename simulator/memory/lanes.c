/* Plays the tapes of a list through the allocator, as often as they change something. */
#include "simulator/memory/lanes.h"

#include <string.h>

enum { ROUNDS_SEEN = 64 };

static const uint64_t STATE_FACTOR = UINT64_C(0x9e3779b97f4a7c15);

/* --- one tape -----------------------------------------------------------------------------------
 */

/* They follow one another, and a long pipeline has thousands. */
static const struct stretch *stretch_at(const struct lanes *lanes, int64_t position)
{
	int first = 0, end = lanes->n_stretches;
	while (end - first > 1) {
		int middle = (first + end) / 2;
		if (lanes->stretches[middle].position <= position)
			first = middle;
		else
			end = middle;
	}
	return &lanes->stretches[first];
}

/* The slot of a block that another stretch, or the step before, has taken; NULL: there was no step
 * before. */
static struct allocator_block **slot_of(
	struct lanes *lanes, int l, const struct reference *reference, int step, int64_t position)
{
	struct lane *lane = &lanes->lanes[l];
	if (position < 0) {
		position += lanes->engine->n_carried_out;
		step--;
	}
	if (step < 0)
		return NULL;
	const struct stretch *s = stretch_at(lanes, position);
	const struct tape *tape = s->tapes[l];
	int64_t into = position - s->position;
	int slot = tape->base + tape->slots[into % s->length] +
		   lanes->offsets[reference->buffer][lane->small] + reference->piece;
	return &lane->slots[step & 1][slot + into / s->length * tape->n_slots];
}

static void give(struct lanes *lanes, struct allocator_block **slot)
{
	if (slot == NULL)
		return;
	allocator_give(&lanes->allocator, *slot);
	*slot = NULL;
}

/* A tape that is being played: the step and the micro-batch, and how many of its levels are known.
 */
struct playing {
	struct lanes *lanes;
	struct tape *tape;
	int lane, step, round;
	struct allocator_block **slots;
	int64_t before; /* bytes that were taken when it began */
	int n_levels;
};

static void fill_levels(struct playing *p, int point)
{
	int64_t *levels = p->tape->levels, level = p->lanes->allocator.active - p->before;
	while (p->n_levels < point)
		levels[p->n_levels++] = level;
}

/* Gives back a block of another stretch, or takes blocks for good. */
static void play_other(const struct playing *p, const struct event *e, int turn)
{
	struct lanes *lanes = p->lanes;
	if (e->bytes < 0) {
		const struct reference *r = &p->tape->references[e->slot];
		int64_t position = r->position + turn * r->inner + p->round * r->outer;
		give(lanes, slot_of(lanes, p->lane, r, p->step, position));
	} else if (p->step == 0) {
		allocator_keep(&lanes->allocator, lanes->lanes[p->lane].stream, e->bytes, e->n);
	}
}

static bool has_passed(const struct lanes *lanes)
{
	return lanes->allocator.reserved > lanes->limit;
}

static void play_turn(struct playing *p, const struct run *run, int turn)
{
	struct allocator *a = &p->lanes->allocator;
	const struct event *e = &p->tape->events[run->first], *end = e + run->n;
	int stream = p->lanes->lanes[p->lane].stream, further = turn * run->points;
	for (; e < end; e++) {
		struct allocator_block **slots = &p->slots[e->slot + turn * e->further];
		if (p->n_levels < e->point + further)
			fill_levels(p, e->point + further);
		if (e->bytes == 0)
			allocator_give_all(a, e->n, slots);
		else if (e->bytes > 0 && e->slot >= 0)
			allocator_take_all(a, stream, e->bytes, e->n, slots);
		else
			play_other(p, e, turn);
	}
}

/* Stops when the reserved bytes have passed the limit. */
static void play_runs(struct playing *p)
{
	const struct tape *tape = p->tape;
	for (const struct run *run = tape->runs; run < tape->runs + tape->n_runs; run++)
		for (int turn = 0; turn < run->times && !has_passed(p->lanes); turn++)
			play_turn(p, run, turn);
}

static void play(struct lanes *lanes, const struct stretch *s, int l, int step, int round)
{
	struct tape *tape = s->tapes[l];
	struct lane *lane = &lanes->lanes[l];
	struct playing p = {.lanes = lanes,
		.tape = tape,
		.lane = l,
		.step = step,
		.round = round,
		.slots = lane->slots[step & 1] + tape->base +
			 (tape->open ? round * tape->n_slots : 0),
		.before = lanes->allocator.active};
	play_runs(&p);
	fill_levels(&p, s->points);
	if (lanes->allocator.reserved > lanes->limit)
		return;
	uint64_t state = allocator_state(&lanes->allocator, lane->stream, lane->small);
	tape->is_steady = state == lane->state && !tape->open && (!tape->keeps || step > 0);
	tape->state = lane->state = state;
}

/* --- all of them --------------------------------------------------------------------------------
 */

/* The peak of active bytes is just after some operation has taken its blocks. */
static void find_peak(struct lanes *lanes, const struct stretch *s, int64_t active)
{
	int64_t *sums = lanes->sums;
	memset(sums, 0, (size_t)s->points * sizeof(*sums));
	for (int l = 0; l < lanes->n; l++) {
		const int64_t *levels = s->tapes[l]->levels;
		int n = s->tapes[l]->n > 0 ? s->points : 0;
		for (int at = 0; at < n; at++)
			sums[at] += levels[at];
	}
	int64_t peak = lanes->peak_active;
	for (int at = 0; at < s->points; at++)
		peak = max_i64(peak, active + sums[at]);
	lanes->peak_active = peak;
}

/* False: every lane would do the same as the last time. */
static bool play_once(struct lanes *lanes, struct stretch *s, int step, int round)
{
	int64_t active = lanes->allocator.active;
	bool changes = false;
	for (int l = 0; l < lanes->n; l++) {
		const struct tape *tape = s->tapes[l];
		if (tape->n == 0 || (tape->is_steady && tape->state == lanes->lanes[l].state))
			continue;
		play(lanes, s, l, step, round);
		changes = true;
	}
	/* Lanes in which nothing happens here may hold more blocks. */
	if (changes || active != s->active)
		find_peak(lanes, s, active);
	s->active = active;
	return changes;
}

/* Does the step begin as the one before, with the same blocks free and the same taken? */
static bool is_settled(struct lanes *lanes, uint64_t *before)
{
	uint64_t layout = allocator_layout(&lanes->allocator);
	bool is_same = layout == *before;
	*before = layout;
	return is_same;
}

/* The states in which the rounds of a stretch began. */
struct rounds_seen {
	uint64_t states[ROUNDS_SEEN];
	bool has_jumped;
};

static bool is_closed(const struct lanes *lanes, const struct stretch *s)
{
	for (int l = 0; l < lanes->n; l++)
		if (s->tapes[l]->open)
			return false;
	return true;
}

/* Where blocks change places in turn, some rounds later they stand as before, and whole cycles
 * change nothing. */
static int skip_cycles(
	const struct lanes *lanes, const struct stretch *s, struct rounds_seen *seen, int round)
{
	uint64_t state = 0;
	for (int l = 0; l < lanes->n; l++)
		state = state * STATE_FACTOR + lanes->lanes[l].state;
	for (int back = 1; back <= round && back < ROUNDS_SEEN && !seen->has_jumped; back++)
		if (seen->states[(round - back) % ROUNDS_SEEN] == state && is_closed(lanes, s)) {
			seen->has_jumped = true;
			return round + (s->times - round) / back * back;
		}
	seen->states[round % ROUNDS_SEEN] = state;
	return round;
}

static void play_rounds(struct lanes *lanes, struct stretch *s, int step)
{
	struct rounds_seen seen = {0};
	for (int round = 0; round < s->times && !has_passed(lanes); round++) {
		round = skip_cycles(lanes, s, &seen, round);
		if (round == s->times || !play_once(lanes, s, step, round))
			break;
	}
}

static void play_steps(struct lanes *lanes)
{
	uint64_t before = 0;
	for (int step = 0; step < SIMULATED_STEPS_MAX && !has_passed(lanes); step++) {
		if (step > 0 && is_settled(lanes, &before) && step > 1)
			break;
		for (int i = 0; i < lanes->n_stretches; i++)
			play_rounds(lanes, &lanes->stretches[i], step);
	}
}

static void take_resident(void *self, int buffer)
{
	struct lanes *lanes = self;
	const struct cut *c = cutter_cut(&lanes->cutter, buffer);
	const struct buffer *b = &lanes->cutter.program->buffers[buffer];
	for (int i = 0; i < c->n && !buffer_in_host(b); i++)
		allocator_keep(&lanes->allocator, (int)b->pool, c->bytes[i], 1);
}

static void make_slots(struct lanes *lanes)
{
	for (int l = 0; l < lanes->n; l++) {
		struct lane *lane = &lanes->lanes[l];
		for (int odd = 0; odd < 2; odd++)
			lane->slots[odd] =
				ARENA_ARRAY(lanes->arena, struct allocator_block *, lane->n_slots);
		lane->state = allocator_state(&lanes->allocator, lane->stream, lane->small);
	}
	int most = 0;
	for (int i = 0; i < lanes->n_stretches; i++)
		most = most > lanes->stretches[i].points ? most : lanes->stretches[i].points;
	lanes->sums = arena_alloc_unset(lanes->arena, (size_t)most, sizeof(*lanes->sums));
}

bool lanes_reserved(
	const struct engine *engine, int64_t limit, struct arena *arena, struct reserved *reserved)
{
	struct lanes lanes = {
		.engine = engine, .arena = arena, .limit = limit > 0 ? limit : INT64_MAX};
	cutter_init(&lanes.cutter, engine, arena);
	if (!lanes_record(&lanes))
		return false;
	allocator_init(&lanes.allocator, 0,
		engine->schedule->plan.allocator == ALLOCATOR_EXPANDABLE, arena);
	cutter_each_resident(&lanes.cutter, take_resident, &lanes);
	lanes.peak_active = lanes.allocator.active;
	make_slots(&lanes);
	play_steps(&lanes);
	*reserved = (struct reserved){.bytes = lanes.allocator.peak_reserved,
		.active = lanes.peak_active,
		.within = !has_passed(&lanes)};
	return true;
}
