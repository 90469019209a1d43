/* Records, lane by lane, what each stretch of the list takes and gives back; equal stretches share
 * a tape. */
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

/* Finds for every buffer its slots among those of its operation, and their number. */
static void find_offsets(struct lanes *lanes)
{
	const struct program *program = lanes->cutter.program;
	lanes->offsets =
		arena_alloc(lanes->arena, (size_t)program->n_buffers, sizeof(*lanes->offsets));
	lanes->n_taken = ARENA_ARRAY(lanes->arena, int, program->n_ops * lanes->n);
	for (int x = 0; x < program->n_ops; x++) {
		const int *takes = slice_of(program, program->ops[x].takes);
		for (int t = 0; t < program->ops[x].takes.count; t++)
			for (int small = 0; small < 2; small++) {
				int pieces = pieces_in(lanes, takes[t], small);
				if (pieces == 0)
					continue;
				int *so_far = &lanes->n_taken[x * lanes->n +
							      lane_of(lanes, takes[t], small)];
				lanes->offsets[takes[t]][small] = *so_far;
				*so_far += pieces;
			}
	}
}

/* --- stretches ----------------------------------------------------------------------------------
 */

static int end_of_stretch(const struct program *program, int first)
{
	int end = first + 1;
	while (end < program->n_ops &&
		program->ops[end].micro_batch == program->ops[first].micro_batch)
		end++;
	return end;
}

/* Finds the stretches of the list. False: a loop of micro-batches is not one stretch. */
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
		*s = (struct stretch){.first = x,
			.n = end_of_stretch(program, x) - x,
			.times = 1,
			.loop = -1,
			.position = position};
		if (loop >= 0 && program->loops[loop].layers == 0) {
			if (program->loops[loop].n != s->n)
				return false;
			s->times = program->loops[loop].times;
			s->loop = loop;
			loops--;
		}
		for (int i = x; i < x + s->n; i++)
			s->length += lanes->engine->tasks[i].times / s->times;
		position += (int64_t)s->length * s->times;
	}
	return loops == 0;
}

/* --- tapes --------------------------------------------------------------------------------------
 */

/* Makes empty tapes. */
static void make_tapes(struct lanes *lanes, const struct stretch *s)
{
	for (int l = 0; l < lanes->n; l++) {
		struct tape *tape = lanes->spare[l];
		if (tape == NULL)
			tape = lanes->spare[l] = ARENA_NEW(lanes->arena, struct tape);
		tape->n = tape->n_runs = tape->n_references = tape->n_slots = 0;
		tape->open = tape->keeps = false;
		if (tape->length < s->length)
			tape->slots = arena_alloc_unset(
				lanes->arena, (size_t)s->length, sizeof(*tape->slots));
		tape->length = max_i64(tape->length, s->length);
	}
}

static void *grow(struct arena *arena, const void *old, int n, int *capacity, size_t size)
{
	*capacity = n > 0 ? 2 * n : 16;
	void *array = arena_alloc_unset(arena, (size_t)*capacity, size);
	if (n > 0)
		memcpy(array, old, (size_t)n * size);
	return array;
}

/* Does one operation do the same as in the last event, with the next slot? */
static bool goes_on(const struct tape *tape, const struct event *event)
{
	const struct run *run = tape->n_runs > 0 ? &tape->runs[tape->n_runs - 1] : NULL;
	if (tape->n == (run != NULL ? run->first + run->n : 0) || event->bytes < 0)
		return false;
	const struct event *last = &tape->events[tape->n - 1];
	return last->bytes == event->bytes && last->further == event->further &&
	       last->point == event->point &&
	       event->slot == (last->slot < 0 ? last->slot : last->slot + last->n);
}

static void add_event(struct lanes *lanes, struct tape *tape, struct event event)
{
	event.n = 1;
	if (goes_on(tape, &event)) {
		tape->events[tape->n - 1].n++;
		return;
	}
	if (tape->n == tape->capacity)
		tape->events = grow(
			lanes->arena, tape->events, tape->n, &tape->capacity, sizeof(struct event));
	tape->events[tape->n++] = event;
}

static void add_run(struct lanes *lanes, struct tape *tape, struct run run)
{
	if (tape->n_runs == tape->run_capacity)
		tape->runs = grow(lanes->arena, tape->runs, tape->n_runs, &tape->run_capacity,
			sizeof(struct run));
	tape->runs[tape->n_runs++] = run;
}

/* Makes a run of the events recorded since the last run. */
static void end_run(struct lanes *lanes, int times, int points)
{
	for (int l = 0; l < lanes->n; l++) {
		struct tape *tape = lanes->spare[l];
		const struct run *last = tape->n_runs > 0 ? &tape->runs[tape->n_runs - 1] : NULL;
		int first = last != NULL ? last->first + last->n : 0;
		if (tape->n > first)
			add_run(lanes, tape, (struct run){first, tape->n - first, times, points});
	}
}

/* The loop of blocks that begins with an operation; -1: none does. */
static int loop_at(const struct lanes *lanes, const struct stretch *s, int op)
{
	return program_loop(lanes->cutter.program, op, s->loop);
}

/* Numbers the slots of a loop in the order in which they are taken, block by block. */
static void number_loop(
	struct lanes *lanes, struct tape *tape, const int *n_taken, int at, int n, int times)
{
	int step = 0;
	for (int i = 0; i < n; i++)
		step += n_taken[i * lanes->n];
	for (int i = 0, slot = tape->n_slots; i < n && step > 0; i++) {
		for (int turn = 0; turn < times; turn++)
			tape->slots[at + turn * n + i] = slot + turn * step;
		slot += n_taken[i * lanes->n];
	}
	tape->n_slots += times * step;
}

/* The operation that is being recorded, and its repetitions. */
struct recording {
	struct lanes *lanes;
	const struct stretch *stretch;
	struct cursor at;
	int times;        /* of the loop of blocks around it */
	int length;       /* operations in an iteration of it */
	int place, point; /* of the operation in the stretch, when it is first executed */
};

/* An event that takes blocks at a place, and `step` places further on in each iteration. */
static struct event event_of(const struct tape *tape, int64_t place, int64_t step, int point)
{
	int first = tape->slots[place];
	return (struct event){
		.slot = first, .further = tape->slots[place + step] - first, .point = point};
}

/* Records requests in order, for good or to be given back. */
static void record_take(struct recording *r, int buffer, bool for_good)
{
	struct lanes *lanes = r->lanes;
	if (!is_pooled(lanes, buffer))
		return;
	const struct cut *c = cutter_cut(&lanes->cutter, buffer);
	int slots[2] = {lanes->offsets[buffer][0], lanes->offsets[buffer][1]};
	for (int i = 0; i < c->n; i++) {
		bool small = allocator_is_small(c->bytes[i]);
		struct tape *tape = lanes->spare[lane_of(lanes, buffer, small)];
		int step = r->times > 1 ? r->length : 0;
		struct event e = {.slot = -1, .point = r->point};
		if (!for_good) {
			e = event_of(tape, r->place, step, r->point);
			e.slot += slots[small]++;
		}
		e.bytes = c->bytes[i];
		add_event(lanes, tape, e);
		tape->keeps = tape->keeps || for_good;
	}
}

/* Buffers of a slice, block by block. The blocks that an operation names at once are in a row; if
 * the operation is in a loop itself, they come one after the other. */
struct batch {
	int first, end, times, in_a_row;
};

static struct batch next_batch(struct recording *r, struct slice slice, int first)
{
	const struct cutter *cutter = &r->lanes->cutter;
	const struct op *op = &cutter->program->ops[r->at.at];
	struct batch batch = {first,
		cutter_end_of_block(cutter, op, first, slice.first + slice.count),
		buffers_at_once(cutter->program, op, cutter->program->indices[first]), 1};
	if (batch.times == 1 || r->times > 1)
		return batch;
	end_run(r->lanes, 1, 0);
	batch.in_a_row = batch.times;
	batch.times = 1;
	return batch;
}

static void end_batch(struct recording *r, const struct batch *batch)
{
	if (batch->in_a_row > 1)
		end_run(r->lanes, batch->in_a_row, 0);
}

/* The optimizer's state is made when it is first used, block by block. */
static void record_state(struct recording *r, const struct op *op)
{
	const struct program *program = r->lanes->cutter.program;
	int end = op->uses.first + op->uses.count;
	struct batch batch;
	for (int first = op->uses.first; first < end; first = batch.end) {
		batch = next_batch(r, op->uses, first);
		for (int block = 0; block < batch.times; block++)
			for (int i = first; i < batch.end; i++)
				if (program->buffers[program->indices[i]].role ==
					BUFFER_OPTIMIZER_STATE)
					record_take(r, program->indices[i], true);
		end_batch(r, &batch);
	}
}

/* The operation that took what an index names, in a block that the operation names at once or in an
 * iteration of the loop around it. */
static int64_t taken_at(const struct recording *r, int i, int block, int round, int iteration)
{
	struct cursor at = r->at;
	bool inside = r->stretch->loop >= 0;
	at.round[0] += inside ? round : iteration;
	at.round[1] += inside ? iteration : 0;
	return cutter_taken_at(&r->lanes->cutter, r->at.at, &at, i, block);
}

/* Does the stretch itself take it, in every micro-batch? */
static bool is_own(const struct stretch *s, int64_t position, int64_t outer)
{
	return position >= s->position && position < s->position + s->length &&
	       (s->times == 1 || outer == s->length);
}

static void refer(struct lanes *lanes, struct tape *tape, const struct reference *reference)
{
	if (tape->n_references == tape->reference_capacity)
		tape->references = grow(lanes->arena, tape->references, tape->n_references,
			&tape->reference_capacity, sizeof(struct reference));
	tape->open = true;
	tape->references[tape->n_references++] = *reference;
}

/* Gives back pieces. A piece keeps its place among those of its size. */
static void give_pieces(struct recording *r, const struct reference *taken, bool own, int small)
{
	struct lanes *lanes = r->lanes;
	int n = pieces_in(lanes, taken->buffer, small);
	if (n == 0)
		return;
	struct tape *tape = lanes->spare[lane_of(lanes, taken->buffer, small)];
	struct reference reference = *taken;
	struct event e = {.bytes = -1, .point = r->point};
	if (own) {
		e = event_of(tape, taken->position - r->stretch->position, taken->inner, r->point);
		e.slot += lanes->offsets[taken->buffer][small];
	}
	for (; reference.piece < n; reference.piece++, e.slot++) {
		if (!own) {
			e.slot = tape->n_references;
			refer(lanes, tape, &reference);
		}
		add_event(lanes, tape, e);
	}
}

/* Records a free of what the i-th index names, of one block or of `blocks` in a row. */
static void record_give(struct recording *r, int i, int block, int blocks)
{
	const struct cutter *cutter = &r->lanes->cutter;
	const struct stretch *s = r->stretch;
	int buffer = cutter->program->indices[i], times = r->times > blocks ? r->times : blocks;
	if (cutter->takers[buffer] < 0)
		return;
	struct reference taken = {.position = taken_at(r, i, block, 0, 0), .buffer = buffer};
	if (s->times > 1)
		taken.outer = taken_at(r, i, block, 1, 0) - taken.position;
	if (blocks > 1)
		taken.inner = taken_at(r, i, block + 1, 0, 0) - taken.position;
	else if (times > 1)
		taken.inner = taken_at(r, i, block, 0, 1) - taken.position;
	int64_t last = taken.position + (times - 1) * taken.inner;
	bool own = is_own(s, taken.position, taken.outer) && is_own(s, last, taken.outer);
	for (int small = 0; small < 2; small++)
		give_pieces(r, &taken, own, small);
}

static void record_gives(struct recording *r, const struct op *op)
{
	struct lanes *lanes = r->lanes;
	const int *indices = lanes->cutter.program->indices;
	int end = op->gives.first + op->gives.count;
	struct batch batch;
	for (int first = op->gives.first; first < end; first = batch.end) {
		batch = next_batch(r, op->gives, first);
		for (int block = 0; block < batch.times; block++)
			for (int i = first; i < batch.end; i++)
				if (is_pooled(lanes, indices[i]))
					record_give(r, i, block, batch.in_a_row);
		end_batch(r, &batch);
	}
}

static void record_op(struct recording *r)
{
	const struct program *program = r->lanes->cutter.program;
	const struct op *op = &program->ops[r->at.at];
	const int *takes = slice_of(program, op->takes);
	for (int t = 0; t < op->takes.count; t++)
		record_take(r, takes[t], false);
	if (op->kind == OP_OPTIMIZER)
		record_state(r, op);
	r->point += op->takes.count > 0 || op->kind == OP_OPTIMIZER;
	record_gives(r, op);
}

/* Records `times` repetitions of operations in a row. */
static void record_loop(struct recording *r, int first, int n, int times)
{
	struct lanes *lanes = r->lanes;
	int before = r->point;
	for (int l = 0; l < lanes->n; l++)
		number_loop(lanes, lanes->spare[l], &lanes->n_taken[first * lanes->n + l], r->place,
			n, times);
	if (times > 1)
		end_run(lanes, 1, 0);
	r->times = times;
	r->length = n;
	for (r->at.at = first; r->at.at < first + n; r->at.at++, r->place++)
		record_op(r);
	int points = r->point - before;
	if (times > 1)
		end_run(lanes, times, points);
	r->point += (times - 1) * points;
	r->place += (times - 1) * n;
}

/* Was any of the slots given back before? */
static bool give_again(bool *given, const struct event *e, int turn)
{
	bool *slots = &given[e->slot + turn * e->further], again = false;
	for (int i = 0; i < e->n; i++) {
		again = again || slots[i];
		slots[i] = true;
	}
	return again;
}

/* Finds tapes that are open: in a closed one everything taken is given back once, and nothing else
 * is. */
static void find_open(struct lanes *lanes, struct tape *tape)
{
	bool *given = ARENA_ARRAY(lanes->arena, bool, tape->n_slots);
	int left = tape->n_slots;
	for (const struct run *run = tape->runs; run < tape->runs + tape->n_runs; run++)
		for (int i = run->first; i < run->first + run->n; i++) {
			const struct event *e = &tape->events[i];
			for (int turn = 0; turn < run->times && e->bytes == 0; turn++)
				tape->open = give_again(given, e, turn) || tape->open;
			left -= e->bytes == 0 ? run->times * e->n : 0;
		}
	tape->open = tape->open || left > 0;
}

static void record(struct lanes *lanes, struct stretch *s)
{
	const struct program *program = lanes->cutter.program;
	struct recording r = {.lanes = lanes, .stretch = s};
	make_tapes(lanes, s);
	for (int x = s->first; x < s->first + s->n;) {
		int loop = loop_at(lanes, s, x), n = loop >= 0 ? program->loops[loop].n : 1;
		record_loop(&r, x, n, loop >= 0 ? program->loops[loop].times : 1);
		x += n;
	}
	end_run(lanes, 1, 0);
	s->points = r.point;
	for (int l = 0; l < lanes->n; l++)
		find_open(lanes, lanes->spare[l]);
}

/* --- stretches share tapes ----------------------------------------------------------------------
 */

/* Do two runs use the same slots? Operations between those that take them do not matter. */
static bool run_is_alike(const struct tape *a, const struct tape *b, const struct run *run)
{
	for (int i = run->first; i < run->first + run->n; i++) {
		const struct event *left = &a->events[i], *right = &b->events[i];
		if (left->bytes != right->bytes || left->n != right->n ||
			left->slot != right->slot || left->further != right->further ||
			left->point != right->point)
			return false;
	}
	return true;
}

static bool are_alike(const struct tape *a, const struct tape *b)
{
	if (a->open || b->open || a->keeps || b->keeps || a->n_runs != b->n_runs)
		return false;
	for (int i = 0; i < a->n_runs; i++)
		if (memcmp(&a->runs[i], &b->runs[i], sizeof(struct run)) != 0 ||
			!run_is_alike(a, b, &a->runs[i]))
			return false;
	return true;
}

/* Blocks that are not given back in their own stretch get slots of their own. */
static void keep_tape(struct lanes *lanes, struct stretch *s, int l)
{
	struct tape *tape = lanes->spare[l];
	const struct stretch *before = s > lanes->stretches ? s - 1 : NULL;
	if (before != NULL && before->points == s->points && are_alike(before->tapes[l], tape)) {
		s->tapes[l] = before->tapes[l];
		return;
	}
	tape->levels = arena_alloc_unset(lanes->arena, (size_t)s->points, sizeof(*tape->levels));
	tape->base = lanes->lanes[l].n_slots;
	lanes->lanes[l].n_slots += tape->n_slots * (tape->open ? s->times : 1);
	s->tapes[l] = tape;
	lanes->spare[l] = NULL;
}

bool lanes_record(struct lanes *lanes)
{
	find_lanes(lanes);
	find_offsets(lanes);
	lanes->stretches = arena_alloc_unset(
		lanes->arena, (size_t)lanes->cutter.program->n_ops, sizeof(*lanes->stretches));
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
