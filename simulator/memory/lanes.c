/* Plays the tapes of a list through the allocator, as often as they change something. */
#include "simulator/memory/lanes.h"

#include <string.h>

/* --- one tape -----------------------------------------------------------------------------------
 */

static const struct stretch *stretch_at(const struct lanes *lanes, int64_t position)
{
	const struct stretch *s = lanes->stretches;
	while (position >= s->position + (int64_t)s->length * s->times)
		s++;
	return s;
}

/* The slot of what another stretch, or the step before, has taken; NULL: that step was not. */
static int *slot_of(
	struct lanes *lanes, int l, const struct reference *reference, int step, int round)
{
	struct lane *lane = &lanes->lanes[l];
	int64_t position = reference->position + round * reference->outer;
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

static void give(struct lanes *lanes, int *slot)
{
	if (slot == NULL)
		return;
	allocator_give(&lanes->allocator, *slot);
	*slot = -1;
}

static void play(struct lanes *lanes, const struct stretch *s, int l, int step, int round)
{
	struct tape *tape = s->tapes[l];
	struct lane *lane = &lanes->lanes[l];
	struct allocator *a = &lanes->allocator;
	int *slots = lane->slots[step & 1] + tape->base + (tape->open ? round * tape->n_slots : 0);
	memset(tape->change, 0, (size_t)(s->length + 1) * sizeof(*tape->change));
	for (const struct event *e = tape->events; e < tape->events + tape->n; e++) {
		if (a->reserved > lanes->limit)
			return;
		int64_t before = a->active;
		if (e->bytes == 0) {
			give(lanes, &slots[e->slot]);
		} else if (e->bytes < 0) {
			give(lanes, slot_of(lanes, l, &tape->references[e->slot], step, round));
		} else if (e->slot >= 0) {
			slots[e->slot] = allocator_take(a, lane->stream, e->bytes);
		} else if (step == 0) {
			allocator_take(a, lane->stream, e->bytes);
		}
		tape->change[e->at + (e->bytes <= 0)] += a->active - before;
	}
	uint64_t state = allocator_state(a, lane->stream, lane->small);
	tape->is_steady = state == lane->state && !tape->open && (!tape->keeps || step > 0);
	tape->state = lane->state = state;
}

/* --- all of them --------------------------------------------------------------------------------
 */

/* What is in blocks that are taken is most when an operation has taken its own. */
static void find_peak(struct lanes *lanes, const struct stretch *s, int64_t active)
{
	int64_t *sum = lanes->change;
	memset(sum, 0, (size_t)s->length * sizeof(*sum));
	for (int l = 0; l < lanes->n; l++) {
		const int64_t *change = s->tapes[l]->change;
		for (int at = 0; at < s->length && s->tapes[l]->n > 0; at++)
			sum[at] += change[at];
	}
	for (int at = 0; at < s->length; at++) {
		active += sum[at];
		lanes->peak_active = max_i64(lanes->peak_active, active);
	}
}

/* False: every lane goes on as it did the last time. */
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
	/* Of lanes in which nothing happens here more may be taken. */
	if (changes || active != s->active)
		find_peak(lanes, s, active);
	s->active = active;
	return changes;
}

/* The step begins as the one before: with the same blocks free, and the same taken. */
static bool is_settled(struct lanes *lanes, uint64_t *before)
{
	uint64_t layout = allocator_layout(&lanes->allocator);
	bool is_same = layout == *before;
	*before = layout;
	return is_same;
}

static bool has_passed(const struct lanes *lanes)
{
	return lanes->allocator.reserved > lanes->limit;
}

static void play_steps(struct lanes *lanes)
{
	uint64_t before = 0;
	for (int step = 0; step < SIMULATED_STEPS_MAX && !has_passed(lanes); step++) {
		if (is_settled(lanes, &before) && step > 1)
			break;
		for (int i = 0; i < lanes->n_stretches; i++) {
			struct stretch *s = &lanes->stretches[i];
			for (int round = 0; round < s->times && !has_passed(lanes); round++)
				if (!play_once(lanes, s, step, round))
					break;
		}
	}
}

static void take_resident(void *self, int buffer)
{
	struct lanes *lanes = self;
	const struct cut *c = cutter_cut(&lanes->cutter, buffer);
	const struct buffer *b = &lanes->cutter.program->buffers[buffer];
	for (int i = 0; i < c->n && !buffer_in_host(b); i++)
		allocator_take(&lanes->allocator, (int)b->pool, c->bytes[i]);
}

static void make_slots(struct lanes *lanes)
{
	for (int l = 0; l < lanes->n; l++) {
		struct lane *lane = &lanes->lanes[l];
		for (int odd = 0; odd < 2; odd++) {
			lane->slots[odd] = ARENA_ARRAY(lanes->arena, int, lane->n_slots);
			memset(lane->slots[odd], -1, (size_t)lane->n_slots * sizeof(int));
		}
		lane->state = allocator_state(&lanes->allocator, lane->stream, lane->small);
	}
	int longest = 0;
	for (int i = 0; i < lanes->n_stretches; i++)
		longest =
			longest > lanes->stretches[i].length ? longest : lanes->stretches[i].length;
	lanes->change = ARENA_ARRAY(lanes->arena, int64_t, longest + 1);
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
