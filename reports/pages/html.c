/* The HTML page: the answer first, then the reasons, then all details. */
#include "reports/pages/style_and_script.h"

#include "reports/charts/charts.h"
#include "reports/pages/card.h"
#include "reports/pages/pages.h"
#include "reports/views/views.h"

struct page {
	struct text *text;
	bool several; /* more than one report */
};

/* Forbids the page to load, send or frame anything, or to use another style or script. */
static void add_policy(struct text *text)
{
	text_printf(text,
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
		"style-src "
		"'%s'; script-src '%s'; img-src data:; base-uri 'none'; form-action 'none'\">\n",
		html_style_hash, html_script_hash);
}

static void add_head(const struct report *reports, int n, struct text *text)
{
	text_add(text, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
	add_policy(text);
	text_add(text, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		       "<meta name=\"color-scheme\" content=\"light dark\">\n"
		       "<meta name=\"referrer\" content=\"no-referrer\">\n"
		       "<link rel=\"icon\" href=\"data:,\">\n<title>shardplan: ");
	for (int i = 0; i < n && i < 3; i++) {
		text_add(text, i > 0 ? " | " : "");
		add_html(text, reports[i].asked.model);
		text_add(text, " on ");
		add_html(text, reports[i].asked.topology);
	}
	text_printf(text, "</title>\n<style>%s</style>\n</head>\n<body>\n<main>\n", html_style);
}

/* Begins a section. In a page of several reports it has no address, because ids must be unique. */
static void section(const struct page *page, const char *id, const char *heading)
{
	if (page->several)
		text_printf(page->text, "<section>\n<h3>%s</h3>\n", heading);
	else
		text_printf(page->text, "<section>\n<h2 id=\"%s\">%s</h2>\n", id, heading);
}

static void add_link(const char *id, const char *name, bool there, struct text *text)
{
	if (there)
		text_printf(text, "<li><a href=\"#%s\">%s</a></li>", id, name);
}

static void add_contents(const struct report *report, struct text *text)
{
	bool answered = report->answer != NULL;

	text_add(text, "<nav aria-label=\"contents\"><ul>");
	add_link("why", "Why", answered && report->answer->n_reasons > 0, text);
	add_link("strategies", "Strategies", answered, text);
	add_link("options", "Options", answered && report->answer->n_options > 0, text);
	add_link("levers", "Levers", answered && report->answer->n_levers > 0, text);
	add_link("way-out", "The way out",
		answered && (report->answer->n_ways_out > 0 || report->answer->useless_devices > 0),
		text);
	add_link("thresholds", "Thresholds", answered && report->answer->n_thresholds > 0, text);
	add_link("what-if", "What if", answered && report->answer->n_sensitivities > 0, text);
	add_link("measured", "Measured", report->explained.measured != NULL, text);
	add_link("scaling", "Scaling", report->scaling != NULL, text);
	add_link("link", "Link", report->link != NULL, text);
	add_link("time", "A step", true, text);
	add_link("memory", "Memory", true, text);
	add_link("pictures", "How it works", report->explained.predicted != NULL, text);
	add_link("assumptions", "Assumptions", true, text);
	text_add(text, "</ul></nav>\n");
}

static void add_reasons(const struct page *page, const struct answer *answer)
{
	struct text *text = page->text;
	if (answer->n_reasons == 0)
		return;
	section(page, "why", answer->chosen != NULL ? "Why this one" : "Why none");
	text_add(text, "<ul class=\"reasons\">\n");
	for (int i = 0; i < answer->n_reasons; i++) {
		text_add(text, "<li>");
		add_sentence(answer->reasons[i], text);
		text_add(text, "</li>\n");
	}
	text_add(text, "</ul>\n</section>\n");
}

static void add_thresholds(const struct page *page, const struct answer *answer)
{
	struct text *text = page->text;
	if (answer->n_thresholds == 0)
		return;
	section(page, "thresholds", "What would change the decision");
	text_add(text, "<p>The best plan of each strategy, compared again.</p>\n"
		       "<ul class=\"reasons\">\n");
	for (int i = 0; i < answer->n_thresholds; i++) {
		text_add(text, "<li>");
		add_html(text, answer->thresholds[i].sentence);
		text_add(text, "</li>\n");
	}
	text_add(text, "</ul>\n</section>\n");
}

static void add_options(const struct page *page, const struct answer *answer)
{
	struct text *text = page->text;
	char time[32], peak[32];

	if (answer->n_options == 0)
		return;
	section(page, "options", "Faster, further from the defaults");
	text_add(text, "<ul class=\"reasons\">\n");
	for (int i = 0; i < answer->n_options; i++) {
		const struct plan_option *option = &answer->options[i];
		text_printf(text,
			"<li>%.1f %% less time a token (%s a step, peak %s): ", 100 * option->gain,
			format_seconds(time, option->prediction.step_time),
			format_bytes(peak, (double)option->prediction.peak_memory_bytes));
		add_options_typed(option->typed, text);
		text_add(text, "</li>\n");
	}
	text_add(text, "</ul>\n</section>\n");
}

static void add_levers(const struct page *page, const struct answer *answer)
{
	struct text *text = page->text, raw = {0};
	struct grid grid;

	if (answer->n_levers == 0)
		return;
	section(page, "levers", "Levers");
	lever_grid(answer, &grid);
	put_html(&grid, "What one line of the training script gives, alone", true, text);
	if (answer->free != NULL) {
		text_add(text, "<p class=\"note\">");
		lever_sentence(answer, &raw);
		add_raw(&raw, text);
		text_add(text, "</p>\n");
	}
	text_add(text, "</section>\n");
}

static void add_way_out(const struct page *page, const struct answer *answer)
{
	struct text *text = page->text, raw = {0};

	if (answer->n_ways_out == 0 && answer->useless_devices == 0)
		return;
	section(page, "way-out", "The way out");
	text_add(text, "<p>What to type, each planned again.</p>\n<ul class=\"reasons\">\n");
	for (int i = 0; i < answer->n_ways_out; i++) {
		text_add(text, "<li>");
		way_out_sentence(&answer->ways_out[i], &raw);
		add_raw(&raw, text);
		text_add(text, "</li>\n");
	}
	text_add(text, "</ul>\n");
	if (answer->useless_devices > 0) {
		text_add(text, "<p class=\"note\">");
		useless_devices_sentence(answer, &raw);
		add_raw(&raw, text);
		text_add(text, "</p>\n");
	}
	text_add(text, "</section>\n");
}

static void add_front(const struct answer *answer, struct text *text)
{
	struct arena arena = {0};
	struct front front;
	struct grid grid;

	front_of(answer, &arena, &front);
	if (front.n > 1) {
		pareto_grid(&front, answer->chosen != NULL ? &answer->chosen->plan : NULL, &grid);
		text_add(text, "<details><summary>The plans on the line</summary>\n");
		put_html(&grid, "Nothing here beats these in both", true, text);
		text_add(text, "</details>\n");
	}
	arena_finish(&arena);
}

static void add_comparison(const struct page *page, const struct answer *answer)
{
	struct text *text = page->text;
	struct grid grid;
	struct text raw = {0};

	section(page, "strategies", "Strategies compared");
	chart_strategies(answer, text);
	comparison_grid(answer, false, &grid);
	put_html(&grid,
		"The best plan of each strategy; "
		"a column's name sorts by it, the step time by what a token takes",
		true, text);
	text_add(text, "<p class=\"note\">");
	add_proof(answer, &raw);
	add_raw(&raw, text);
	text_add(text, ".</p>\n");
	chart_pareto(answer, text);
	add_front(answer, text);
	text_add(text, "</section>\n");
	add_options(page, answer);
	add_levers(page, answer);
	add_way_out(page, answer);
	add_thresholds(page, answer);
	if (answer->n_sensitivities == 0)
		return;
	section(page, "what-if", "What if");
	sensitivity_grid(answer, false, &grid);
	put_html(&grid,
		answer->chosen == NULL ? "The closest plan with one thing changed"
				       : "The chosen plan with one thing changed: "
					 "a bar to the left is faster, to the right slower",
		true, text);
	text_add(text, "</section>\n");
}

static void add_study(const struct page *page, const char *id, const char *heading,
	const char *name, const struct study *study)
{
	struct text *text = page->text;
	struct arena arena = {0};
	struct grid grid;
	struct text words = {0};

	if (study == NULL)
		return;
	section(page, id, heading);
	chart_study(name, study, text);
	text_add(text, "<p>");
	study_sentence(study, &words);
	add_raw(&words, text);
	text_add(text, "</p>\n");
	study_grid(study, &arena, &grid);
	put_html(&grid, "tokens/s/GPU of each plan, and relative to the first row", false, text);
	text_add(text, "</section>\n");
	arena_finish(&arena);
}

static void add_studies(const struct page *page, const struct report *report)
{
	add_study(page, "scaling", "More of this hardware",
		"Throughput of one device as the machine grows, the same batch on each",
		report->scaling);
	add_study(page, "link", "A slower or faster link",
		"Throughput of one device as the slowest link changes", report->link);
}

static void add_memory_charts(const struct explained *explained, struct text *text)
{
	const struct prediction *prediction = explained->prediction;
	const struct measurement *measured = explained->measured;
	struct arena arena = {0};
	struct memory_curve curve;

	if (explained->memory != NULL && explained->predicted != NULL) {
		memory_with_overhead(explained->memory, prediction, &arena, &curve);
		chart_memory("Memory of one device over the step, predicted", &curve,
			timeline_end(explained->predicted), prediction->memory_limit_bytes, text);
	}
	if (measured != NULL) {
		memory_of_ledger(&measured->timeline, &arena, &curve);
		chart_memory("Memory of rank 0 over the step, measured (the executor's ledger)",
			&curve, timeline_end(&measured->timeline), 0, text);
	}
	arena_finish(&arena);
}

static void add_memory(const struct page *page, const struct explained *explained)
{
	struct text *text = page->text;
	const struct prediction *prediction = explained->prediction;
	struct grid grid;

	section(page, "memory", "Memory");
	add_memory_charts(explained, text);
	memory_grid(prediction, &grid);
	put_html(&grid, "Memory by category, predicted", false, text);
	if (stages_grid(prediction, &grid))
		put_html(&grid, "Stages of the pipeline", false, text);
	if (prediction->peak_at != NULL) {
		text_add(text, "<p class=\"note\">The peak is at ");
		add_html(text, prediction->peak_at);
		text_add(text, ".</p>\n");
	}
	text_add(text, "</section>\n");
}

static void add_picture(
	const char *view, const char *caption, const struct explained *explained, struct text *text)
{
	text_printf(text,
		"<figure><figcaption>%s</figcaption>\n<div class=\"scroll picture\" tabindex=\"0\" "
		"role=\"group\" aria-label=\"%s\">\n",
		caption, caption);
	report_view(view)->draw(explained, text);
	text_add(text, "</div></figure>\n");
}

static void add_time(const struct page *page, const struct explained *explained)
{
	struct text *text = page->text;
	const struct measurement *measured = explained->measured;
	struct grid grid;

	section(page, "time", "A step");
	if (explained->stages != NULL)
		add_picture("pipeline", "Which micro-batch every stage computes", explained, text);
	if (explained->predicted != NULL)
		chart_streams("One step, stream by stream, predicted", explained->schedule,
			explained->predicted, text);
	if (measured != NULL && measured->timeline.n_ops > 0)
		chart_streams("One step, stream by stream, measured (rank 0, the median step)",
			explained->schedule, &measured->timeline, text);
	text_add(text, "<div class=\"pair\">\n");
	kinds_grid(explained, &grid);
	put_html(&grid, "Time by kind of operation", true, text);
	time_grid(explained->prediction, &grid);
	put_html(&grid, "Where the time of a step goes; overlapping work counts in each line",
		false, text);
	text_add(text, "</div>\n");
	if (mesh_grid(explained->schedule->topology, explained->prediction, 2, &grid)) {
		put_html(&grid,
			"Communication by axis: sent by one rank; "
			"two axes at once are both exposed",
			true, text);
		add_picture("mesh", "Which ranks form which group", explained, text);
	}
	text_add(text, "</section>\n");
}

static void add_measured(const struct page *page, const struct report *report)
{
	struct text *text = page->text;
	const struct measurement *measured = report->explained.measured;
	struct grid grid;

	if (report->check == NULL && measured == NULL)
		return;
	section(page, "measured", "Predicted beside measured");
	if (report->check != NULL) {
		chart_check(report, text);
		check_grid(report->check, &grid);
		put_html(&grid,
			report->check->ok ? "Every judged line agrees" : "Some lines do not agree",
			false, text);
	}
	if (measured != NULL) {
		chart_loss(measured, text);
		measurement_grid(measured, &grid);
		put_html(&grid, "The measurement", false, text);
	}
	text_add(text, "</section>\n");
}

static void add_provenance(const struct page *page, const struct report *report)
{
	struct text *text = page->text;
	const struct schedule *schedule = report->explained.schedule;
	struct grid grid;

	section(page, "assumptions", "Assumptions and provenance");
	if (or_empty(report->asked.options)[0] != '\0') {
		text_add(text, "<p>Asked with ");
		add_options_typed(report->asked.options, text);
		text_add(text, "</p>\n");
	}
	text_add(text, "<div class=\"pair\">\n");
	assumptions_grid(&report->explained, schedule->topology, &grid);
	put_html(&grid, "What the figures rest on", false, text);
	plan_grid(&schedule->plan, &grid);
	put_html(&grid, "The plan, every knob", false, text);
	text_add(text, "</div>\n");
	text_add(text, "</section>\n");
}

static void add_pictures(const struct page *page, const struct explained *explained)
{
	if (explained->predicted == NULL || explained->schedule->model == NULL)
		return;
	section(page, "pictures", "How it works");
	add_picture("communication", "Who communicates what, and when", explained, page->text);
	text_add(page->text, "</section>\n");
}

/* Adds everything about one report that comes after its answer. */
static void add_details(const struct page *page, const struct report *report)
{
	if (report->answer != NULL) {
		add_reasons(page, report->answer);
		add_comparison(page, report->answer);
	}
	/* A measurement matters more than a prediction, so a check comes before the details. */
	add_measured(page, report);
	add_studies(page, report);
	add_time(page, &report->explained);
	add_memory(page, &report->explained);
	add_pictures(page, &report->explained);
	add_provenance(page, report);
}

static void add_one(const struct page *page, const struct report *report)
{
	struct text *text = page->text;

	text_add(text, "<header><h1>Which sharding strategy for ");
	add_html(text, report->asked.model);
	text_add(text, " on ");
	add_html(text, report->asked.topology);
	text_add(text, "?</h1></header>\n");
	add_card(report, text);
	add_contents(report, text);
	add_details(page, report);
}

/* Adds all reports side by side first. Each one then has its answer, reasons, check, step and
 * memory. */
static void add_several(const struct page *page, const struct report *reports, int n)
{
	struct text *text = page->text;
	struct grid grid;

	text_printf(text, "<header><h1>%d plans side by side</h1></header>\n<section>\n", n);
	chart_reports(reports, n, text);
	reports_grid(reports, n, &grid);
	put_html(&grid, "All figures; select a column's name to sort by it", true, text);
	text_add(text, "</section>\n");
	for (int i = 0; i < n; i++) {
		const struct report *report = &reports[i];
		text_add(text, "<section>\n<h2>");
		add_html(text, report_name(report));
		text_add(text, "</h2>\n");
		add_card(report, text);
		text_add(text, "</section>\n");
		if (report->answer != NULL)
			add_reasons(page, report->answer);
		add_measured(page, report);
		add_time(page, &report->explained);
		add_memory(page, &report->explained);
		add_provenance(page, report);
	}
}

void report_html(const struct report *reports, int n, struct text *text)
{
	const struct page page = {text, n > 1};

	add_head(reports, n, text);
	if (n == 1)
		add_one(&page, &reports[0]);
	else
		add_several(&page, reports, n);
	text_printf(text,
		"<footer>Made by shardplan %s. This page loads nothing and sends nothing."
		"</footer>\n</main>\n<script>%s</script>\n</body>\n</html>\n",
		SHARDPLAN_VERSION, html_script);
}
