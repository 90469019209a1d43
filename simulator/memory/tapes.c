/* What each stretch of the list takes and gives back, lane by lane, written down once for all that
 * are alike. */
#include <string.h>

#include "simulator/memory/lanes.h"

/* --- lanes --------------------------------------------------------------------------------------
 */

static void add_lane(struct lanes *lanes, int stream, bool small)
{
	if (lanes->of[stream][small] >= 0)
		return;
	lanes->of[stream][small] = lanes->n;
	lanes->lanes[lanes->n++] = (struct lane){.stream = stream, .small = small};
}

static bool is_pooled(const struct lanes *lanes, int buffer)
{
	return !buffer_in_host(&lanes->cutter.program->buffers[buffer]);
}

/* Pieces of a buffer in the large ([0]) and in the small lane. */
static int pieces_in(struct lanes *lanes, int buffer, int small)
{
	if (!is_pooled(lanes, buffer))
		return 0;
	const struct cut *c = cutter_cut(&lanes->cutter, buffer);
	return small ? c->n_small : c->n - c->n_small;
}

static int lane_of(const struct lanes *lanes, int buffer, int small)
{
	return lanes->of[lanes->cutter.program->buffers[buffer].pool][small];
}

static void find_lanes(struct lanes *lanes)
{
	memset(lanes->of, -1, sizeof(lanes->of));
	for (int b = 0; b < lanes->cutter.program->n_buffers; b++)
		for (int small = 0; small < 2; small++)
			if (pieces_in(lanes, b, small) > 0)
				add_lane(lanes, (int)lanes->cutter.program->buffers[b].pool, small);
}

static void find_offsets(struct lanes *lanes)
{
	const struct program *program = lanes->cutter.program;
	lanes->offsets =
		arena_alloc(lanes->arena, (size_t)program->n_buffers, sizeof(*lanes->offsets));
	for (int x = 0; x < program->n_ops; x++) {
		const int *takes = slice_of(program, program->ops[x].takes);
		int n[LANES_MAX] = {0};
		for (int t = 0; t < program->ops[x].takes.count; t++)
			for (int small = 0; small < 2; small++) {
				int pieces = pieces_in(lanes, takes[t], small);
				if (pieces == 0)
					continue;
				int *so_far = &n[lane_of(lanes, takes[t], small)];
				lanes->offsets[takes[t]][small] = *so_far;
				*so_far += pieces;
			}
	}
}

/* --- stretches ----------------------------------------------------------------------------------
 */

/* Times that an operation is carried out in one iteration of its stretch. */
static int times_in(const struct lanes *lanes, const struct stretch *s, int op)
{
	return lanes->engine->tasks[op].times / s->times;
}

static int end_of_stretch(const struct program *program, int first)
{
	int end = first + 1;
	while (end < program->n_ops &&
		program->ops[end].micro_batch == program->ops[first].micro_batch)
		end++;
	return end;
}

/* False: a loop of micro-batches is not one stretch. */
static bool find_stretches(struct lanes *lanes)
{
	const struct program *program = lanes->cutter.program;
	int loops = 0;
	int64_t position = 0;
	for (int l = 0; l < program->n_loops; l++)
		loops += program->loops[l].layers == 0;
	for (int x = 0; x < program->n_ops; x += lanes->stretches[lanes->n_stretches++].n) {
		struct stretch *s = &lanes->stretches[lanes->n_stretches];
		int loop = program_loop(program, x, -1);
		*s = (struct stretch){.first = x, .n = end_of_stretch(program, x) - x, .times = 1};
		if (loop >= 0 && program->loops[loop].layers == 0) {
			if (program->loops[loop].n != s->n)
				return false;
			s->times = program->loops[loop].times;
			loops--;
		}
		s->position = position;
		for (int i = x; i < x + s->n; i++)
			s->length += times_in(lanes, s, i);
		position += (int64_t)s->length * s->times;
	}
	return loops == 0;
}

/* --- tapes --------------------------------------------------------------------------------------
 */

static void count_buffer(struct lanes *lanes, int buffer, int events, int references)
{
	for (int small = 0; small < 2; small++) {
		int n = pieces_in(lanes, buffer, small);
		if (n == 0)
			continue;
		struct tape *tape = lanes->spare[lane_of(lanes, buffer, small)];
		tape->n += n * events;
		tape->n_references += n * references;
	}
}

/* How many events there will be at most. */
static void count_events(struct lanes *lanes, const struct stretch *s)
{
	const struct program *program = lanes->cutter.program;
	for (int x = s->first; x < s->first + s->n; x++) {
		const struct op *op = &program->ops[x];
		const int *takes = slice_of(program, op->takes),
			  *gives = slice_of(program, op->gives);
		const int *uses = slice_of(program, op->uses);
		int times = times_in(lanes, s, x);
		for (int t = 0; t < op->takes.count; t++)
			count_buffer(lanes, takes[t], times, 0);
		for (int g = 0; g < op->gives.count; g++) {
			int n = times * buffers_at_once(lanes->cutter.program, op, gives[g]);
			count_buffer(lanes, gives[g], n, n);
		}
		for (int u = 0; u < op->uses.count && op->kind == OP_OPTIMIZER; u++)
			count_buffer(lanes, uses[u],
				times * buffers_at_once(lanes->cutter.program, op, uses[u]), 0);
	}
}

static void make_room(struct lanes *lanes, struct tape *tape, int length)
{
	struct arena *arena = lanes->arena;
	if (tape->n > tape->capacity) {
		tape->capacity = tape->n;
		tape->events = ARENA_ARRAY(arena, struct event, tape->n);
		tape->references = ARENA_ARRAY(arena, struct reference, tape->n_references);
	}
	if (length > tape->length) {
		tape->length = length;
		tape->slots = ARENA_ARRAY(arena, int, length);
		tape->change = ARENA_ARRAY(arena, int64_t, length + 1);
	}
	tape->n = tape->n_references = 0;
}

/* Blank ones; of a lane in which nothing happens, without room. */
static void make_tapes(struct lanes *lanes, const struct stretch *s)
{
	for (int l = 0; l < lanes->n; l++) {
		struct tape *tape = lanes->spare[l];
		if (tape == NULL)
			tape = lanes->spare[l] = ARENA_NEW(lanes->arena, struct tape);
		tape->n = tape->n_references = tape->n_slots = 0;
		tape->open = tape->keeps = false;
	}
	count_events(lanes, s);
	for (int l = 0; l < lanes->n; l++)
		make_room(lanes, lanes->spare[l], lanes->spare[l]->n > 0 ? s->length : 0);
}

/* How much further on it was taken in the next micro-batch. */
static int64_t goes_on_by(
	const struct lanes *lanes, const struct stretch *s, const struct cursor *cursor, int i)
{
	struct cursor next = *cursor;
	next.round[0]++;
	if (s->times == 1)
		return 0;
	return cutter_taken_at(&lanes->cutter, cursor->at, &next, i, 0) -
	       cutter_taken_at(&lanes->cutter, cursor->at, cursor, i, 0);
}

/* Taken by the stretch itself, in every micro-batch. */
static bool is_own(const struct stretch *s, int64_t position, int64_t outer)
{
	return position >= s->position && position < s->position + s->length &&
	       (s->times == 1 || outer == s->length);
}

/* Requests, in order, for good or to be given back. */
static void record_take(struct lanes *lanes, int buffer, int at, bool for_good)
{
	if (!is_pooled(lanes, buffer))
		return;
	const struct cut *c = cutter_cut(&lanes->cutter, buffer);
	for (int i = 0; i < c->n; i++) {
		bool small = allocator_is_small(c->bytes[i]);
		struct tape *tape = lanes->spare[lane_of(lanes, buffer, small)];
		int slot = for_good ? -1 : tape->n_slots++;
		tape->events[tape->n++] = (struct event){c->bytes[i], slot, at};
		tape->keeps = tape->keeps || for_good;
	}
}

static void record_takes(struct lanes *lanes, const struct op *op, int at)
{
	const struct program *program = lanes->cutter.program;
	const int *takes = slice_of(program, op->takes);
	for (int l = 0; l < lanes->n && op->takes.count > 0; l++)
		if (lanes->spare[l]->length > at)
			lanes->spare[l]->slots[at] = lanes->spare[l]->n_slots;
	for (int t = 0; t < op->takes.count; t++)
		record_take(lanes, takes[t], at, false);
}

/* The optimizer's state comes into being when it is first used: block by block. */
static void record_state(struct lanes *lanes, const struct op *op, int at)
{
	const struct program *program = lanes->cutter.program;
	int end = op->uses.first + op->uses.count;
	for (int first = op->uses.first, next; first < end && op->kind == OP_OPTIMIZER;
		first = next) {
		int n = buffers_at_once(lanes->cutter.program, op, program->indices[first]);
		next = cutter_end_of_block(&lanes->cutter, op, first, end);
		for (int block = 0; block < n; block++)
			for (int i = first; i < next; i++)
				if (program->buffers[program->indices[i]].role ==
					BUFFER_OPTIMIZER_STATE)
					record_take(lanes, program->indices[i], at, true);
	}
}

static void refer(struct tape *tape, const struct reference *reference, int at)
{
	tape->open = true;
	tape->references[tape->n_references] = *reference;
	tape->events[tape->n++] = (struct event){-1, tape->n_references++, at};
}

/* What the i-th index names, of one block. A piece keeps its place among those of its size. */
static void record_give(struct lanes *lanes, const struct stretch *s, const struct cursor *cursor,
	int i, int block, int at)
{
	const struct cutter *cutter = &lanes->cutter;
	int buffer = cutter->program->indices[i];
	if (cutter->takers[buffer] < 0)
		return;
	struct reference r = {.position = cutter_taken_at(cutter, cursor->at, cursor, i, block),
		.buffer = buffer};
	r.outer = goes_on_by(lanes, s, cursor, i);
	bool own = is_own(s, r.position, r.outer);
	for (int small = 0; small < 2; small++) {
		int n = pieces_in(lanes, buffer, small);
		if (n == 0)
			continue;
		struct tape *tape = lanes->spare[lane_of(lanes, buffer, small)];
		int slot = lanes->offsets[buffer][small] +
			   (own ? tape->slots[r.position - s->position] : 0);
		for (r.piece = 0; r.piece < n; r.piece++) {
			if (!own)
				refer(tape, &r, at);
			else
				tape->events[tape->n++] = (struct event){0, slot + r.piece, at};
		}
	}
}

static void record_gives(
	struct lanes *lanes, const struct stretch *s, const struct cursor *cursor, int at)
{
	const struct program *program = lanes->cutter.program;
	const struct op *op = &program->ops[cursor->at];
	int end = op->gives.first + op->gives.count;
	for (int first = op->gives.first, next; first < end; first = next) {
		int n = buffers_at_once(lanes->cutter.program, op, program->indices[first]);
		next = cutter_end_of_block(&lanes->cutter, op, first, end);
		for (int block = 0; block < n; block++)
			for (int i = first; i < next; i++)
				if (is_pooled(lanes, program->indices[i]))
					record_give(lanes, s, cursor, i, block, at);
	}
}

/* Whatever is taken is given back once, and nothing else is. */
static void find_open(struct lanes *lanes, struct tape *tape)
{
	bool *given = ARENA_ARRAY(lanes->arena, bool, tape->n_slots);
	int left = tape->n_slots;
	for (int i = 0; i < tape->n; i++) {
		const struct event *e = &tape->events[i];
		if (e->bytes != 0)
			continue;
		tape->open = tape->open || given[e->slot];
		given[e->slot] = true;
		left--;
	}
	tape->open = tape->open || left > 0;
}

static void record(struct lanes *lanes, const struct stretch *s)
{
	struct cursor cursor = {.at = s->first};
	make_tapes(lanes, s);
	for (int at = 0; at < s->length; at++) {
		const struct op *op = &lanes->cutter.program->ops[cursor.at];
		record_takes(lanes, op, at);
		record_state(lanes, op, at);
		record_gives(lanes, s, &cursor, at);
		list_advance(&lanes->engine->host.list, lanes->cutter.program, &cursor);
	}
	for (int l = 0; l < lanes->n; l++)
		find_open(lanes, lanes->spare[l]);
}

/* --- stretches share tapes ----------------------------------------------------------------------
 */

static bool are_alike(const struct tape *a, const struct tape *b)
{
	return !a->open && !b->open && !a->keeps && !b->keeps && a->n == b->n &&
	       (a->n == 0 || memcmp(a->events, b->events, (size_t)a->n * sizeof(*a->events)) == 0);
}

/* What is not given back in its own stretch has slots of its own. */
static void keep_tape(struct lanes *lanes, struct stretch *s, int l)
{
	struct tape *tape = lanes->spare[l];
	const struct stretch *before = s > lanes->stretches ? s - 1 : NULL;
	if (before != NULL && before->length == s->length && are_alike(before->tapes[l], tape)) {
		s->tapes[l] = before->tapes[l];
		return;
	}
	tape->base = lanes->lanes[l].n_slots;
	lanes->lanes[l].n_slots += tape->n_slots * (tape->open ? s->times : 1);
	s->tapes[l] = tape;
	lanes->spare[l] = NULL;
}

bool lanes_record(struct lanes *lanes)
{
	find_lanes(lanes);
	find_offsets(lanes);
	lanes->stretches = ARENA_ARRAY(lanes->arena, struct stretch, lanes->cutter.program->n_ops);
	if (!find_stretches(lanes))
		return false;
	for (int i = 0; i < lanes->n_stretches; i++) {
		struct stretch *s = &lanes->stretches[i];
		record(lanes, s);
		s->tapes = ARENA_ARRAY(lanes->arena, struct tape *, lanes->n);
		for (int l = 0; l < lanes->n; l++)
			keep_tape(lanes, s, l);
	}
	return true;
}
