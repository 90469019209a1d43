/* Curves of a study's plans over its quantity, and scatter charts of candidates by time and
 * memory. */
#include <math.h>
#include <string.h>

#include "reports/charts/axes.h"
#include "reports/charts/charts.h"

/* Eight shapes, in pixels around their place, so that series differ without colour: circle, square,
 * two triangles, diamond, cross, hexagon, star. */
static const char *const shapes[SERIES_STYLES] = {
	"M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
	"M-4.5-4.5h9v9h-9z",
	"M0-6l5.5 10h-11z",
	"M0-6l6 6-6 6-6-6z",
	"M0 6l5.5-10h-11z",
	"M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
	"M-5-3l5-3 5 3v6l-5 3-5-3z",
	"M0-7l2 4.500 5 .5-3.500 3 1 5-4.500-3-4.500 3 1-5-3.500-3 5-.5z",
};

static double share(const struct axis *axis, double value)
{
	return (value - axis->low) / (axis->high - axis->low) * 100;
}

/* Adds escaped text. Line ends are kept, because a tooltip may have them. */
static void add_lines(const char *words, struct text *text)
{
	struct text line = {0};

	for (; *words != '\0'; words += *words == '\n') {
		size_t length = strcspn(words, "\n");
		text_clear(&line);
		text_add_bytes(&line, words, length);
		add_html(text, text_string(&line));
		words += length;
		if (*words == '\n')
			text_add_char(text, '\n');
	}
	text_finish(&line);
}

/* Draws a mark of a series. `open`: hollow, for a plan that does not fit. `words` is its
 * tooltip. */
static void chart_mark(const struct chart *chart, int style, double x, double y, bool open,
	const char *words, struct text *text)
{
	int shape = style % SERIES_STYLES;

	text_printf(text,
		"<svg overflow=\"visible\" x=\"%.2f%%\" y=\"%.2f%%\" class=\"s%d\"><path "
		"class=\"mark%s\" "
		"d=\"%s\"><title>",
		share(&chart->x, x), 100 - share(&chart->y, y), shape, open ? " open" : "",
		shapes[shape]);
	add_lines(words, text);
	text_add(text, "</title></path></svg>\n");
}

/* Adds an entry of a legend with its mark. */
static void legend_mark(int style, const char *name, struct text *text)
{
	int shape = style % SERIES_STYLES;

	text_printf(text,
		"<li><svg viewBox=\"-8 -8 16 16\" aria-hidden=\"true\" class=\"s%d\"><path "
		"class=\"mark\" "
		"d=\"%s\"/></svg>",
		shape, shapes[shape]);
	add_html(text, name);
	text_add(text, "</li>");
}

/* --- a study ------------------------------------------------------------------------------------
 */

static void study_range(const struct study *study, double *low, double *high)
{
	*low = INFINITY;
	*high = 0;
	for (int l = 0; l < study->n_lines; l++) {
		for (int i = 0; i < study->n_points; i++) {
			const struct study_point *point = &study->lines[l].points[i];
			if (!point->built)
				continue;
			*low = fmin(*low, point->tokens_per_s_per_gpu);
			*high = fmax(*high, point->tokens_per_s_per_gpu);
		}
	}
	/* The axis does not start at 0, because the chart should show small differences of large
	 * numbers. */
	double margin = (*high - *low) * 0.12;
	*low = *low > 0.6 * *high ? *low - margin : 0;
	*high += margin > 0 ? margin : 0.05 * *high;
}

static void add_curve(
	const struct chart *chart, const struct study *study, int l, struct text *text)
{
	const struct study_line *line = &study->lines[l];
	bool down = false;

	text_printf(text, "<path class=\"series s%d\" d=\"", line->style % SERIES_STYLES);
	for (int i = 0; i < study->n_points; i++) {
		const struct study_point *point = &line->points[i];
		if (!point->built) {
			down = false;
			continue;
		}
		text_printf(text, "%c%d %d", down ? 'L' : 'M', chart_x(chart, i),
			chart_y(chart, point->tokens_per_s_per_gpu));
		down = true;
	}
	text_add(text, "\"/>\n");
}

static void describe_point(
	const struct study *study, const struct study_line *line, int i, struct text *words)
{
	const struct study_point *point = &line->points[i];
	char buffer[32];

	text_clear(words);
	text_printf(words, "%s, %s %s\n", line->name, study->names[i], study->unit);
	text_printf(words, "%s tokens/s/GPU\n", format_tokens(buffer, point->tokens_per_s_per_gpu));
	text_printf(words, "%s per step", format_seconds(buffer, point->step_time));
	text_printf(words, ", %s exposed\n", format_seconds(buffer, point->exposed));
	text_printf(words, "peak %s", format_bytes(buffer, (double)point->peak_memory_bytes));
	if (point->fits == FITS_NO)
		text_add(words, ": does not fit");
}

static void add_study_marks(const struct chart *chart, const struct study *study, struct text *text)
{
	struct text words = {0};

	for (int l = study->n_lines - 1; l >= 0; l--) {
		const struct study_line *line = &study->lines[l];
		for (int i = 0; i < study->n_points; i++) {
			if (!line->points[i].built)
				continue;
			describe_point(study, line, i, &words);
			chart_mark(chart, line->style, i, line->points[i].tokens_per_s_per_gpu,
				line->points[i].fits == FITS_NO, text_string(&words), text);
		}
	}
	text_finish(&words);
}

static bool any_does_not_fit(const struct study *study)
{
	for (int l = 0; l < study->n_lines; l++) {
		for (int i = 0; i < study->n_points; i++) {
			const struct study_point *point = &study->lines[l].points[i];
			if (point->built && point->fits == FITS_NO)
				return true;
		}
	}
	return false;
}

static void add_study_legend(const struct study *study, struct text *text)
{
	text_add(text, "<ul class=\"legend\">");
	for (int l = 0; l < study->n_lines; l++)
		legend_mark(study->lines[l].style, study->lines[l].name, text);
	if (any_does_not_fit(study))
		text_add(text, "<li>hollow: does not fit</li>");
	text_add(text, "</ul></figure>\n");
}

void chart_study(const char *name, const struct study *study, struct text *text)
{
	struct text description = {0}, axis_name = {0};
	double low, high;

	study_range(study, &low, &high);
	study_sentence(study, &description);
	text_printf(&axis_name, "%s; up: tokens/s per device", study->quantity);
	struct chart chart = {axis_of_names(study->names, study->n_points),
		axis_make(AXIS_NUMBER, low, high, 5), name, text_string(&description),
		text_string(&axis_name)};
	chart_begin(&chart, text);
	if (study->here >= 0)
		text_printf(text, "<path class=\"here\" d=\"M%d 0V%d\"/>\n",
			chart_x(&chart, study->here), CHART_HEIGHT);
	for (int l = 0; l < study->n_lines; l++)
		add_curve(&chart, study, l, text);
	chart_marks(text);
	add_study_marks(&chart, study, text);
	chart_end(&chart, text);
	add_study_legend(study, text);
	text_finish(&description);
	text_finish(&axis_name);
}

/* --- time against memory ------------------------------------------------------------------------
 */

struct cloud {
	const struct front *front;
	struct chart chart;
};

static void describe_candidate(
	const struct candidate *candidate, const struct plan *chosen, struct text *words)
{
	const struct plan *plan = &candidate->plan;
	char buffer[32], batch[48];

	text_clear(words);
	candidate_name(plan, chosen, words);
	text_printf(words, "\ncheckpointing %s, micro-batch %s\n",
		plan->activation_checkpointing.text,
		format_micro_batch(batch, plan->micro_batch, plan->grad_accum));
	text_printf(words, "%s tokens/s/GPU",
		format_tokens(buffer, candidate->prediction.tokens_per_s_per_gpu));
	text_printf(words, ", peak %s",
		format_bytes(buffer, (double)candidate->prediction.peak_memory_bytes));
}

static void add_front_line(const struct cloud *cloud, struct text *text)
{
	bool down = false;

	text_add(text, "<path class=\"front\" d=\"");
	for (int i = 0; i < cloud->front->n; i++) {
		const struct front_point *point = &cloud->front->points[i];
		if (!point->best)
			continue;
		int x = chart_x(&cloud->chart, (double)point->bytes);
		int y = chart_y(&cloud->chart, point->tokens_per_s);
		if (down)
			text_printf(text, "H%dV%d", x, y);
		else
			text_printf(text, "M%d %d", x, y);
		down = true;
	}
	text_add(text, "\"/>\n");
}

static void add_candidates(const struct cloud *cloud, const struct plan *chosen, struct text *text)
{
	struct text words = {0};

	for (int i = cloud->front->n - 1; i >= 0; i--) {
		const struct front_point *point = &cloud->front->points[i];
		describe_candidate(point->candidate, chosen, &words);
		chart_mark(&cloud->chart, (int)point->candidate->plan.strategy,
			(double)point->bytes, point->tokens_per_s,
			point->candidate->outcome == OUTCOME_DOES_NOT_FIT, text_string(&words),
			text);
		if (point->candidate->outcome == OUTCOME_CHOSEN)
			text_printf(text,
				"<svg overflow=\"visible\" x=\"%.2f%%\" y=\"%.2f%%\"><path "
				"class=\"mark "
				"ring\" d=\"M-10 0a10 10 0 1 0 20 0a10 10 0 1 0-20 0z\"/></svg>\n",
				share(&cloud->chart.x, (double)point->bytes),
				100 - share(&cloud->chart.y, point->tokens_per_s));
	}
	text_finish(&words);
}

static void add_cloud_legend(const struct front *front, struct text *text)
{
	unsigned seen = 0;

	text_add(text, "<ul class=\"legend\">");
	for (int i = 0; i < front->n; i++) {
		enum strategy strategy = front->points[i].candidate->plan.strategy;
		if (seen >> strategy & 1)
			continue;
		seen |= 1u << strategy;
		legend_mark((int)strategy, strategy_names[strategy], text);
	}
	text_add(text, "<li>ring: chosen</li><li>hollow: does not fit</li>"
		       "<li>line: nothing beats these in both</li></ul></figure>\n");
}

static void front_range(const struct front *front, struct axis *x, struct axis *y)
{
	double bytes = 0, most = 0, least = INFINITY;

	for (int i = 0; i < front->n; i++) {
		bytes = fmax(bytes, (double)front->points[i].bytes);
		most = fmax(most, front->points[i].tokens_per_s);
		least = fmin(least, front->points[i].tokens_per_s);
	}
	double limit = (double)front->limit;
	if (limit > bytes && limit < 3 * bytes)
		bytes = limit;
	double margin = (most - least) * 0.12;
	*x = axis_make(AXIS_BYTES, 0, bytes * 1.05, 6);
	*y = axis_make(AXIS_NUMBER, least > 0.6 * most ? least - margin : 0,
		most + (margin > 0 ? margin : most * 0.05), 5);
}

void chart_pareto(const struct answer *answer, struct text *text)
{
	struct arena arena = {0};
	struct front front;
	struct text description = {0};

	front_of(answer, &arena, &front);
	if (front.n < 2) {
		arena_finish(&arena);
		return;
	}
	front_sentence(&front, answer, &description);
	struct cloud cloud = {&front, {.name = "Throughput against peak memory",
					      .description = text_string(&description),
					      .x_name = "peak memory of one device; "
							"up: tokens/s per device"}};
	front_range(&front, &cloud.chart.x, &cloud.chart.y);
	chart_begin(&cloud.chart, text);
	add_front_line(&cloud, text);
	if (front.limit > 0 && (double)front.limit <= cloud.chart.x.high)
		text_printf(text,
			"<path class=\"limit\" d=\"M%d 0V%d\"><title>limit</title></path>\n",
			chart_x(&cloud.chart, (double)front.limit), CHART_HEIGHT);
	chart_marks(text);
	add_candidates(&cloud, answer->chosen != NULL ? &answer->chosen->plan : NULL, text);
	chart_end(&cloud.chart, text);
	text_printf(text, "<p class=\"note\">%s</p>", text_string(&description));
	add_cloud_legend(&front, text);
	text_finish(&description);
	arena_finish(&arena);
}
