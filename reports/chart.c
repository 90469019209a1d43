/* Axes, frames, and the charts of memory and loss. */
#include "reports/chart.h"

#include <math.h>
#include <stdio.h>

#include "reports/escape.h"
#include "reports/figures.h"
#include "reports/pieces.h"

struct axis_unit {
	double size;
	const char *name;
};

static const struct axis_unit second_units[] = {
	{1, "s"}, {1e-3, "ms"}, {1e-6, "\xc2\xb5s"}, {1e-9, "ns"}, {0, NULL}};
static const struct axis_unit byte_units[] = {
	{0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}, {1, "B"}, {0, NULL}};
static const struct axis_unit number_units[] = {{1, ""}, {0, NULL}};

/* 1, 2 or 5 times a power of ten, the nearest to `about`. */
static double round_step(double about)
{
	double power = pow(10, floor(log10(about)));
	double digit = about / power;

	return power * (digit < 1.4 ? 1 : digit < 3 ? 2 : digit < 7 ? 5 : 10);
}

struct axis axis_make(enum axis_kind kind, double low, double high, int wanted)
{
	static const struct axis_unit *const units[] = {second_units, byte_units, number_units};
	struct axis axis = {.low = low, .high = high > low ? high : low + 1};
	const struct axis_unit *unit = units[kind];

	/* The largest unit in which the end of the axis is 2 or more. */
	while (unit[1].name != NULL && fabs(axis.high) < 2 * unit->size)
		unit++;
	axis.unit = unit->size;
	axis.unit_name = unit->name;
	axis.step = round_step((axis.high - low) / wanted / unit->size) * unit->size;
	axis.first = ceil(low / axis.step - 1e-9) * axis.step;
	axis.n = (int)floor((axis.high - axis.first) / axis.step + 1e-9) + 1;
	double digits = -floor(log10(axis.step / axis.unit) + 1e-9);
	axis.decimals = digits > 0 ? (int)digits : 0;
	return axis;
}

void axis_label(const struct axis *axis, double value, struct text *text)
{
	text_printf(text, "%.*f", axis->decimals, value / axis->unit);
	if (axis->unit_name[0] != '\0')
		text_printf(text, " %s", axis->unit_name);
}

static int scale(const struct axis *axis, double value, int size)
{
	double position = (value - axis->low) / (axis->high - axis->low);

	if (!(position > 0))
		return 0;
	return position >= 1 ? size : (int)lround(position * size);
}

int chart_x(const struct chart *chart, double value)
{
	return scale(&chart->x, value, CHART_WIDTH);
}

int chart_y(const struct chart *chart, double value)
{
	return CHART_HEIGHT - scale(&chart->y, value, CHART_HEIGHT);
}

static double percent(const struct axis *axis, double value)
{
	return (value - axis->low) / (axis->high - axis->low) * 100;
}

static void add_ticks(const struct axis *axis, const char *property, struct text *text)
{
	for (int i = 0; i < axis->n; i++) {
		double value = axis->first + i * axis->step;
		text_printf(text, "<span style=\"%s:%.2f%%\">", property, percent(axis, value));
		axis_label(axis, value, text);
		text_add(text, "</span>");
	}
}

void chart_begin(const struct chart *chart, struct text *text)
{
	text_add(text, "<figure class=\"chart\"><figcaption>");
	add_html(text, chart->name);
	text_add(text, "</figcaption>\n<div class=\"plot\"><div class=\"y\" aria-hidden=\"true\">");
	add_ticks(&chart->y, "bottom", text);
	text_printf(text,
		"</div><div class=\"area\"><svg role=\"img\" viewBox=\"0 0 %d %d\" "
		"preserveAspectRatio=\"none\" aria-label=\"",
		CHART_WIDTH, CHART_HEIGHT);
	add_html(text, chart->description);
	text_add(text, "\">\n");
	for (int i = 0; i < chart->y.n; i++)
		text_printf(text, "<path class=\"grid\" d=\"M0 %dH%d\"/>",
			chart_y(chart, chart->y.first + i * chart->y.step), CHART_WIDTH);
	text_add_char(text, '\n');
}

void chart_end(const struct chart *chart, struct text *text)
{
	text_add(text, "</svg></div><div class=\"x\" aria-hidden=\"true\">");
	add_ticks(&chart->x, "left", text);
	text_add(text, "</div>");
	if (chart->x_name != NULL)
		text_printf(text, "<div class=\"xname\">%s</div>", chart->x_name);
	text_add(text, "</div>\n");
}

/* The stacked height below category `c` at point `i`. */
static double stacked(const struct memory_curve *curve, int i, int c)
{
	int64_t sum = 0;

	for (int k = 0; k < c; k++)
		sum += curve->bytes[i][k];
	return (double)sum;
}

/* A staircase: forth along the top of the category, back along its bottom. */
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

/* An invisible column that tells the figures of its moment when pointed at. */
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

/* A limit far above would flatten the picture; it is named instead. */
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

static void loss_range(const struct measurement *measured, double *low, double *high)
{
	*low = INFINITY;
	*high = -INFINITY;
	for (int i = 0; i < measured->n_losses; i++) {
		double loss = measured->losses[i];
		if (isfinite(loss) && loss < *low)
			*low = loss;
		if (isfinite(loss) && loss > *high)
			*high = loss;
	}
}

/* Every step up to 800, then the mean of equal stretches. */
static void add_loss_line(
	const struct chart *chart, const struct measurement *measured, struct text *text)
{
	int stretch = (measured->n_losses + 799) / 800;
	bool pen_down = false;

	text_add(text, "<path class=\"line\" d=\"");
	for (int i = 0; i < measured->n_losses; i += stretch) {
		double sum = 0;
		int n = 0;
		for (; n < stretch && i + n < measured->n_losses; n++)
			sum += measured->losses[i + n];
		if (!isfinite(sum)) {
			pen_down = false;
			continue;
		}
		text_printf(text, "%c%d %d", pen_down ? 'L' : 'M', chart_x(chart, i + 1),
			chart_y(chart, sum / n));
		pen_down = true;
	}
	text_add(text, "\"/>\n");
}

void chart_loss(const struct measurement *measured, struct text *text)
{
	struct text description = {0};
	double low, high;
	int n = measured->n_losses;

	if (n < 2 || measured->losses == NULL)
		return;
	loss_range(measured, &low, &high);
	if (!(low <= high))
		return;
	double margin = high > low ? (high - low) * 0.06 : 0.5;
	text_printf(&description, "Loss from %.4f in step 1 to %.4f in step %d",
		measured->losses[0], measured->losses[n - 1], n);
	struct chart chart = {axis_make(AXIS_NUMBER, 1, n, 5),
		axis_make(AXIS_NUMBER, low - margin, high + margin, 5), "Loss, measured",
		text_string(&description), "step"};
	chart_begin(&chart, text);
	add_loss_line(&chart, measured, text);
	chart_end(&chart, text);
	text_printf(text, "<p class=\"note\">%s.</p></figure>\n", text_string(&description));
	text_finish(&description);
}
