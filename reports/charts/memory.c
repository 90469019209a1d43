/* A chart of memory over the step, stacked by category. */
#include "reports/charts/axes.h"
#include "reports/charts/charts.h"

/* The stacked height below category `c` at point `i`. */
static double stacked(const struct memory_curve *curve, int i, int c)
{
	int64_t sum = 0;

	for (int k = 0; k < c; k++)
		sum += curve->bytes[i][k];
	return (double)sum;
}

/* Draws a category as a staircase: forward along its top, back along its bottom. */
static void add_area(const struct chart *chart, const struct memory_curve *curve, double end, int c,
	struct text *text)
{
	text_printf(text, "<path class=\"c%d\" d=\"M%d %d", c, chart_x(chart, curve->times[0]),
		chart_y(chart, stacked(curve, 0, c)));
	for (int i = 0; i < curve->n; i++)
		text_printf(text, "H%dV%d", chart_x(chart, curve->times[i]),
			chart_y(chart, stacked(curve, i, c + 1)));
	text_printf(text, "H%dV%d", chart_x(chart, end),
		chart_y(chart, stacked(curve, curve->n - 1, c)));
	for (int i = curve->n - 1; i > 0; i--)
		text_printf(text, "H%dV%d", chart_x(chart, curve->times[i]),
			chart_y(chart, stacked(curve, i - 1, c)));
	text_add(text, "Z\"/>\n");
}

/* Adds invisible columns whose tooltips show the numbers of their moment. */
static void add_hover(const struct chart *chart, const struct memory_curve *curve, double end,
	int i, struct text *text)
{
	int from = chart_x(chart, curve->times[i]);
	int to = chart_x(chart, i + 1 < curve->n ? curve->times[i + 1] : end);
	char buffer[32];

	text_printf(text, "<path class=\"hover\" d=\"M%d 0H%dV%dH%dZ\"><title>", from,
		to > from ? to : from + 1, CHART_HEIGHT, from);
	text_printf(text, "%s", format_seconds(buffer, curve->times[i]));
	text_printf(text, ": %s", format_bytes(buffer, (double)sum_categories(curve->bytes[i])));
	for (int c = CATEGORY_COUNT - 1; c >= 0; c--) {
		if (curve->bytes[i][c] == 0)
			continue;
		text_add_char(text, '\n');
		category_label((enum category)c, text);
		text_printf(text, " %s", format_bytes(buffer, (double)curve->bytes[i][c]));
	}
	text_add(text, "</title></path>\n");
}

static void add_memory_legend(const struct memory_curve *curve, int peak, struct text *text)
{
	char buffer[32];

	text_add(text, "<ul class=\"legend\">");
	for (int c = 0; c < CATEGORY_COUNT; c++) {
		int64_t most = 0;
		for (int i = 0; i < curve->n; i++)
			most = max_i64(most, curve->bytes[i][c]);
		if (most == 0)
			continue;
		text_printf(text, "<li><i class=\"c%d\"></i>", c);
		category_label((enum category)c, text);
		text_printf(text, " <b>%s</b></li>",
			format_bytes(buffer, (double)curve->bytes[peak][c]));
	}
	text_add(text, "</ul><p class=\"note\">Figures are at the peak.</p></figure>\n");
}

static void add_limit(const struct chart *chart, int64_t limit, struct text *text)
{
	char buffer[32];

	text_printf(text, "<path class=\"limit\" d=\"M0 %dH%d\"><title>limit %s</title></path>\n",
		chart_y(chart, (double)limit), CHART_WIDTH, format_bytes(buffer, (double)limit));
}

static int fullest(const struct memory_curve *curve)
{
	int peak = 0;

	for (int i = 1; i < curve->n; i++) {
		if (sum_categories(curve->bytes[i]) > sum_categories(curve->bytes[peak]))
			peak = i;
	}
	return peak;
}

/* Is the limit drawn? One far above would flatten the picture, so it is only named. */
static bool limit_is_near(int64_t limit, double most)
{
	return limit > 0 && (double)limit < 4 * most;
}

static void describe_memory(
	const struct memory_curve *curve, int peak, int64_t limit, struct text *text)
{
	char buffer[32], time[32];

	text_printf(text, "Peak %s at %s",
		format_bytes(buffer, (double)sum_categories(curve->bytes[peak])),
		format_seconds(time, curve->times[peak]));
	if (limit > 0)
		text_printf(text, ", limit %s", format_bytes(buffer, (double)limit));
}

void chart_memory(const char *name, const struct memory_curve *curve, double end, int64_t limit,
	struct text *text)
{
	struct arena arena = {0};
	struct memory_curve fine, coarse;
	struct text description = {0};

	if (curve == NULL || curve->n == 0)
		return;
	memory_sample(curve, end, 400, &arena, &fine);
	memory_sample(curve, end, 100, &arena, &coarse);
	int peak = fullest(&fine);
	double most = (double)sum_categories(fine.bytes[peak]);
	double high = limit_is_near(limit, most) && (double)limit > most ? (double)limit : most;
	describe_memory(&fine, peak, limit, &description);
	struct chart chart = {axis_make(AXIS_SECONDS, 0, end, 5),
		axis_make(AXIS_BYTES, 0, high * 1.06, 5), name, text_string(&description),
		"time in the step"};
	chart_begin(&chart, text);
	for (int c = 0; c < CATEGORY_COUNT; c++)
		add_area(&chart, &fine, end, c, text);
	if (limit_is_near(limit, most))
		add_limit(&chart, limit, text);
	for (int i = 0; i < coarse.n; i++)
		add_hover(&chart, &coarse, end, i, text);
	chart_end(&chart, text);
	text_printf(text, "<p class=\"note\">%s%s.</p>", text_string(&description),
		limit > 0 && !limit_is_near(limit, most) ? " (far above the picture)" : "");
	add_memory_legend(&fine, peak, text);
	text_finish(&description);
	arena_finish(&arena);
}
