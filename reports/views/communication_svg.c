/* The communication of a step as a picture: computation in the upper lane, and the collectives of
 * each stream below, under the computation that they run beside. Every computation has the same
 * width, and the middle of a deep model is left out, so that the pattern is readable. */
#include <string.h>

#include "reports/views/collective_order.h"
#include "reports/views/each.h"
#include "reports/views/svg.h"

enum { LEFT = 96, SLOT = 74, ELIDED = 64, LANE = 46, BOX = 30, TOP = 40, MOST_GAP = 56 };

/* One unit's computation of one kind. */
struct slot {
	int op, unit;
	enum op_kind kind;
	double start, end; /* s */
	bool kept;
	double x0, x1;
};

struct drawing {
	const struct schedule *schedule;
	const struct timeline *timeline;
	int n;
	struct slot *slots;
	double width;
	int micro_batch;
};

static bool belongs(const struct drawing *drawing, const struct op *op)
{
	return op->micro_batch == drawing->micro_batch || op->micro_batch < 0;
}

static void find_slots(struct drawing *drawing, struct arena *arena)
{
	const struct program *program = &drawing->schedule->programs[0];

	drawing->slots = ARENA_ARRAY(arena, struct slot, program->n_ops);
	for (int i = 0; i < program->n_ops && i < drawing->timeline->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const struct span *span = &drawing->timeline->spans[i];
		struct slot *last = drawing->n > 0 ? &drawing->slots[drawing->n - 1] : NULL;
		bool computes =
			op_kind_class(op->kind) == OP_CLASS_COMPUTE || op->kind == OP_OPTIMIZER;
		if (!computes || !belongs(drawing, op))
			continue;
		if (last != NULL && last->kind == op->kind &&
			(last->unit == op->unit || op->kind == OP_OPTIMIZER))
			last->end = span->end;
		else
			drawing->slots[drawing->n++] = (struct slot){.op = i,
				.unit = op->unit,
				.kind = op->kind,
				.start = span->start,
				.end = span->end};
	}
}

/* Chooses the units that are drawn: the first three, five around the turn to backward, the last
 * four. */
static void choose_slots(struct drawing *drawing)
{
	int turn = 0, n = drawing->n;

	while (turn < n && drawing->slots[turn].kind == OP_FORWARD)
		turn++;
	for (int i = 0; i < n; i++)
		drawing->slots[i].kept =
			n <= 16 || i < 3 || (i >= turn - 2 && i <= turn + 2) || i >= n - 4;
}

static double usual_time(const struct drawing *drawing)
{
	double sum = 0;

	for (int i = 0; i < drawing->n; i++)
		sum += drawing->slots[i].end - drawing->slots[i].start;
	return drawing->n > 0 ? sum / drawing->n : 1;
}

/* Places computations. Idle time between them keeps its length, up to MOST_GAP. */
static void place_slots(struct drawing *drawing)
{
	double x = LEFT, usual = usual_time(drawing), before = 0;

	for (int i = 0, end; i < drawing->n; i = end) {
		struct slot *slot = &drawing->slots[i];
		double gap = usual > 0 ? (slot->start - before) / usual * SLOT : 0;
		x += gap < 2 ? 2 : gap > MOST_GAP ? MOST_GAP : gap;
		for (end = i + 1; end < drawing->n && !slot->kept && !drawing->slots[end].kept;)
			end++;
		double each = slot->kept ? SLOT : (double)ELIDED / (end - i);
		for (int k = i; k < end; k++, x += each) {
			drawing->slots[k].x0 = x;
			drawing->slots[k].x1 = x + each;
		}
		before = drawing->slots[end - 1].end;
	}
	drawing->width = x + MOST_GAP;
}

/* The x of a moment. */
static double place(const struct drawing *drawing, double time)
{
	double t0 = 0, x0 = LEFT;

	for (int i = 0; i < drawing->n; i++) {
		const struct slot *slot = &drawing->slots[i];
		if (time < slot->start)
			return slot->start > t0
				       ? x0 + (time - t0) / (slot->start - t0) * (slot->x0 - x0)
				       : x0;
		if (time < slot->end)
			return slot->x0 + (time - slot->start) / (slot->end - slot->start) *
						  (slot->x1 - slot->x0);
		t0 = slot->end;
		x0 = slot->x1;
	}
	double after = (time - t0) / usual_time(drawing) * SLOT;
	return x0 + (after > MOST_GAP ? MOST_GAP : after);
}

/* A label like "F 3" or "B root", with the end of the unit's name. */
static void short_label(
	const struct schedule *schedule, enum op_kind kind, int unit, struct text *label)
{
	const char *name = unit >= 0 && unit < schedule->programs->n_units
				   ? or_empty(schedule->programs->units[unit].name)
				   : "";
	const char *dot = strrchr(name, '.');

	text_clear(label);
	text_printf(label, "%c %s", kind_appearance(kind).letter, dot != NULL ? dot + 1 : name);
}

static void add_slots(const struct drawing *drawing, struct text *text)
{
	struct text label = {0}, words = {0};
	char time[32];

	for (int i = 0, left_out = 0; i < drawing->n; i++) {
		const struct slot *slot = &drawing->slots[i];
		left_out = slot->kept ? 0 : left_out + 1;
		if (!slot->kept) {
			bool last = i + 1 == drawing->n || drawing->slots[i + 1].kept;
			if (last) {
				text_clear(&label);
				text_printf(&label, "%d more", left_out);
				picture_label(slot->x1 - ELIDED / 2.0, TOP + 19, "middle", 11,
					text_string(&label), text);
			}
			continue;
		}
		text_clear(&words);
		operation_label(
			drawing->schedule, &drawing->schedule->programs[0].ops[slot->op], &words);
		text_printf(&words, ": %s", format_seconds(time, slot->end - slot->start));
		short_label(drawing->schedule, slot->kind,
			slot->kind == OP_OPTIMIZER ? -1 : slot->unit, &label);
		const struct picture_box box = {slot->x0, TOP, SLOT - 2, BOX};
		picture_named_box(&box, picture_color(slot->kind), text_string(&label),
			text_string(&words), text);
	}
	text_finish(&label);
	text_finish(&words);
}

static double lane_of(const struct drawing *drawing, enum stream stream)
{
	static const enum stream order[] = {STREAM_GATHER, STREAM_REDUCE, STREAM_REPLICATE};
	bool used[STREAM_COUNT];
	double y = TOP + LANE;

	streams_used(drawing->schedule, used);
	for (int i = 0; i < COUNT_OF(order); i++) {
		if (order[i] == stream)
			return y;
		y += used[order[i]] ? LANE : 0;
	}
	return y;
}

/* The computation of the unit that waits for this gather, or whose gradients this reduction has. */
static const struct slot *partner(
	const struct drawing *drawing, const struct op *op, const struct span *span)
{
	const struct slot *found = NULL;

	for (int i = 0; i < drawing->n; i++) {
		const struct slot *slot = &drawing->slots[i];
		if (slot->unit != op->unit || slot->kind == OP_OPTIMIZER)
			continue;
		if (op->kind == OP_ALL_GATHER && slot->start >= span->end)
			return slot;
		if (op->kind != OP_ALL_GATHER && slot->end <= span->start * (1 + 1e-9))
			found = slot;
	}
	return found;
}

static void add_link(const struct drawing *drawing, const struct op *op, const struct span *span,
	double y, struct text *text)
{
	const struct slot *slot = partner(drawing, op, span);

	if (slot == NULL || !slot->kept)
		return;
	if (op->kind == OP_ALL_GATHER)
		picture_line(place(drawing, span->end), y, slot->x0 + 3, TOP + BOX, false, text);
	else if (op->kind == OP_REDUCE_SCATTER || op->stream != STREAM_REPLICATE)
		picture_line(slot->x1 - 5, TOP + BOX, place(drawing, span->start), y, false, text);
}

static void describe(
	const struct schedule *schedule, const struct carried *carried, struct text *words)
{
	const struct op *op = &schedule->programs[0].ops[carried->op];
	const struct group *group = &schedule->groups[op->group];
	char buffer[32];

	operation_label(schedule, op, words);
	text_printf(words, " over %lld ranks (%s)", (long long)group->size,
		group_kind_names[group->kind]);
	text_printf(words, ": %s", format_bytes(buffer, (double)op->bytes));
	text_printf(words, ", %s", format_seconds(buffer, carried->takes));
	text_printf(words, ", exposed %s", format_seconds(buffer, carried->exposed));
}

/* Pixels from x to the next collective of the same lane. */
static double room_after(const struct drawing *drawing, const struct carried *carried, int n,
	enum stream stream, double x)
{
	for (int i = 1; i < n; i++) {
		const struct op *op = &drawing->schedule->programs[0].ops[carried[i].op];
		if (op->stream == stream && belongs(drawing, op))
			return place(drawing, drawing->timeline->spans[carried[i].op].start) - x;
	}
	return drawing->width - x;
}

/* Draws the first of `n` collectives. */
static void add_collective(
	const struct drawing *drawing, const struct carried *carried, int n, struct text *text)
{
	const struct schedule *schedule = drawing->schedule;
	const struct op *op = &schedule->programs[0].ops[carried->op];
	const struct span *span = &drawing->timeline->spans[carried->op];
	double x0 = place(drawing, span->start), x1 = place(drawing, span->end);
	const struct picture_box box = {x0, lane_of(drawing, op->stream), x1 - x0, BOX};
	struct text words = {0}, label = {0};

	if (!belongs(drawing, op))
		return;
	describe(schedule, carried, &words);
	short_label(schedule, op->kind, op->unit, &label);
	picture_named_box(
		&box, picture_color(op->kind), text_string(&label), text_string(&words), text);
	add_link(drawing, op, span, box.y, text);
	if (!picture_fits(box.width, 11, text_string(&label)) &&
		picture_fits(
			room_after(drawing, carried, n, op->stream, x1), 10, text_string(&label)))
		picture_label(x1 + 3, box.y + 19, "start", 10, text_string(&label), text);
	text_finish(&words);
	text_finish(&label);
}

static void add_exposed(
	const struct drawing *drawing, int height, struct arena *arena, struct text *text)
{
	struct interval *gaps;
	int n = exposed_intervals(drawing->schedule, drawing->timeline, arena, &gaps);

	for (int i = 0; i < n; i++) {
		double x0 = place(drawing, gaps[i].start), x1 = place(drawing, gaps[i].end);
		if (x1 - x0 >= 1)
			text_printf(text,
				"<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" "
				"fill=\"#d0202f\" fill-opacity=\".16\"/>\n",
				x0, TOP - 8, x1 - x0, height - TOP - 30);
	}
}

static void add_lanes(const struct drawing *drawing, struct text *text)
{
	static const struct {
		enum stream stream;
		const char *name;
	} lanes[] = {{STREAM_GATHER, "all-gather"}, {STREAM_REDUCE, "reduction"},
		{STREAM_REPLICATE, "all-reduce"}};
	bool used[STREAM_COUNT];

	streams_used(drawing->schedule, used);
	picture_label(8, TOP + 19, "start", 12, "computes", text);
	for (int i = 0; i < COUNT_OF(lanes); i++) {
		double y = lane_of(drawing, lanes[i].stream);
		if (!used[lanes[i].stream])
			continue;
		picture_label(8, y + 19, "start", 12, lanes[i].name, text);
		picture_line(LEFT, y + BOX + 5, drawing->width, y + BOX + 5, true, text);
	}
}

static void add_all(struct drawing *drawing, struct arena *arena, struct text *text)
{
	struct carried *carried;
	int height = (int)lane_of(drawing, STREAM_COUNT) + 40;
	int n = carried_of(drawing->schedule, drawing->timeline, arena, &carried);
	struct text title = {0};

	text_printf(&title, "Communication of %s under %s",
		drawing->schedule->plan.grad_accum > 1 ? "the last micro-batch" : "a step",
		strategy_names[drawing->schedule->plan.strategy]);
	picture_begin((int)drawing->width + 8, height, text_string(&title),
		"Computations above, collectives below at their time; "
		"computations are drawn equally wide; red: nothing computes",
		false, text);
	picture_label(8, 18, "start", 14, text_string(&title), text);
	add_exposed(drawing, height, arena, text);
	add_lanes(drawing, text);
	add_slots(drawing, text);
	for (int i = 0; i < n; i++)
		add_collective(drawing, &carried[i], n - i, text);
	picture_label(8, height - 12, "start", 11,
		"F forward, L loss, r recompute, B backward, O optimizer, G all-gather, "
		"S reduce-scatter, A all-reduce; red: nothing computes meanwhile",
		text);
	picture_end(text);
	text_finish(&title);
}

void picture_communication(const struct explained *explained, struct text *text)
{
	struct arena arena = {0};
	struct drawing drawing = {.schedule = explained->schedule,
		.timeline = explained->predicted,
		.micro_batch = (int)explained->schedule->plan.grad_accum - 1};

	find_slots(&drawing, &arena);
	choose_slots(&drawing);
	place_slots(&drawing);
	add_all(&drawing, &arena, text);
	arena_finish(&arena);
}
