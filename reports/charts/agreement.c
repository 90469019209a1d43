/* A chart of measured / predicted on one logarithmic scale from a quarter to four times. Figures
 * that agree lie on the middle line. */
#include <math.h>
#include <string.h>

#include "reports/charts/axes.h"
#include "reports/charts/charts.h"

#define SPAN 2.0 /* powers of two on each side */

static double place(double ratio)
{
	double x = (log2(ratio) + SPAN) / (2 * SPAN) * 100;

	return x < 0 ? 0 : x > 100 ? 100 : x;
}

static bool has_ratio(const struct check_line *line)
{
	return line->predicted > 0 && line->measured > 0;
}

static void add_grid(struct text *text)
{
	static const double lines[] = {0.5, 1, 2};

	for (int i = 0; i < COUNT_OF(lines); i++)
		text_printf(text,
			"<line class=\"b-axis\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" "
			"y2=\"100%%\"%s/>",
			place(lines[i]), place(lines[i]),
			lines[i] == 1 ? "" : " stroke-dasharray=\"2 4\"");
}

/* Draws the predicted interval as a band, and the spread of the measured steps as a line. */
static void add_spread(const struct report *report, struct text *text)
{
	const struct prediction *predicted = report->explained.prediction;
	const struct measurement *measured = report->explained.measured;

	if (predicted->step_time_high > 0)
		text_printf(text,
			"<rect class=\"range\" x=\"%.2f%%\" width=\"%.2f%%\" "
			"y=\"25%%\" "
			"height=\"50%%\"/>",
			place(predicted->step_time_low / predicted->step_time),
			place(predicted->step_time_high / predicted->step_time) -
				place(predicted->step_time_low / predicted->step_time));
	if (measured != NULL && has_percentiles(measured) && measured->step_time_p95 > 0)
		text_printf(text,
			"<line class=\"whisker\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"50%%\" "
			"y2=\"50%%\"/>",
			place(measured->step_time_p50 / predicted->step_time),
			place(measured->step_time_p95 / predicted->step_time));
}

static void add_values(const struct check_line *line, struct text *text)
{
	char predicted[32], measured[32], ratio[32];
	bool seconds = strcmp(line->unit, "s") == 0;

	text_printf(text, "%s, measured %s (%s)",
		seconds ? format_seconds(predicted, line->predicted)
			: format_bytes(predicted, line->predicted),
		seconds ? format_seconds(measured, line->measured)
			: format_bytes(measured, line->measured),
		format_ratio(ratio, line->predicted, line->measured));
}

static void add_line(const struct report *report, const struct check_line *line, struct text *text)
{
	struct text values = {0};
	bool is_step = strcmp(line->what, "step time") == 0;
	double ratio = line->measured / line->predicted;

	add_values(line, &values);
	text_printf(text,
		"<div class=\"ratio\"><b>%s</b><svg role=\"img\" aria-label=\"%s: predicted %s\">",
		line->what, line->what, text_string(&values));
	add_grid(text);
	if (is_step)
		add_spread(report, text);
	text_printf(text,
		"<svg overflow=\"visible\" x=\"%.2f%%\" y=\"50%%\" class=\"s%d\"><path "
		"class=\"mark%s\" "
		"d=\"M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z\"><title>%s: predicted "
		"%s</title></path></svg>",
		place(ratio), line->judged && !line->ok ? 1 : 0,
		fabs(log2(ratio)) > SPAN ? " open" : "", line->what, text_string(&values));
	text_printf(text, "</svg><span>%s</span></div>\n", text_string(&values));
	text_finish(&values);
}

void chart_check(const struct report *report, struct text *text)
{
	const struct check *check = report->check;
	int equal = 0, exact = 0;

	text_add(text,
		"<figure class=\"chart\"><figcaption>Measured against predicted<small>On the "
		"middle line they agree; the dashed lines are half and twice the prediction."
		"</small></figcaption>\n");
	for (int i = 0; i < check->n_lines; i++) {
		const struct check_line *line = &check->lines[i];
		exact += line->exact;
		equal += line->exact && line->ok;
		if (!line->exact && has_ratio(line))
			add_line(report, line, text);
	}
	text_printf(text,
		"<p class=\"note\">Band: the predicted 80 %% interval; line: median to 95th "
		"percentile "
		"of the measured steps; hollow: further out than the picture. Of %d lines of bytes "
		"and counts that must agree exactly, %d do.</p></figure>\n",
		exact, equal);
}
