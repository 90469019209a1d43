/* The view of streams: a row of letters for each, and the critical path. */
#include <string.h>

#include "reports/views/each.h"

enum { NAME_WIDTH = 16, DEFAULT_WIDTH = 100, MAX_BUCKETS = 400 };

/* The part of a step that is drawn, in `n` columns of `width` seconds. */
struct window {
	double start, width;
	int n;
};

static double window_end(const struct window *window)
{
	return window->start + window->width * window->n;
}

static double seconds_between(const struct interval *span, double from, double to)
{
	double start = span->start > from ? span->start : from;
	double end = span->end < to ? span->end : to;

	return end > start ? end - start : 0;
}

/* The seconds of `span` in column `b`. */
static double overlap(const struct interval *span, int b, const struct window *window)
{
	double from = window->start + b * window->width;

	return seconds_between(span, from, from + window->width);
}

static int bucket_of(double time, const struct window *window)
{
	int bucket = window->width > 0 ? (int)((time - window->start) / window->width) : 0;

	return bucket < 0 ? 0 : bucket >= window->n ? window->n - 1 : bucket;
}

/* Draws a stream: each column shows the kind that fills most of it; '-' or '.' if more than half of
 * it is idle. Returns the seconds in which the stream is busy. */
static double draw_stream(const struct schedule *schedule, const struct timeline *timeline,
	enum stream stream, const struct window *window, char *row)
{
	double sum = 0, width = window->width;
	int n = window->n;

	const struct program *program = &schedule->programs[0];
	double busy[MAX_BUCKETS] = {0}, most[MAX_BUCKETS] = {0};

	memset(row, '.', (size_t)n);
	row[n] = '\0';
	for (int i = 0; i < program->n_ops && i < timeline->n_ops; i++) {
		struct interval span = {timeline->spans[i].start, timeline->spans[i].end};
		if (program->ops[i].stream != stream || !(span.end > span.start))
			continue;
		int last = bucket_of(span.end, window);
		for (int b = bucket_of(span.start, window); b <= last; b++) {
			double seconds = overlap(&span, b, window);
			busy[b] += seconds;
			sum += seconds;
			if (seconds > most[b]) {
				most[b] = seconds;
				row[b] = kind_appearance(program->ops[i].kind).letter;
			}
		}
	}
	for (int b = 0; b < n; b++) {
		if (busy[b] < width / 2)
			row[b] = busy[b] < width / 20 ? '.' : '-';
	}
	return sum;
}

static double draw_exposed(const struct schedule *schedule, const struct timeline *timeline,
	const struct window *window, char *row)
{
	double width = window->width;
	int n = window->n;
	struct arena arena = {0};
	struct interval *intervals;
	int n_intervals = exposed_intervals(schedule, timeline, &arena, &intervals);
	double exposed[MAX_BUCKETS] = {0}, sum = 0;

	for (int i = 0; i < n_intervals; i++) {
		int last = bucket_of(intervals[i].end, window);
		sum += seconds_between(&intervals[i], window->start, window_end(window));
		for (int b = bucket_of(intervals[i].start, window); b <= last; b++)
			exposed[b] += overlap(&intervals[i], b, window);
	}
	for (int b = 0; b < n; b++)
		row[b] = exposed[b] >= width / 2 ? '!' : exposed[b] > width / 20 ? '\'' : ' ';
	row[n] = '\0';
	arena_finish(&arena);
	return sum;
}

static void add_row(
	const char *name, const char *row, double seconds, double end, struct text *text)
{
	char buffer[32];

	text_printf(text, " %-*s%s  %s", NAME_WIDTH, name, row, format_seconds(buffer, seconds));
	text_printf(text, " (%.0f %%)\n", end > 0 ? seconds / end * 100 : 0);
}

static void draw_window(const struct schedule *schedule, const struct timeline *timeline,
	const struct window *window, struct text *text)
{
	double takes = window->width * window->n;
	char row[MAX_BUCKETS + 1], from[32], to[32];
	bool used[STREAM_COUNT];

	streams_used(schedule, used);
	for (int s = 0; s < STREAM_COUNT; s++) {
		if (!used[s])
			continue;
		double busy = draw_stream(schedule, timeline, (enum stream)s, window, row);
		add_row(stream_name((enum stream)s), row, busy, takes, text);
	}
	double exposed = draw_exposed(schedule, timeline, window, row);
	add_row("exposed", row, exposed, takes, text);
	format_seconds(from, window->start);
	text_printf(text, " %-*s%s%*s\n\n", NAME_WIDTH, "", from, window->n - (int)strlen(from),
		format_seconds(to, window_end(window)));
}

/* The block in the middle of the model; -1: there are fewer than two. */
static int middle_block(const struct program *program)
{
	int last = -1;

	for (int i = 0; i < program->n_ops; i++) {
		if (program->ops[i].kind == OP_FORWARD && program->ops[i].layer > last)
			last = program->ops[i].layer;
	}
	return last < 1 ? -1 : (last - 1) / 2;
}

/* The interval in which `block` and the next one compute in the first micro-batch; empty if they do
 * not. */
static struct interval two_blocks(const struct program *program, const struct timeline *timeline,
	int block, enum op_kind kind)
{
	struct interval interval = {0};
	bool found = false;

	for (int i = 0; i < program->n_ops && i < timeline->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const struct span *span = &timeline->spans[i];
		if (op->kind != kind || op->micro_batch > 0 || op->layer < block ||
			op->layer > block + 1)
			continue;
		if (!found || span->start < interval.start)
			interval.start = span->start;
		if (!found || span->end > interval.end)
			interval.end = span->end;
		found = true;
	}
	return interval;
}

/* Draws two blocks in detail, because the gathers of single blocks are invisible over a whole
 * step. */
static void draw_blocks(const char *name, const struct schedule *schedule,
	const struct timeline *timeline, int n, enum op_kind kind, struct text *text)
{
	const struct program *program = &schedule->programs[0];
	int block = middle_block(program);

	if (block < 0)
		return;
	const struct interval interval = two_blocks(program, timeline, block, kind);
	if (!(interval.end > interval.start))
		return;
	text_printf(text, "%s, %s of blocks %d and %d, zoomed\n", name,
		kind == OP_FORWARD ? "forward" : "backward", kind == OP_FORWARD ? block : block + 1,
		kind == OP_FORWARD ? block + 1 : block);
	draw_window(schedule, timeline,
		&(struct window){interval.start, (interval.end - interval.start) / n, n}, text);
}

static void draw_timeline(const char *name, const struct schedule *schedule,
	const struct timeline *timeline, const struct style *style, struct text *text)
{
	int n = (style->width > 0 ? style->width : DEFAULT_WIDTH) - NAME_WIDTH - 20;

	n = n < 20 ? 20 : n > MAX_BUCKETS ? MAX_BUCKETS : n;
	text_printf(text, "%s, the whole step\n", name);
	draw_window(schedule, timeline, &(struct window){0, timeline_end(timeline) / n, n}, text);
	draw_blocks(name, schedule, timeline, n, OP_FORWARD, text);
	draw_blocks(name, schedule, timeline, n, OP_BACKWARD, text);
}

void view_streams(const struct explained *explained, const struct style *style, struct text *text)
{
	const struct measurement *measured = explained->measured;

	draw_timeline("Predicted", explained->schedule, explained->predicted, style, text);
	if (measured != NULL && measured->timeline.n_ops > 0)
		draw_timeline("Measured", explained->schedule, &measured->timeline, style, text);
	text_add(text, "F forward  B backward (W of weights)  r recompute  L loss  O optimizer\n"
		       "G all-gather  S reduce-scatter  A all-reduce  c cast or copy  n norm\n"
		       "h d host copies  - busy for less than half of the column  . idle\n"
		       "! exposed communication  ' exposed for less than half of the column\n");
}

static bool is_preparation(const char *css)
{
	return strcmp(css, "k-prepare") == 0;
}

/* Sums the predicted critical path by reason and kind. */
static void add_critical_sums(
	const struct explained *explained, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"on the critical path", GRID_LEFT},
		{"operations", GRID_RIGHT}, {"seconds", GRID_RIGHT}, {"of the step", GRID_RIGHT}};
	const struct critical_path *path = explained->critical;
	const struct timeline *timeline = explained->predicted;
	double seconds[OP_KIND_COUNT] = {0}, end = timeline_end(timeline);
	int counts[OP_KIND_COUNT] = {0};
	struct grid grid;

	for (int i = 0; i < path->n; i++) {
		const struct span *span = &timeline->spans[path->ops[i]];
		enum op_kind kind = explained->schedule->programs[0].ops[path->ops[i]].kind;
		seconds[kind] += span->end - span->start;
		counts[kind]++;
	}
	grid_init(&grid, columns, COUNT_OF(columns));
	for (int k = 0; k < OP_KIND_COUNT; k++) {
		if (counts[k] == 0)
			continue;
		grid_row(&grid, GRID_PLAIN);
		grid_add(&grid, "%s", op_kind_name((enum op_kind)k));
		grid_add_count(&grid, counts[k]);
		grid_add_seconds(&grid, seconds[k]);
		grid_add_percent(&grid, end > 0 ? seconds[k] / end : 0);
	}
	put_text(&grid, style, text);
}

/* Consecutive operations of the path on a busy stream with one purpose. */
struct run {
	int first, last; /* indices in the path */
	const char *css; /* of its purpose; NULL: so far it only prepares */
};

static bool goes_on(const struct explained *explained, const struct run *run, int i)
{
	const struct critical_path *path = explained->critical;
	const struct op *ops = explained->schedule->programs[0].ops;
	const char *css = kind_appearance(ops[path->ops[i]].kind).css;

	return path->reasons[i] == CRITICAL_STREAM &&
	       (is_preparation(css) || run->css == NULL || strcmp(css, run->css) == 0);
}

static struct run next_run(const struct explained *explained, int first)
{
	const struct critical_path *path = explained->critical;
	const struct op *ops = explained->schedule->programs[0].ops;
	struct run run = {first, first, NULL};

	for (int i = first; i < path->n; i++) {
		const char *css = kind_appearance(ops[path->ops[i]].kind).css;
		if (i > first && !goes_on(explained, &run, i))
			break;
		if (!is_preparation(css))
			run.css = css;
		run.last = i;
	}
	return run;
}

static void add_run(const struct explained *explained, const struct run *run, struct grid *grid)
{
	static const char *const reasons[] = {"issued late by the host", "stream was busy",
		"communicator was busy", "waited for the one above", "the step begins"};
	const struct critical_path *path = explained->critical;
	const struct schedule *schedule = explained->schedule;
	const struct span *spans = explained->predicted->spans;
	int first = path->ops[run->first], last = path->ops[run->last];
	struct text label = {0};

	operation_label(schedule, &schedule->programs[0].ops[first], &label);
	if (first != last) {
		text_add(&label, " ... ");
		operation_label(schedule, &schedule->programs[0].ops[last], &label);
	}
	grid_row(grid, GRID_PLAIN);
	grid_add(grid, "%d", first);
	grid_add_count(grid, run->last - run->first + 1);
	grid_add_seconds(grid, spans[first].start);
	grid_add_seconds(grid, spans[last].end - spans[first].start);
	grid_add(grid, "%s", reasons[path->reasons[run->first]]);
	grid_add(grid, "%s", text_string(&label));
	text_finish(&label);
}

void view_critical(const struct explained *explained, const struct style *style, struct text *text)
{
	static const struct grid_column columns[] = {{"op", GRID_RIGHT}, {"operations", GRID_RIGHT},
		{"starts", GRID_RIGHT}, {"takes", GRID_RIGHT}, {"why not earlier", GRID_LEFT},
		{"from ... to", GRID_WRAP}};
	const struct critical_path *path = explained->critical;
	struct grid grid;

	if (path == NULL || path->n == 0) {
		text_add(text, "No critical path was computed.\n");
		return;
	}
	add_critical_sums(explained, style, text);
	grid_init(&grid, columns, COUNT_OF(columns));
	for (int i = 0; i < path->n;) {
		struct run run = next_run(explained, i);
		add_run(explained, &run, &grid);
		i = run.last + 1;
	}
	put_text(&grid, style, text);
}
