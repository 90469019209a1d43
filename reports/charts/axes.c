/* Axes, and the frame that all charts share. */
#include "reports/charts/axes.h"

#include <math.h>
#include <stdio.h>

struct axis_unit {
	double size;
	const char *name;
};

static const struct axis_unit second_units[] = {
	{1, "s"}, {1e-3, "ms"}, {1e-6, "\xc2\xb5s"}, {1e-9, "ns"}, {0, NULL}};
static const struct axis_unit byte_units[] = {
	{0x1p40, "TiB"}, {0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}, {1, "B"}, {0, NULL}};
static const struct axis_unit number_units[] = {{1, ""}, {0, NULL}};

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

static void axis_label(const struct axis *axis, double value, struct text *text)
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

/* Labels are SVG text placed by percentages: they keep their size when the drawing is stretched,
 * and no style attribute is needed, which the page's policy would refuse. */
static void add_y_labels(const struct axis *axis, struct text *text)
{
	text_add(text, "<svg>");
	for (int i = 0; i < axis->n; i++) {
		double value = axis->first + i * axis->step;
		text_printf(text,
			"<text x=\"100%%\" dx=\"-8\" dy=\".35em\" y=\"%.2f%%\" "
			"text-anchor=\"end\">",
			100 - percent(axis, value));
		axis_label(axis, value, text);
		text_add(text, "</text>");
	}
	text_add(text, "</svg>");
}

void axis_add_labels(const struct axis *axis, struct text *text)
{
	text_add(text, "<svg>");
	for (int i = 0; i < axis->n; i++) {
		double value = axis->first + i * axis->step;
		text_printf(text, "<text%s x=\"%.2f%%\" y=\"1.25em\" text-anchor=\"middle\">",
			i % 2 == 1 ? " class=\"odd\"" : "", percent(axis, value));
		if (axis->names != NULL)
			add_html(text, axis->names[i]);
		else
			axis_label(axis, value, text);
		text_add(text, "</text>");
	}
	text_add(text, "</svg>");
}

struct axis axis_of_names(const char *const *names, int n)
{
	return (struct axis){.low = -0.3,
		.high = n - 0.7,
		.first = 0,
		.step = 1,
		.n = n,
		.unit = 1,
		.unit_name = "",
		.names = names};
}

void chart_begin(const struct chart *chart, struct text *text)
{
	text_add(text, "<figure class=\"chart\"><figcaption>");
	add_html(text, chart->name);
	text_add(text, "</figcaption>\n<div class=\"plot\"><div class=\"y\" aria-hidden=\"true\">");
	add_y_labels(&chart->y, text);
	text_printf(text,
		"</div><div class=\"area\"><svg role=\"img\" tabindex=\"0\" viewBox=\"0 0 %d %d\" "
		"preserveAspectRatio=\"none\" aria-label=\"",
		CHART_WIDTH, CHART_HEIGHT);
	add_html(text, chart->name);
	text_add(text, ". ");
	add_html(text, chart->description);
	text_add(text, "\">\n");
	for (int i = 0; i < chart->y.n; i++)
		text_printf(text, "<path class=\"grid\" d=\"M0 %dH%d\"/>",
			chart_y(chart, chart->y.first + i * chart->y.step), CHART_WIDTH);
	text_add_char(text, '\n');
}

void chart_marks(struct text *text)
{
	text_add(text, "</svg>\n<svg class=\"marks\" aria-hidden=\"true\">\n");
}

void chart_end(const struct chart *chart, struct text *text)
{
	text_add(text, "</svg></div><div class=\"x\" aria-hidden=\"true\">");
	axis_add_labels(&chart->x, text);
	text_add(text, "</div>");
	if (chart->x_name != NULL) {
		text_add(text, "<div class=\"xname\">");
		add_html(text, chart->x_name);
		/* An axis that starts just below the data would make a difference of 1 % look like
		 * a cliff. */
		if (chart->y.low > 0) {
			text_add(text, "<b class=\"cut\">the upward axis is cut: it begins at ");
			axis_label(&chart->y, chart->y.low, text);
			text_add(text, ", not at 0</b>");
		}
		text_add(text, "</div>");
	}
	text_add(text, "</div>\n");
}
