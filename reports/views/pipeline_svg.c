/* The pipeline as a picture: a row for each stage, a box for each pass, with the number of its
 * micro-batch. The middle of a step of many micro-batches is left out, so that numbers are
 * readable. */
#include <stdio.h>
#include <string.h>

#include "reports/views/each.h"
#include "reports/views/pipeline_passes.h"
#include "reports/views/svg.h"
#include "schedule/pipeline/pipeline.h"

enum { LEFT = 112, RIGHT = 96, TOP = 44, ROW = 34, BOX = 24, LEAST = 860, MOST = 2600 };
/* ENDS passes are drawn at each end of a step that has WORTH_CUTTING more. Widths in pixels: of a
 * forward pass, of the cut, between ticks. */
enum { ENDS = 40, WORTH_CUTTING = 20, FORWARD_WIDTH = 22, CUT = 34, TICK = 110 };

struct row {
	int n;
	struct stage_pass *passes;
};

struct drawing {
	const struct explained *explained;
	int n; /* rows */
	struct row *rows;
	int chunks;
	double end;          /* s */
	double cut0, cut1;   /* s between which the step is cut; equal: it is not */
	double scale, width; /* pixels per second; pixels */
};

static int fullest(const struct drawing *drawing)
{
	int most = 0;

	for (int s = 1; s < drawing->n; s++)
		if (drawing->rows[s].n > drawing->rows[most].n)
			most = s;
	return most;
}

static void find_passes(struct drawing *drawing, struct arena *arena)
{
	drawing->rows = ARENA_ARRAY(arena, struct row, drawing->n);
	for (int s = 0; s < drawing->n; s++) {
		struct row *row = &drawing->rows[s];
		row->n = passes_of(drawing->explained, s, arena, &row->passes);
		for (int i = 0; i < row->n; i++)
			if (row->passes[i].chunk >= drawing->chunks)
				drawing->chunks = row->passes[i].chunk + 1;
	}
}

static void cut_middle(struct drawing *drawing)
{
	const struct row *row = &drawing->rows[fullest(drawing)];

	drawing->cut0 = drawing->cut1 = drawing->end;
	if (row->n < 2 * ENDS + WORTH_CUTTING)
		return;
	drawing->cut0 = row->passes[ENDS - 1].end;
	drawing->cut1 = row->passes[row->n - ENDS].start;
}

static double usual_forward(const struct drawing *drawing)
{
	double sum = 0;
	int n = 0;

	for (int s = 0; s < drawing->n; s++)
		for (int i = 0; i < drawing->rows[s].n; i++) {
			const struct stage_pass *pass = &drawing->rows[s].passes[i];
			if (pass->kind != OP_FORWARD)
				continue;
			sum += pass->end - pass->start;
			n++;
		}
	return n > 0 ? sum / n : drawing->end;
}

static void choose_scale(struct drawing *drawing)
{
	double shown = drawing->end - (drawing->cut1 - drawing->cut0);
	double usual = usual_forward(drawing);
	double width = usual > 0 ? shown / usual * FORWARD_WIDTH : LEAST;

	width = width < LEAST ? LEAST : width > MOST ? MOST : width;
	drawing->scale = shown > 0 ? width / shown : 1;
	drawing->width = LEFT + width + (drawing->cut1 > drawing->cut0 ? CUT : 0);
}

static double place(const struct drawing *drawing, double time)
{
	if (time <= drawing->cut0)
		return LEFT + time * drawing->scale;
	if (time < drawing->cut1)
		return LEFT + drawing->cut0 * drawing->scale + CUT / 2.0;
	double cut = drawing->cut1 > drawing->cut0 ? CUT : 0;
	return LEFT + cut + (time - (drawing->cut1 - drawing->cut0)) * drawing->scale;
}

/* Clips an interval to what is drawn. False: nothing of it is. */
static bool clip(const struct drawing *drawing, double *start, double *end)
{
	if (*start >= drawing->cut0 && *end <= drawing->cut1)
		return false;
	if (*start<drawing->cut0 && * end> drawing->cut0 && *end < drawing->cut1)
		*end = drawing->cut0;
	if (*start > drawing->cut0 && *start<drawing->cut1 && * end> drawing->cut1)
		*start = drawing->cut1;
	return true;
}

/* The colour of a pass: each chunk is paler than the one before. */
static const char *shade(const struct drawing *drawing, const struct stage_pass *pass, char fill[8])
{
	double pale = drawing->chunks > 1 ? 0.6 * pass->chunk / (drawing->chunks - 1) : 0;
	unsigned red, green, blue;

	if (sscanf(pass_kind(pass->kind).fill, "#%2x%2x%2x", &red, &green, &blue) != 3)
		return "#8c8c8c";
	snprintf(fill, 8, "#%02x%02x%02x", (unsigned)(red + pale * (255 - red)) & 255,
		(unsigned)(green + pale * (255 - green)) & 255,
		(unsigned)(blue + pale * (255 - blue)) & 255);
	return fill;
}

static void describe(
	const struct drawing *drawing, const struct stage_pass *pass, struct text *words)
{
	char takes[32], starts[32];

	text_clear(words);
	text_add(words, pass_kind(pass->kind).name);
	if (pass_kind(pass->kind).counts)
		text_printf(words, " of micro-batch %d", pass->micro_batch);
	if (drawing->chunks > 1 && pass_kind(pass->kind).counts)
		text_printf(words, ", chunk %d", pass->chunk);
	text_printf(words, ": %s from %s", format_seconds(takes, pass->end - pass->start),
		format_seconds(starts, pass->start));
}

static void add_passes(const struct drawing *drawing, const struct row *row, double y,
	struct text *words, struct text *text)
{
	char name[16], fill[8];

	for (int i = 0; i < row->n; i++) {
		const struct stage_pass *pass = &row->passes[i];
		double start = pass->start, end = pass->end;
		if (!clip(drawing, &start, &end))
			continue;
		double x = place(drawing, start);
		const struct picture_box box = {x, y, place(drawing, end) - x - 0.5, BOX};
		describe(drawing, pass, words);
		name[0] = '\0';
		if (pass_kind(pass->kind).counts)
			snprintf(name, sizeof(name), "%d", pass->micro_batch);
		picture_named_box(&box, shade(drawing, pass, fill), name, text_string(words), text);
	}
}

/* Puts the name in the longest gap between two passes, or before the first. Gaps before the
 * optimizer do not count, because gradients are reduced there. */
static void name_bubble(
	const struct drawing *drawing, const struct row *row, double y, struct text *text)
{
	double widest = 0, middle = 0, before = 0;

	for (int i = 0; i < row->n; i++) {
		double start = before, end = row->passes[i].start;
		before = row->passes[i].end;
		if (row->passes[i].kind == OP_OPTIMIZER || !clip(drawing, &start, &end))
			continue;
		double width = place(drawing, end) - place(drawing, start);
		if (width <= widest)
			continue;
		widest = width;
		middle = place(drawing, start) + width / 2;
	}
	if (picture_fits(widest, 11, "bubble"))
		picture_label(middle, y + BOX / 2.0 + 4, "middle", 11, "bubble", text);
}

/* Puts the stage and its ranks to the left, its bubble to the right. */
static void name_row(
	const struct drawing *drawing, int stage, double y, struct text *words, struct text *text)
{
	const struct prediction *prediction = drawing->explained->prediction;
	long long ranks = (long long)(plan_ranks(&drawing->explained->schedule->plan) / drawing->n);
	char percent[32];

	text_clear(words);
	text_printf(words, "stage %d", stage);
	picture_label(8, y + 11, "start", 12, text_string(words), text);
	text_clear(words);
	text_printf(words, ranks > 1 ? "ranks %lld-%lld" : "rank %lld", stage * ranks,
		(stage + 1) * ranks - 1);
	picture_label(8, y + 23, "start", 10, text_string(words), text);
	if (prediction->classes == NULL || stage >= prediction->n_classes)
		return;
	text_clear(words);
	text_printf(words, "bubble %s",
		format_percent(percent,
			prediction->classes[stage].bubble / prediction->classes[stage].step_time));
	picture_label(drawing->width + 8, y + 16, "start", 11, text_string(words), text);
}

static void add_axis(const struct drawing *drawing, double y, struct text *text)
{
	double step = round_step(TICK / drawing->scale);
	char buffer[32];

	for (int i = 0; i * step <= drawing->end; i++) {
		double time = i * step, x = place(drawing, time);
		if (time > drawing->cut0 && time < drawing->cut1)
			continue;
		picture_line(x, y, x, y + 5, false, text);
		picture_label(x, y + 18, "middle", 11, format_seconds(buffer, time), text);
	}
	picture_line(LEFT, y, place(drawing, drawing->cut0), y, false, text);
	picture_line(place(drawing, drawing->cut1), y, drawing->width, y, false, text);
	if (drawing->cut1 <= drawing->cut0)
		return;
	picture_line(place(drawing, drawing->cut0) + 2, TOP - 4, place(drawing, drawing->cut0) + 2,
		y, true, text);
	picture_line(place(drawing, drawing->cut1) - 2, TOP - 4, place(drawing, drawing->cut1) - 2,
		y, true, text);
	picture_label(place(drawing, drawing->cut0) + CUT / 2.0, y - 8, "middle", 12, "...", text);
}

/* Adds one box for each kind and chunk that occurs. */
static void add_legend(
	const struct drawing *drawing, double y, struct text *words, struct text *text)
{
	static const enum op_kind order[] = {
		OP_FORWARD, OP_BACKWARD, OP_BACKWARD_WEIGHT, OP_OPTIMIZER};
	const struct plan *plan = &drawing->explained->schedule->plan;
	double x = LEFT;
	char fill[8], time[32];

	for (int k = 0; k < COUNT_OF(order); k++) {
		bool counts = pass_kind(order[k]).counts;
		if (order[k] == OP_BACKWARD_WEIGHT &&
			!pipeline_splits_backward(plan->pipeline_schedule))
			continue;
		for (int c = 0; c < (counts ? drawing->chunks : 1); c++) {
			const struct stage_pass pass = {.kind = order[k], .chunk = c};
			picture_box(x, y, 12, 12, shade(drawing, &pass, fill), NULL, text);
			x += 16;
		}
		picture_label(x, y + 10, "start", 11, pass_kind(order[k]).name, text);
		x += 12 + 6.4 * (double)strlen(pass_kind(order[k]).name);
	}
	text_clear(words);
	if (drawing->chunks > 1)
		text_printf(words, "paler: chunk 1%s. ", drawing->chunks > 2 ? " and on" : "");
	text_add(words, "Numbers are micro-batches, blank is idle");
	if (drawing->cut1 > drawing->cut0)
		text_printf(words, "; %s are left out",
			format_seconds(time, drawing->cut1 - drawing->cut0));
	text_add(words, ".");
	picture_label(x + 4, y + 10, "start", 11, text_string(words), text);
}

static void add_all(const struct drawing *drawing, struct text *text)
{
	const struct plan *plan = &drawing->explained->schedule->plan;
	double bottom = TOP + drawing->n * ROW;
	struct text words = {0}, title = {0};

	text_printf(&title, "A step of %d stage%s, %lld micro-batch%s", drawing->n,
		drawing->n == 1 ? "" : "s", (long long)plan->grad_accum,
		plan->grad_accum == 1 ? "" : "es");
	if (drawing->n > 1)
		text_printf(&title, ", %s", pipeline_schedule_names[plan->pipeline_schedule]);
	picture_begin((int)drawing->width + RIGHT, (int)bottom + 56, text_string(&title),
		"A row is a stage of the pipeline, a box a pass of one micro-batch, at its time; "
		"blank: nothing is computed",
		false, text);
	picture_label(8, 20, "start", 14, text_string(&title), text);
	for (int s = 0; s < drawing->n; s++) {
		double y = TOP + s * ROW;
		name_row(drawing, s, y, &words, text);
		add_passes(drawing, &drawing->rows[s], y, &words, text);
		name_bubble(drawing, &drawing->rows[s], y, text);
	}
	add_axis(drawing, bottom + 2, text);
	add_legend(drawing, bottom + 32, &words, text);
	picture_end(text);
	text_finish(&words);
	text_finish(&title);
}

void picture_pipeline(const struct explained *explained, struct text *text)
{
	struct arena arena = {0};
	struct drawing drawing = {.explained = explained, .n = stage_count(explained), .chunks = 1};

	find_passes(&drawing, &arena);
	drawing.end = pipeline_end(explained);
	cut_middle(&drawing);
	choose_scale(&drawing);
	add_all(&drawing, text);
	arena_finish(&arena);
}
