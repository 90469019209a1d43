/* What each stream does over the step. */
#include <string.h>

#include "reports/chart.h"
#include "reports/escape.h"
#include "reports/figures.h"

/* Operations of one stream that are drawn as one. */
struct bar {
	int first, count; /* the first operation, and how many */
	enum op_kind kind;
	enum stream stream;
	double start, end;
};

enum { MAX_BARS = 1200, TRACK_HEIGHT = 10 };

static bool joins(
	const struct bar *bar, const struct op *op, const struct span *span, double resolution)
{
	return bar->count > 0 &&
	       strcmp(kind_appearance(bar->kind).css, kind_appearance(op->kind).css) == 0 &&
	       span->start - bar->end <= resolution &&
	       (span->end - span->start <= 4 * resolution ||
		       bar->end - bar->start <= 4 * resolution);
}

/* Operations shorter than the picture can show are joined with their neighbours. */
static int join_bars(const struct program *program, const struct timeline *timeline,
	double resolution, struct bar *bars)
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
		if (*bar >= 0 && joins(&bars[*bar], op, span, resolution)) {
			bars[*bar].end = span->end;
			bars[*bar].count++;
			continue;
		}
		*bar = n;
		bars[n++] = (struct bar){i, 1, op->kind, op->stream, span->start, span->end};
	}
	return n;
}

static int make_bars(const struct program *program, const struct timeline *timeline, double end,
	struct bar *bars)
{
	double resolution = end / CHART_WIDTH;
	int n = join_bars(program, timeline, resolution, bars);

	for (; n > MAX_BARS && resolution < end / 40; resolution *= 1.5)
		n = join_bars(program, timeline, resolution, bars);
	return n;
}

static int position(double time, double end)
{
	double x = end > 0 ? time / end * CHART_WIDTH : 0;

	return x < 0 ? 0 : x > CHART_WIDTH ? CHART_WIDTH : (int)(x + 0.5);
}

static void add_rectangle(
	const char *css, double start, double end, double whole, struct text *text)
{
	int from = position(start, whole), to = position(end, whole);

	text_printf(text, "<path class=\"%s\" d=\"M%d 0h%dv%dh-%dz\"", css, from,
		to > from ? to - from : 1, TRACK_HEIGHT, to > from ? to - from : 1);
}

static void add_bar(
	const struct schedule *schedule, const struct bar *bar, double end, struct text *text)
{
	const struct op *op = &schedule->programs[0].ops[bar->first];
	char takes[32], starts[32];
	struct text label = {0};

	add_rectangle(kind_appearance(bar->kind).css, bar->start, bar->end, end, text);
	text_add(text, "><title>");
	operation_label(schedule, op, &label);
	add_html(text, text_string(&label));
	text_finish(&label);
	if (bar->count > 1)
		text_printf(text, " and %d more", bar->count - 1);
	text_printf(text, ": %s at %s", format_seconds(takes, bar->end - bar->start),
		format_seconds(starts, bar->start));
	if (op->bytes > 0 && bar->count == 1)
		text_printf(text, ", %s", format_bytes(takes, (double)op->bytes));
	text_add(text, "</title></path>");
}

struct exposure {
	int n;
	struct interval *intervals;
	double seconds;
};

/* Behind the operations of every track, so that the eye finds what overlaps with nothing. */
static void add_exposure(const struct exposure *exposure, const char *css, bool titles, double end,
	struct text *text)
{
	char takes[32], starts[32];

	for (int i = 0; i < exposure->n; i++) {
		const struct interval *gap = &exposure->intervals[i];
		int from = position(gap->start, end), to = position(gap->end, end);
		if (from == to && !titles)
			continue;
		add_rectangle(css, gap->start, gap->end, end, text);
		if (!titles) {
			text_add(text, "/>");
			continue;
		}
		text_printf(text, "><title>exposed %s at %s</title></path>",
			format_seconds(takes, gap->end - gap->start),
			format_seconds(starts, gap->start));
	}
}

/* Neighbours that the picture cannot tell apart become one. */
static void join_exposure(struct exposure *exposure, double end)
{
	int n = 0;

	for (int i = 0; i < exposure->n; i++) {
		struct interval *gap = &exposure->intervals[i];
		exposure->seconds += gap->end - gap->start;
		if (n > 0 && gap->start - exposure->intervals[n - 1].end < end / 1000)
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
		"<svg role=\"img\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
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

	text_add(text,
		"<div class=\"track times\" aria-hidden=\"true\"><span></span><div class=\"x\">");
	for (int i = 0; i < axis.n; i++) {
		double value = axis.first + i * axis.step;
		text_printf(text, "<span style=\"left:%.2f%%\">", value / axis.high * 100);
		axis_label(&axis, value, text);
		text_add(text, "</span>");
	}
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
	struct bar *bars = ARENA_ARRAY(&arena, struct bar, program->n_ops);
	int n_bars = make_bars(program, timeline, end, bars);
	struct exposure exposure = {0};
	bool used[STREAM_COUNT];

	exposure.n = exposed_intervals(schedule, timeline, &arena, &exposure.intervals);
	join_exposure(&exposure, end);
	streams_used(schedule, used);
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
