/* Numbers buffers as in the whole list where they are taken, given back and used. The text form of
 * the whole list needs this beside the folded list. */
#include "schedule/fold/listing.h"

#include <string.h>

/* --- where buffers are taken ---------------------------------------------------------------------
 */

static int times_at(const struct folding *f, int op)
{
	return f->laps_of[op] >= 0 ? f->laps[f->laps_of[op]].times : 1;
}

/* Buffers are numbered as they are taken. */
static bool takes_in_order(const struct listing_work *w, const struct op *op, int *next)
{
	const int *takes = slice_of(w->f->program, op->takes);
	for (int i = 0; i < op->takes.count; i++) {
		if (takes[i] != *next + i || buffers_at_once(w->f->program, op, takes[i]) > 1)
			return false;
	}
	*next += op->takes.count;
	return true;
}

static bool find_taken(struct listing_work *w)
{
	const struct folding *f = w->f;
	const struct program *program = f->program;
	int next = 0, whole = w->spaces[RESIDENTS].n, body = 0;
	while (next < program->n_buffers && program->buffers[next].resident)
		next++;
	w->taken = ARENA_ARRAY(f->arena, int, program->n_ops);
	w->taken_in_lap = ARENA_ARRAY(f->arena, int, f->n_laps + 1);
	for (int x = 0; x < program->n_ops; x++) {
		const struct lap *lap = f->laps_of[x] >= 0 ? &f->laps[f->laps_of[x]] : NULL;
		body = x == f->body_first ? whole : body;
		w->taken[x] = whole;
		whole += program->ops[x].takes.count;
		if (!takes_in_order(w, &program->ops[x], &next))
			return false;
		if (lap != NULL && x == lap->first + lap->n - 1) {
			w->taken_in_lap[f->laps_of[x]] = whole - w->taken[lap->first];
			whole += (lap->times - 1) * w->taken_in_lap[f->laps_of[x]];
		}
		if (f->body_n > 0 && x == f->body_first + f->body_n - 1) {
			w->taken_in_micro_batch = whole - body;
			whole += (f->shorter->micro_batch_times - 1) * w->taken_in_micro_batch;
		}
	}
	return next == program->n_buffers;
}

/* Returns the last operation that is carried out for the first time at this position or before
 * it. */
static int operation_at(const struct folding *f, int position)
{
	int low = 0, high = f->program->n_ops - 1;
	while (low < high) {
		int middle = (low + high + 1) / 2;
		if (f->bases[middle] <= position)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

static int offset_of(const struct folding *f, int buffer)
{
	return buffer - slice_of(f->program, f->program->ops[f->takers[buffer]].takes)[0];
}

/* Returns the number of the buffer that the operation at this position takes in the same place as
 * `buffer` was taken. Returns -1 if that operation takes nothing like it, because its block is of
 * another kind. */
static int number_at(const struct listing_work *w, int position, int buffer)
{
	const struct folding *f = w->f;
	const struct buffer *buffers = f->program->buffers;
	int offset = offset_of(f, buffer);
	int micro_batches = f->body_n > 0 ? f->shorter->micro_batch_times : 1, j = 0, i = 0;
	if (position < 0)
		position += f->program->n_carried_out;
	if (f->micro_n > 0 && position >= f->micro_first) {
		j = min_i64((position - f->micro_first) / f->micro_n, micro_batches - 1);
		position -= j * f->micro_n;
	}
	int op = operation_at(f, position), lap = f->laps_of[op];
	if (lap >= 0) {
		int in_lap = position - f->bases[f->laps[lap].first];
		i = in_lap / f->laps[lap].n;
		op = f->laps[lap].first + in_lap % f->laps[lap].n;
	}
	struct slice takes = f->program->ops[op].takes;
	if (offset >= takes.count ||
		buffers[slice_of(f->program, takes)[offset]].role != buffers[buffer].role)
		return -1;
	/* Behind the repeated micro-batch taken[] already counts all of them. */
	if (f->body_n > 0 && op >= f->body_first + f->body_n)
		j = 0;
	return w->taken[op] + i * (lap >= 0 ? w->taken_in_lap[lap] : 0) +
	       j * w->taken_in_micro_batch + offset;
}

/* --- what an operation names ---------------------------------------------------------------------
 */

static void add_number(struct listing_work *w, struct position number)
{
	if (w->n_numbers == w->capacity) {
		struct position *more = ARENA_ARRAY(w->f->arena, struct position, 2 * w->capacity);
		memcpy(more, w->unfolding->numbers, (size_t)w->n_numbers * sizeof(*more));
		w->unfolding->numbers = more;
		w->capacity *= 2;
	}
	w->unfolding->numbers[w->n_numbers++] = number;
}

/* Finds by how much the number grows from one of `times` iterations to the next, which is `by`
 * positions later. False when nothing like it is taken there, or when it does not grow evenly: the
 * first iteration may name what was taken before the loop, among more buffers or fewer. */
static bool find_step(
	const struct listing_work *w, int position, int by, int buffer, int times, int *step)
{
	int first = number_at(w, position, buffer), last = times - 1;
	*step = 0;
	if (last <= 0 || by == 0)
		return true;
	int next = number_at(w, position + by, buffer);
	int end = number_at(w, position + last * by, buffer);
	*step = next - first;
	return next >= 0 && end >= 0 && end - first == last * *step;
}

/* Finds the number of a buffer that is given back or used from where it was taken. */
static bool number_of_taken(
	const struct listing_work *w, int op, int index, struct position *number)
{
	const struct folding *f = w->f;
	const struct position *place = &f->program->places[index];
	int buffer = f->program->indices[index];
	*number = (struct position){number_at(w, place->first, buffer), 0, 0};
	return number->first >= 0 &&
	       find_step(w, place->first, place->inner, buffer, times_at(f, op), &number->inner) &&
	       find_step(w, place->first, place->outer, buffer, f->shorter->micro_batch_times,
		       &number->outer);
}

static bool number_of(
	const struct listing_work *w, int op, enum fold_list list, int i, struct position *number)
{
	const struct program *program = w->f->program;
	int index = fold_slice(w->f, op, list).first + i, buffer = program->indices[index];
	struct going going;
	if (!program->buffers[buffer].resident)
		return number_of_taken(w, op, index, number);
	if (list != USES || !listing_name(w, op, (struct named){OF_USED, RESIDENTS, i}, &going))
		return false;
	*number = (struct position){going.first, going.by, 0};
	return true;
}

/* --- operations of all blocks at once ------------------------------------------------------------
 */

/* The buffers of these operations are listed block by block. A row has those of one group, and the
 * repeated row of a column stands for all of its copies. */
struct column {
	struct position first; /* `inner` is the distance between copies */
	int times;
};

static int layer_of_unit(const struct folding *f, int unit)
{
	return unit >= 0 ? f->shorter->model.modules[f->program->units[unit].module].layer : -1;
}

static int run_of_layer(const struct folding *f, int layer)
{
	return f->run_of[f->group_of[layer]];
}

static bool find_column(
	const struct listing_work *w, int op, enum fold_list list, int i, struct column *column)
{
	const struct folding *f = w->f;
	int index = fold_slice(f, op, list).first + i, buffer = f->program->indices[index];
	const struct buffer *b = &f->program->buffers[buffer];
	int times = buffers_at_once(f->program, &f->program->ops[op], buffer);
	const struct numbering *residents = &w->spaces[RESIDENTS];
	*column = (struct column){{0, 0, 0}, times};
	if (b->resident) {
		column->first.first = residents->first[buffer];
		if (times > 1)
			column->first.inner =
				residents->by[run_of_layer(f, layer_of_unit(f, b->unit))];
		return true;
	}
	int lap = f->laps_of[f->takers[buffer]];
	if (!number_of_taken(w, op, index, &column->first))
		return false;
	if (times == 1)
		return true;
	int by = w->taken_in_lap[lap];
	bool is_down = f->sweeps[f->laps[lap].sweep].is_down;
	column->first.inner = is_down ? -by : by;
	column->first.first += is_down ? (times - 1) * by : 0;
	return true;
}

/* Returns the group of blocks that a buffer belongs to, or -1. A part of the root unit may belong
 * to a block. */
static int group_of_item(const struct listing_work *w, struct slice slice, int i)
{
	const struct folding *f = w->f;
	const struct buffer *buffer = &f->program->buffers[slice_of(f->program, slice)[i]];
	int layer = buffer->layer >= 0 ? buffer->layer : layer_of_unit(f, buffer->unit);
	return layer >= 0 ? f->group_of[layer] : -1;
}

static int end_of_row(const struct listing_work *w, struct slice slice, int first)
{
	int end = first + 1, group = group_of_item(w, slice, first);
	while (end < slice.count && group >= 0 && group_of_item(w, slice, end) == group)
		end++;
	return end;
}

/* Rows of `width` items lie in [first, end). They go up or down the blocks. */
struct table {
	int op;
	enum fold_list list;
	int first, end, width;
	bool is_down;
	struct position *items; /* `n` rows, including all copies */
	int n;
};

/* False when the column is not as long as the others. */
static bool expand_column(const struct listing_work *w, struct table *table, int c)
{
	int n = 0;
	for (int i = table->first + c; i < table->end; i += table->width) {
		struct column column;
		if (!find_column(w, table->op, table->list, i, &column) ||
			n + column.times > table->n)
			return false;
		for (int t = 0; t < column.times; t++) {
			int copy = table->is_down ? column.times - 1 - t : t;
			table->items[n++ * table->width + c] =
				(struct position){column.first.first + copy * column.first.inner, 0,
					column.first.outer};
		}
	}
	return n == table->n;
}

static int rows_of(const struct listing_work *w, const struct table *table)
{
	const struct op *op = &w->f->program->ops[table->op];
	const int *buffers = slice_of(w->f->program, fold_slice(w->f, table->op, table->list));
	int n = 0;
	for (int i = table->first; i < table->end; i += table->width)
		n += buffers_at_once(w->f->program, op, buffers[i]);
	return n;
}

static bool add_table(struct listing_work *w, struct table *table)
{
	struct slice slice = fold_slice(w->f, table->op, table->list);
	table->is_down =
		group_of_item(w, slice, table->first) > group_of_item(w, slice, table->end - 1);
	table->n = rows_of(w, table);
	table->items = ARENA_ARRAY(w->f->arena, struct position, table->n * table->width);
	for (int c = 0; c < table->width; c++)
		if (!expand_column(w, table, c))
			return false;
	for (int i = 0; i < table->n * table->width; i++)
		add_number(w, table->items[i]);
	return true;
}

static bool number_at_once(struct listing_work *w, int op, enum fold_list list)
{
	struct slice slice = fold_slice(w->f, op, list);
	for (int first = 0, end; first < slice.count; first = end) {
		int width = end_of_row(w, slice, first) - first;
		end = first + width;
		while (group_of_item(w, slice, first) >= 0 && end < slice.count &&
			group_of_item(w, slice, end) >= 0 &&
			end_of_row(w, slice, end) - end == width)
			end += width;
		if (!add_table(w, &(struct table){op, list, first, end, width}))
			return false;
	}
	return true;
}

/* --- lists ---------------------------------------------------------------------------------------
 */

static bool is_at_once(const struct listing_work *w, int op, enum fold_list list)
{
	const struct program *program = w->f->program;
	struct slice slice = fold_slice(w->f, op, list);
	for (int i = 0; i < slice.count; i++)
		if (buffers_at_once(w->f->program, &program->ops[op], slice_of(program, slice)[i]) >
			1)
			return true;
	return false;
}

static bool number_list(struct listing_work *w, int op, enum fold_list list, struct slice *numbers)
{
	struct slice slice = fold_slice(w->f, op, list);
	bool ok = true;
	numbers->first = w->n_numbers;
	if (is_at_once(w, op, list)) {
		ok = w->f->laps_of[op] < 0 && number_at_once(w, op, list);
	} else {
		for (int i = 0; i < slice.count && ok; i++) {
			struct position number;
			ok = number_of(w, op, list, i, &number);
			if (ok)
				add_number(w, number);
		}
	}
	numbers->count = w->n_numbers - numbers->first;
	return ok;
}

static void number_takes(struct listing_work *w, int op, struct slice *numbers)
{
	const struct folding *f = w->f;
	struct slice takes = f->program->ops[op].takes;
	int lap = f->laps_of[op];
	bool inside = op >= f->body_first && op < f->body_first + f->body_n;
	*numbers = (struct slice){w->n_numbers, takes.count};
	for (int i = 0; i < takes.count; i++)
		add_number(
			w, (struct position){w->taken[op] + i, lap >= 0 ? w->taken_in_lap[lap] : 0,
				   inside ? w->taken_in_micro_batch : 0});
}

/* --- the whole list --------------------------------------------------------------------------- */

static bool list_op(struct listing_work *w, int op)
{
	struct listed *listed = &w->unfolding->ops[op];
	struct listed_names *names = &listed->names;
	number_takes(w, op, &listed->takes);
	return listing_name(w, op, (struct named){OF_OP, UNITS, 0}, &names->unit) &&
	       listing_name(w, op, (struct named){OF_CAUSE, UNITS, 0}, &listed->cause) &&
	       listing_name(w, op, (struct named){OF_OP, LAYERS, 0}, &names->layer) &&
	       listing_name(w, op, (struct named){OF_OP, MODULES, 0}, &names->module) &&
	       number_list(w, op, GIVES, &listed->gives) && number_list(w, op, USES, &listed->uses);
}

static bool list_taken(struct listing_work *w, int op)
{
	const struct program *program = w->f->program;
	for (int i = 0; i < program->ops[op].takes.count; i++) {
		struct listed_names *names =
			&w->unfolding->buffers[slice_of(program, program->ops[op].takes)[i]];
		if (!listing_name(w, op, (struct named){OF_TAKEN, UNITS, i}, &names->unit) ||
			!listing_name(w, op, (struct named){OF_TAKEN, LAYERS, i}, &names->layer) ||
			!listing_name(w, op, (struct named){OF_TAKEN, MODULES, i}, &names->module))
			return false;
	}
	return true;
}

/* The unit goes on with the copies of its buffer. */
static void list_residents(struct listing_work *w)
{
	const struct program *program = w->f->program;
	for (int b = 0; b < program->n_buffers && program->buffers[b].resident; b++) {
		int unit = program->buffers[b].unit;
		struct listed_names *names = &w->unfolding->buffers[b];
		*names = (struct listed_names){{-1, 0}, {-1, 0}, {-1, 0}};
		if (unit < 0)
			continue;
		int layer = w->f->shorter->model.modules[w->f->program->units[unit].module].layer;
		names->unit.first = w->spaces[UNITS].first[unit];
		if (buffer_times(&program->buffers[b]) > 1)
			names->unit.by = w->spaces[UNITS].by[w->f->run_of[w->f->group_of[layer]]];
	}
}

bool fold_list_all(const struct folding *f, const struct model *model, const struct plan *plan)
{
	struct listing_work w = {.f = f, .capacity = 2 * f->program->n_indices + 64};
	w.unfolding = ARENA_NEW(f->arena, struct unfolding);
	if (!fold_find_uses(f) || !listing_find_spaces(&w) || !find_taken(&w))
		return false;
	w.unfolding->ops = ARENA_ARRAY(f->arena, struct listed, f->program->n_ops);
	w.unfolding->buffers = ARENA_ARRAY(f->arena, struct listed_names, f->program->n_buffers);
	w.unfolding->numbers = ARENA_ARRAY(f->arena, struct position, w.capacity);
	for (int x = 0; x < f->program->n_ops; x++)
		if (!list_op(&w, x) || !list_taken(&w, x))
			return false;
	list_residents(&w);
	w.unfolding->n_units = f->program->n_units;
	w.unfolding->units = f->program->units;
	if (f->shorter->n_cuts > 0)
		w.unfolding->n_units = units_build(plan, model, f->arena, &w.unfolding->units);
	if (w.unfolding->n_units != w.spaces[UNITS].n)
		return false;
	f->program->unfolding = w.unfolding;
	return true;
}
