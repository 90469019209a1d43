/* Step time and peak memory of every strategy, as bars side by side. */
#include "reports/chart.h"
#include "reports/escape.h"
#include "reports/figures.h"
#include "reports/pieces.h"

enum { MAX_ROWS = 24, BAR_HEIGHT = 10 };

static const struct candidate *candidate_of(const struct answer *answer, int i)
{
	if (answer->chosen == NULL)
		return i < answer->n_alternatives ? &answer->alternatives[i] : NULL;
	if (i == 0)
		return answer->chosen;
	return i - 1 < answer->n_alternatives ? &answer->alternatives[i - 1] : NULL;
}

static bool is_drawn(const struct candidate *candidate)
{
	return candidate->verdict != VERDICT_IMPOSSIBLE;
}

struct bars {
	double most_time, most_bytes;
	double limit;
};

static void find_most(const struct answer *answer, struct bars *bars)
{
	const struct candidate *candidate;

	for (int i = 0; i < MAX_ROWS && (candidate = candidate_of(answer, i)) != NULL; i++) {
		const struct prediction *prediction = &candidate->prediction;
		if (!is_drawn(candidate))
			continue;
		if (prediction->step_time > bars->most_time)
			bars->most_time = prediction->step_time;
		if ((double)prediction->peak_memory_bytes > bars->most_bytes)
			bars->most_bytes = (double)prediction->peak_memory_bytes;
		bars->limit = (double)prediction->memory_limit_bytes;
	}
	/* A model of 1 TB on 80 GB devices would hide every other bar. */
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

static void begin_svg(const char *what, const char *value, struct text *text)
{
	text_printf(text,
		"<svg role=\"img\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" "
		"aria-label=\"%s %s\">",
		CHART_WIDTH, BAR_HEIGHT, what, value);
}

static void add_rectangle(const char *css, int from, int to, struct text *text)
{
	text_printf(text, "<path class=\"%s\" d=\"M%d 0H%dV%dH%dz\"/>", css, from, to, BAR_HEIGHT,
		from);
}

static void add_time(const struct candidate *candidate, const struct bars *bars, struct text *text)
{
	const struct prediction *prediction = &candidate->prediction;
	double exposed = prediction->time.exposed_communication;
	bool fits = candidate->verdict != VERDICT_DOES_NOT_FIT;
	int end = width_of(prediction->step_time, bars->most_time);
	int busy = width_of(prediction->step_time - exposed, bars->most_time);
	char buffer[32];

	format_seconds(buffer, prediction->step_time);
	text_add(text, "<div class=\"cell\">");
	begin_svg("step time", buffer, text);
	add_rectangle(fits ? "b-busy" : "b-out", 0, busy, text);
	if (exposed > 0)
		add_rectangle(fits ? "k-exposed" : "b-out-exposed", busy, end, text);
	text_printf(text, "</svg><span>%s", buffer);
	if (exposed > 0)
		text_printf(text, " <small>%s exposed</small>", format_seconds(buffer, exposed));
	text_add(text, "</span></div>");
}

static void add_memory(
	const struct candidate *candidate, const struct bars *bars, struct text *text)
{
	const int64_t *bytes = candidate->prediction.memory_at_peak;
	double sum = 0, total = (double)candidate->prediction.peak_memory_bytes;
	char buffer[32], css[8] = "c0";

	format_bytes(buffer, total);
	text_add(text, "<div class=\"cell\">");
	begin_svg("peak memory", buffer, text);
	for (int c = 0; c < CATEGORY_COUNT; c++) {
		int from = width_of(sum, bars->most_bytes);
		sum += (double)bytes[c];
		css[1] = (char)('0' + c);
		if (width_of(sum, bars->most_bytes) > from)
			add_rectangle(css, from, width_of(sum, bars->most_bytes), text);
	}
	if (bars->limit > 0 && bars->limit <= bars->most_bytes)
		text_printf(text, "<path class=\"limit\" d=\"M%d 0V%d\"/>",
			width_of(bars->limit, bars->most_bytes), BAR_HEIGHT);
	text_printf(text, "</svg><span>%s", buffer);
	if (candidate->verdict == VERDICT_DOES_NOT_FIT)
		text_add(text, " <small>does not fit</small>");
	text_add(text, "</span></div>");
}

static void add_row(const struct candidate *candidate, const struct bars *bars, struct text *text)
{
	const struct plan *plan = &candidate->plan;

	text_printf(text, "<div class=\"row%s\"><div class=\"name\">%s",
		candidate->verdict == VERDICT_CHOSEN ? " chosen" : "",
		strategy_names[plan->strategy]);
	if (strategy_is_hybrid(plan->strategy))
		text_printf(text, "/%lld", (long long)plan->mesh.shard);
	text_printf(text, " <small>%s, checkpointing %s, %lld x %lld</small></div>",
		runtime_names[plan->runtime], plan->activation_checkpointing,
		(long long)plan->micro_batch, (long long)plan->grad_accum);
	add_time(candidate, bars, text);
	add_memory(candidate, bars, text);
	text_add(text, "</div>\n");
}

static void add_legend(const struct bars *bars, struct text *text)
{
	char buffer[32];

	text_add(text, "<ul class=\"legend\"><li><i class=\"b-busy\"></i>step time, busy</li>"
		       "<li><i class=\"k-exposed\"></i>exposed communication</li>"
		       "<li><i class=\"b-out\"></i>does not fit</li></ul><ul class=\"legend\">");
	for (int c = 0; c < CATEGORY_COUNT; c++) {
		text_printf(text, "<li><i class=\"c%d\"></i>", c);
		category_label((enum category)c, text);
		text_add(text, "</li>");
	}
	if (bars->limit > 0 && bars->limit <= bars->most_bytes)
		text_printf(text, "<li><i class=\"l-limit\"></i>limit %s</li>",
			format_bytes(buffer, bars->limit));
	text_add(text, "</ul></figure>\n");
}

void chart_strategies(const struct answer *answer, struct text *text)
{
	const struct candidate *candidate;
	struct bars bars = {0};

	find_most(answer, &bars);
	text_add(text, "<figure class=\"chart\"><figcaption>Step time and peak memory by strategy"
		       "</figcaption>\n<div class=\"bars\">\n");
	for (int i = 0; i < MAX_ROWS && (candidate = candidate_of(answer, i)) != NULL; i++) {
		if (is_drawn(candidate))
			add_row(candidate, &bars, text);
	}
	text_add(text, "</div>\n");
	add_legend(&bars, text);
}
