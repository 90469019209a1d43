/* A chart of what each stream does over the step. */
#include <string.h>

#include "reports/charts/axes.h"
#include "reports/charts/charts.h"

/* A stretch of one stream that is drawn as one rectangle. */
struct bar {
	int first, count; /* the first operation, and their number */
	enum op_kind kind;
	enum stream stream;
	double start, end;
	double busy; /* share of the time that is busy; the height of the rectangle */
};

enum { MAX_BARS = 1200, TRACK_HEIGHT = 20, BUCKETS = 400 };

/* Do neighbours have one kind, and is the gap between them too small to see? */
static bool joins(
	const struct bar *bar, const struct op *op, const struct span *span, double resolution)
{
	return span->start - bar->end <= resolution &&
	       (span->end - span->start <= resolution || bar->end - bar->start <= resolution) &&
	       strcmp(kind_appearance(bar->kind).css, kind_appearance(op->kind).css) == 0;
}

/* Draws one bar for each operation. Returns -1 if there are too many. */
static int draw_operations(const struct program *program, const struct timeline *timeline,
	double end, struct bar *bars)
{
	int last[STREAM_COUNT], n = 0;

	for (int s = 0; s < STREAM_COUNT; s++)
		last[s] = -1;
	for (int i = 0; i < program->n_ops && i < timeline->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const struct span *span = &timeline->spans[i];
		int *bar = &last[op->stream];
		if (!(span->end > span->start))
			continue;
		if (*bar >= 0 && joins(&bars[*bar], op, span, end / CHART_WIDTH)) {
			bars[*bar].end = span->end;
			bars[*bar].count++;
			continue;
		}
		if (n == MAX_BARS)
			return -1;
		*bar = n;
		bars[n++] = (struct bar){i, 1, op->kind, op->stream, span->start, span->end, 1};
	}
	return n;
}

/* The work of a stream in one bucket of the step. */
struct bucket {
	double seconds[OP_KIND_COUNT];
	int first, count;
};

static void fill_buckets(const struct program *program, const struct timeline *timeline,
	enum stream stream, double width, struct bucket *buckets)
{
	for (int i = 0; i < program->n_ops && i < timeline->n_ops; i++) {
		const struct span *span = &timeline->spans[i];
		if (program->ops[i].stream != stream || !(span->end > span->start))
			continue;
		for (int b = (int)(span->start / width); b < BUCKETS && b * width < span->end;
			b++) {
			double from = span->start > b * width ? span->start : b * width;
			double to = span->end < (b + 1) * width ? span->end : (b + 1) * width;
			if (buckets[b].count++ == 0)
				buckets[b].first = i;
			if (to > from)
				buckets[b].seconds[program->ops[i].kind] += to - from;
		}
	}
}

static struct bar bar_of(
	const struct bucket *bucket, enum stream stream, double start, double width)
{
	struct bar bar = {
		bucket->first, bucket->count, OP_CAST_PARAMETERS, stream, start, start + width, 0};
	double most = 0;

	for (int k = 0; k < OP_KIND_COUNT; k++) {
		bar.busy += bucket->seconds[k] / width;
		if (bucket->seconds[k] > most) {
			most = bucket->seconds[k];
			bar.kind = (enum op_kind)k;
		}
	}
	return bar;
}

/* Draws equal parts of the step where there are too many operations. Each has the colour of the
 * kind that fills most of it, and its height is the share that is busy. */
static int draw_buckets(const struct program *program, const struct timeline *timeline,
	const bool used[STREAM_COUNT], double end, struct bar *bars)
{
	double width = end / BUCKETS;
	int n = 0;

	for (int s = 0; s < STREAM_COUNT; s++) {
		struct bucket buckets[BUCKETS] = {0};
		if (!used[s])
			continue;
		fill_buckets(program, timeline, (enum stream)s, width, buckets);
		for (int b = 0; b < BUCKETS; b++) {
			struct bar bar = bar_of(&buckets[b], (enum stream)s, b * width, width);
			struct bar *before = n > 0 ? &bars[n - 1] : NULL;
			if (bar.count == 0)
				continue;
			bool same = before != NULL && b > 0 && before->stream == bar.stream &&
				    before->kind == bar.kind && buckets[b - 1].count > 0 &&
				    bar.busy - before->busy < 0.04 &&
				    before->busy - bar.busy < 0.04;
			if (same) {
				before->end = bar.end;
				before->count += bar.count;
			} else {
				bars[n++] = bar;
			}
		}
	}
	return n;
}

static int position(double time, double end)
{
	double x = end > 0 ? time / end * CHART_WIDTH : 0;

	return x < 0 ? 0 : x > CHART_WIDTH ? CHART_WIDTH : (int)(x + 0.5);
}

/* Adds a rectangle without the end of its tag. `share` is that of the track's height, from
 * below. */
static void add_rectangle(
	const char *css, double start, double end, double whole, double share, struct text *text)
{
	int from = position(start, whole), to = position(end, whole);
	int width = to > from ? to - from : 1;
	int height = (int)(share * TRACK_HEIGHT + 0.5);

	height = height < 1 ? 1 : height > TRACK_HEIGHT ? TRACK_HEIGHT : height;
	text_printf(text, "<path class=\"%s\" d=\"M%d %dh%dv%dh-%dz\"", css, from,
		TRACK_HEIGHT - height, width, height, width);
}

static void add_bar(
	const struct schedule *schedule, const struct bar *bar, double end, struct text *text)
{
	const struct op *op = &schedule->programs[0].ops[bar->first];
	char takes[32], starts[32];
	struct text label = {0};

	add_rectangle(kind_appearance(bar->kind).css, bar->start, bar->end, end, bar->busy, text);
	text_add(text, "><title>");
	if (bar->count == 1)
		operation_label(schedule, op, &label);
	else
		text_printf(&label, "%d operations, mostly %s", bar->count,
			kind_appearance(bar->kind).label);
	add_html(text, text_string(&label));
	text_finish(&label);
	text_printf(text, ": %s from %s", format_seconds(takes, bar->end - bar->start),
		format_seconds(starts, bar->start));
	if (bar->busy < 0.995)
		text_printf(text, ", %.0f %% busy", bar->busy * 100);
	else if (op->bytes > 0 && bar->count == 1)
		text_printf(text, ", %s", format_bytes(takes, (double)op->bytes));
	text_add(text, "</title></path>");
}

struct exposure {
	int n;
	struct interval *intervals;
	double seconds;
};

/* Marks exposed communication behind the operations of every track, which shows what overlaps with
 * nothing. */
static void add_exposure(const struct exposure *exposure, const char *css, bool titles, double end,
	struct text *text)
{
	char takes[32], starts[32];

	for (int i = 0; i < exposure->n; i++) {
		const struct interval *gap = &exposure->intervals[i];
		int from = position(gap->start, end), to = position(gap->end, end);
		if (from == to && !titles)
			continue;
		add_rectangle(css, gap->start, gap->end, end, 1, text);
		if (!titles) {
			text_add(text, "/>");
			continue;
		}
		text_printf(text, "><title>exposed %s at %s</title></path>",
			format_seconds(takes, gap->end - gap->start),
			format_seconds(starts, gap->start));
	}
}

/* Joins neighbours that are too close to be seen apart. */
static void join_exposure(struct exposure *exposure, double end)
{
	int n = 0;

	for (int i = 0; i < exposure->n; i++) {
		struct interval *gap = &exposure->intervals[i];
		exposure->seconds += gap->end - gap->start;
		if (n > 0 && gap->start - exposure->intervals[n - 1].end < end / 400)
			exposure->intervals[n - 1].end = gap->end;
		else
			exposure->intervals[n++] = *gap;
	}
	exposure->n = n;
}

static void begin_track(const char *name, double seconds, double end, struct text *text)
{
	char buffer[32];

	text_printf(text, "<div class=\"track\"><span>%s <small>%.0f %%</small></span>", name,
		end > 0 ? seconds / end * 100 : 0);
	text_printf(text,
		"<svg role=\"img\" tabindex=\"0\" viewBox=\"0 0 %d %d\" "
		"preserveAspectRatio=\"none\" "
		"aria-label=\"%s: %s\">\n",
		CHART_WIDTH, TRACK_HEIGHT, name, format_seconds(buffer, seconds));
}

static void add_track(const struct schedule *schedule, const struct timeline *timeline,
	enum stream stream, const struct bar *bars, int n_bars, const struct exposure *exposure,
	double end, struct text *text)
{
	begin_track(stream_name(stream), stream_busy(schedule, timeline, stream), end, text);
	add_exposure(exposure, "band", false, end, text);
	for (int i = 0; i < n_bars; i++) {
		if (bars[i].stream == stream)
			add_bar(schedule, &bars[i], end, text);
	}
	text_add(text, "</svg></div>\n");
}

static void add_time_axis(double end, struct text *text)
{
	struct axis axis = axis_make(AXIS_SECONDS, 0, end, 6);

	text_add(text, "<div class=\"track times\" aria-hidden=\"true\"><span></span><div>");
	axis_add_labels(&axis, text);
	text_add(text, "</div></div>");
}

static void add_legend(const struct program *program, struct text *text)
{
	const char *seen[OP_KIND_COUNT];
	int n = 0;

	text_add(text, "<ul class=\"legend\">");
	for (int i = 0; i < program->n_ops; i++) {
		struct appearance appearance = kind_appearance(program->ops[i].kind);
		bool again = false;
		for (int j = 0; j < n; j++)
			again = again || strcmp(seen[j], appearance.css) == 0;
		if (again)
			continue;
		seen[n++] = appearance.css;
		text_printf(
			text, "<li><i class=\"%s\"></i>%s</li>", appearance.css, appearance.label);
	}
	text_add(text, "<li><i class=\"k-exposed\"></i>exposed communication</li></ul></figure>\n");
}

void chart_streams(const char *name, const struct schedule *schedule,
	const struct timeline *timeline, struct text *text)
{
	const struct program *program = &schedule->programs[0];
	double end = timeline_end(timeline);
	struct arena arena = {0};
	struct bar *bars = ARENA_ARRAY(&arena, struct bar, MAX_BARS + BUCKETS * STREAM_COUNT);
	struct exposure exposure = {0};
	bool used[STREAM_COUNT];

	exposure.n = exposed_intervals(schedule, timeline, &arena, &exposure.intervals);
	join_exposure(&exposure, end);
	streams_used(schedule, used);
	int n_bars = draw_operations(program, timeline, end, bars);
	if (n_bars < 0)
		n_bars = draw_buckets(program, timeline, used, end, bars);
	text_add(text, "<figure class=\"chart\"><figcaption>");
	add_html(text, name);
	text_add(text, "</figcaption>\n<div class=\"scroll\" tabindex=\"0\" role=\"group\" "
		       "aria-label=\"streams\"><div class=\"tracks\">\n");
	for (int s = 0; s < STREAM_COUNT; s++) {
		if (used[s])
			add_track(schedule, timeline, (enum stream)s, bars, n_bars, &exposure, end,
				text);
	}
	begin_track("exposed", exposure.seconds, end, text);
	add_exposure(&exposure, "k-exposed", true, end, text);
	text_add(text, "</svg></div>\n");
	add_time_axis(end, text);
	text_add(text, "</div></div>\n");
	add_legend(program, text);
	arena_finish(&arena);
}
