/* Bars of time and peak memory side by side, for the best plan of each strategy or for several
 * reports. Times are of equal work. */
#include "reports/charts/axes.h"
#include "reports/charts/charts.h"

enum { MAX_ROWS = 24, BAR_HEIGHT = 10 };

/* The content of one row. `time` is that of as many tokens as a step of the first row has. */
struct bar_row {
	const struct prediction *prediction;
	const struct plan *plan;
	double tokens; /* of a step of one device */
	double time;
	bool chosen, fits;
	const char *name, *why; /* unescaped; `name` NULL: the plan's name */
};

struct bars {
	int n;
	struct bar_row rows[MAX_ROWS];
	double most_time, most_bytes;
	double limit; /* the largest */
	bool one_limit;
};

static void add_bar_row(
	const struct plan *plan, const struct prediction *prediction, struct bars *bars)
{
	double tokens =
		(double)plan->global_batch * (double)plan->seq_len / (double)plan_ranks(plan);

	if (bars->n == MAX_ROWS)
		return;
	double first = bars->n > 0 ? bars->rows[0].tokens : tokens;
	bars->rows[bars->n++] = (struct bar_row){.prediction = prediction,
		.plan = plan,
		.tokens = tokens,
		.time = prediction->step_time * first / tokens,
		.fits = prediction->fits != FITS_NO};
}

static void find_most(struct bars *bars)
{
	for (int i = 0; i < bars->n; i++) {
		const struct prediction *prediction = bars->rows[i].prediction;
		if (bars->rows[i].time > bars->most_time)
			bars->most_time = bars->rows[i].time;
		if ((double)prediction->peak_memory_bytes > bars->most_bytes)
			bars->most_bytes = (double)prediction->peak_memory_bytes;
		if ((double)prediction->memory_limit_bytes > bars->limit)
			bars->limit = (double)prediction->memory_limit_bytes;
	}
	bars->one_limit = true;
	for (int i = 0; i < bars->n; i++)
		bars->one_limit =
			bars->one_limit &&
			(double)bars->rows[i].prediction->memory_limit_bytes == bars->limit;
	/* Bars end at three times the limit: a model of 1 TB on devices of 80 GB would hide the
	 * others. */
	if (bars->limit > 0 && bars->most_bytes > 3 * bars->limit)
		bars->most_bytes = 3 * bars->limit;
	if (bars->limit > bars->most_bytes && bars->limit < 4 * bars->most_bytes)
		bars->most_bytes = bars->limit * 1.02;
}

static int width_of(double value, double most)
{
	double width = most > 0 ? value / most * CHART_WIDTH : 0;

	return width > CHART_WIDTH ? CHART_WIDTH : width < 0 ? 0 : (int)(width + 0.5);
}

static void begin_svg(const char *what, const char *value, bool fits, struct text *text)
{
	text_printf(text,
		"<svg role=\"img\"%s viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
		"aria-label=\"%s %s\">",
		fits ? "" : " class=\"pale\"", CHART_WIDTH, BAR_HEIGHT, what, value);
}

static void add_rectangle(
	const char *css, int from, int to, const char *title, double figure, struct text *text)
{
	char buffer[32];

	text_printf(text, "<path class=\"%s\" d=\"M%d 0H%dV%dH%dz\"><title>%s ", css, from, to,
		BAR_HEIGHT, from, title);
	text_printf(text, "%s</title></path>", format_bytes(buffer, figure));
}

static void add_seconds_rectangle(
	const char *css, int from, int to, const char *title, double seconds, struct text *text)
{
	char buffer[32];

	text_printf(text, "<path class=\"%s\" d=\"M%d 0H%dV%dH%dz\"><title>%s %s</title></path>",
		css, from, to, BAR_HEIGHT, from, title, format_seconds(buffer, seconds));
}

static void add_time(const struct bar_row *row, const struct bars *bars, struct text *text)
{
	const struct prediction *prediction = row->prediction;
	double scale = row->time / prediction->step_time;
	double exposed = prediction->time.exposed_communication * scale;
	int end = width_of(row->time, bars->most_time);
	int busy = width_of(row->time - exposed, bars->most_time);
	char buffer[32];

	text_add(text, "<div class=\"cell\">");
	begin_svg("time", format_seconds(buffer, row->time), row->fits, text);
	add_seconds_rectangle("k-work", 0, busy, "computing or hidden", row->time - exposed, text);
	if (exposed > 0)
		add_seconds_rectangle(
			"k-exposed", busy, end, "exposed communication", exposed, text);
	text_printf(text, "</svg><span>%s", format_seconds(buffer, row->time));
	if (exposed > 0)
		text_printf(text, " <small>%s exposed</small>", format_seconds(buffer, exposed));
	if (row->tokens != bars->rows[0].tokens)
		text_printf(text, " <small>in %.3g steps of %s</small>",
			bars->rows[0].tokens / row->tokens,
			format_seconds(buffer, prediction->step_time));
	text_add(text, "</span></div>");
}

static void add_memory(const struct bar_row *row, const struct bars *bars, struct text *text)
{
	const int64_t *bytes = row->prediction->memory_at_peak;
	double sum = 0, total = (double)row->prediction->peak_memory_bytes;
	char buffer[32], css[8] = "c0";
	struct text label = {0};

	text_add(text, "<div class=\"cell\">");
	begin_svg("peak memory", format_bytes(buffer, total), row->fits, text);
	for (int c = 0; c < CATEGORY_COUNT; c++) {
		int from = width_of(sum, bars->most_bytes);
		sum += (double)bytes[c];
		css[1] = (char)('0' + c);
		text_clear(&label);
		category_label((enum category)c, &label);
		if (width_of(sum, bars->most_bytes) > from)
			add_rectangle(css, from, width_of(sum, bars->most_bytes),
				text_string(&label), (double)bytes[c], text);
	}
	text_finish(&label);
	double limit = (double)row->prediction->memory_limit_bytes;
	if (limit > 0 && limit <= bars->most_bytes)
		text_printf(text, "<path class=\"limit\" d=\"M%d 0V%d\"/>",
			width_of(limit, bars->most_bytes), BAR_HEIGHT);
	text_printf(text, "</svg><span>%s", format_bytes(buffer, total));
	/* What a plan is said to need beside the bar is without it. */
	double cache = total - (double)prediction_needed_bytes(row->prediction);
	if (cache > 0.02 * limit)
		text_printf(text, " <small>%s of it cache%s</small>", format_bytes(buffer, cache),
			row->fits ? "" : ",");
	if (!row->fits)
		text_add(text, " <small>does not fit</small>");
	if (total > bars->most_bytes)
		text_add(text, " <small>(bar is cut)</small>");
	text_add(text, "</span></div>");
}

static void add_name(const struct bar_row *row, const struct plan *chosen, struct text *text)
{
	const struct plan *plan = row->plan;
	struct text name = {0};
	char batch[48];

	if (row->name != NULL)
		text_add(&name, row->name);
	else
		candidate_name(plan, chosen, &name);
	text_add(text, "<div class=\"name\">");
	add_html(text, text_string(&name));
	text_clear(&name);
	if (row->name != NULL) {
		candidate_name(plan, NULL, &name);
		text_add(&name, ", ");
	}
	text_printf(&name, "%s, checkpointing %s, micro-batch %s", runtime_names[plan->runtime],
		plan->activation_checkpointing.text,
		format_micro_batch(batch, plan->micro_batch, plan->grad_accum));
	text_add(text, " <small>");
	add_html(text, text_string(&name));
	text_add(text, "</small></div>");
	text_finish(&name);
}

static void add_row(const struct bar_row *row, const struct bars *bars, struct text *text)
{
	text_printf(text, "<div class=\"row%s\">", row->chosen ? " chosen" : "");
	add_name(row, bars->rows[0].plan, text);
	add_time(row, bars, text);
	add_memory(row, bars, text);
	if (or_empty(row->why)[0] != '\0') {
		text_add(text, "<div class=\"why\">");
		add_html(text, row->why);
		text_add(text, "</div>");
	}
	text_add(text, "</div>\n");
}

static void add_legend(const struct bars *bars, struct text *text)
{
	char buffer[32];

	text_add(text, "<ul class=\"legend\"><li><b>Time</b></li>"
		       "<li><i class=\"k-work\"></i>computing, or hidden</li>"
		       "<li><i class=\"k-exposed\"></i>exposed communication</li></ul>"
		       "<ul class=\"legend\"><li><b>Memory</b></li>");
	for (int c = 0; c < CATEGORY_COUNT; c++) {
		text_printf(text, "<li><i class=\"c%d\"></i>", c);
		category_label((enum category)c, text);
		text_add(text, "</li>");
	}
	if (bars->limit > 0 && bars->limit <= bars->most_bytes)
		text_printf(text, "<li><i class=\"l-limit\"></i>limit %s</li>",
			bars->one_limit ? format_bytes(buffer, bars->limit) : "of each");
	for (int i = 0; i < bars->n; i++) {
		if (bars->rows[i].fits)
			continue;
		text_add(text, "<li>pale: does not fit</li>");
		break;
	}
	text_add(text, "</ul></figure>\n");
}

static void draw(const char *name, struct bars *bars, struct text *text)
{
	find_most(bars);
	text_printf(text,
		"<figure class=\"chart\"><figcaption>%s<small>Time is for %.0f tokens a "
		"device in every row.</small></figcaption>\n<div class=\"bars\">\n",
		name, bars->rows[0].tokens);
	for (int i = 0; i < bars->n; i++)
		add_row(&bars->rows[i], bars, text);
	text_add(text, "</div>\n");
	add_legend(bars, text);
}

static void add_candidate(const struct candidate *candidate, struct bars *bars)
{
	int before = bars->n;

	if (candidate->outcome == OUTCOME_IMPOSSIBLE)
		return;
	add_bar_row(&candidate->plan, &candidate->prediction, bars);
	if (bars->n == before)
		return;
	struct bar_row *row = &bars->rows[before];
	row->chosen = candidate->outcome == OUTCOME_CHOSEN;
	row->fits = candidate->outcome != OUTCOME_DOES_NOT_FIT;
	row->why = candidate->why_not;
}

void chart_strategies(const struct answer *answer, struct text *text)
{
	struct bars bars = {0};

	if (answer->chosen != NULL)
		add_candidate(answer->chosen, &bars);
	for (int i = 0; i < answer->n_alternatives; i++) {
		if (is_best_of_its_strategy(answer, i))
			add_candidate(&answer->alternatives[i], &bars);
	}
	if (bars.n > 0)
		draw("Time and peak memory: the best plan of each strategy, and why it lost", &bars,
			text);
}

void chart_reports(const struct report *reports, int n, struct text *text)
{
	struct bars bars = {0};

	for (int i = 0; i < n; i++) {
		const struct explained *explained = &reports[i].explained;
		int before = bars.n;
		add_bar_row(&explained->schedule->plan, explained->prediction, &bars);
		if (bars.n > before)
			bars.rows[before].name = report_name(&reports[i]);
	}
	draw("Time and peak memory of one device", &bars, text);
}
