/* The report as Markdown, for a pull request. */
#include "reports/pages/pages.h"

static void add_escaped(struct text *raw, struct text *text)
{
	add_markdown(text, text_string(raw));
	text_finish(raw);
}

static void add_title(const struct report *report, struct text *text)
{
	const struct schedule *schedule = report->explained.schedule;
	struct text subject = {0};

	add_subject_line(schedule->model, schedule->topology, &subject);
	text_add(text, "# ");
	add_escaped(&subject, text);
	text_add(text, "\n\n**");
	plan_summary(&schedule->plan, &subject);
	add_escaped(&subject, text);
	text_add(text, "**\n\n");
	add_answer_figures(report->explained.prediction, &subject);
	add_escaped(&subject, text);
	text_add(text, ".\n\n");
}

static void add_levers(const struct answer *answer, struct text *text)
{
	struct text words = {0};
	struct grid grid;

	if (answer->n_levers == 0)
		return;
	text_add(text, "## Levers\n\n");
	lever_grid(answer, &grid);
	put_markdown(&grid, text);
	lever_sentence(answer, &words);
	add_escaped(&words, text);
	text_add(text, answer->free != NULL ? "\n\n" : "");
}

static void add_way_out(const struct answer *answer, struct text *text)
{
	struct text words = {0};

	if (answer->n_ways_out == 0 && answer->useless_devices == 0)
		return;
	text_add(text, "## The way out\n\n");
	for (int i = 0; i < answer->n_ways_out; i++) {
		text_add(text, "- ");
		way_out_sentence(&answer->ways_out[i], &words);
		add_escaped(&words, text);
		text_add_char(text, '\n');
	}
	useless_devices_sentence(answer, &words);
	text_add(text, answer->useless_devices > 0 ? "- " : "");
	add_escaped(&words, text);
	text_add(text, "\n\n");
}

static void add_answer(const struct answer *answer, struct text *text)
{
	struct text proof = {0};
	struct grid grid;

	for (int i = 0; i < answer->n_warnings; i++) {
		text_add(text, "**Warning**: ");
		add_markdown(text, answer->warnings[i].sentence);
		text_add(text, ".\n\n");
	}
	for (int i = 0; i < answer->n_reasons; i++) {
		text_add(text, "- ");
		add_markdown(text, answer->reasons[i]);
		text_add_char(text, '\n');
	}
	text_add(text, "\n## Strategies\n\n");
	comparison_grid(answer, true, &grid);
	put_markdown(&grid, text);
	add_proof(answer, &proof);
	add_escaped(&proof, text);
	text_add(text, ".\n\n");
	add_levers(answer, text);
	add_way_out(answer, text);
	if (answer->n_thresholds > 0)
		text_add(text, "## What would change the decision\n\n");
	for (int i = 0; i < answer->n_thresholds; i++) {
		text_add(text, "- ");
		add_markdown(text, answer->thresholds[i].sentence);
		text_add(text, i + 1 < answer->n_thresholds ? "\n" : "\n\n");
	}
	if (answer->n_sensitivities == 0)
		return;
	text_add(text, "## What if\n\n");
	sensitivity_grid(answer, false, &grid);
	put_markdown(&grid, text);
}

static void add_study(const char *heading, const struct study *study, struct text *text)
{
	struct arena arena = {0};
	struct text words = {0};
	struct grid grid;

	if (study == NULL)
		return;
	text_printf(text, "## %s\n\n", heading);
	study_sentence(study, &words);
	add_escaped(&words, text);
	text_add(text, "\n\n");
	study_grid(study, &arena, &grid);
	put_markdown(&grid, text);
	arena_finish(&arena);
}

static void add_front(const struct answer *answer, struct text *text)
{
	struct arena arena = {0};
	struct front front;
	struct grid grid;

	front_of(answer, &arena, &front);
	if (front.n > 1) {
		text_add(text, "## Throughput against memory\n\nNothing here beats these in "
			       "both.\n\n");
		pareto_grid(&front, answer->chosen != NULL ? &answer->chosen->plan : NULL, &grid);
		put_markdown(&grid, text);
	}
	arena_finish(&arena);
}

static void add_measured(const struct report *report, struct text *text)
{
	struct grid grid;

	if (report->check != NULL) {
		text_add(text, "## Predicted beside measured\n\n");
		check_grid(report->check, &grid);
		put_markdown(&grid, text);
	}
	if (report->explained.measured != NULL) {
		text_add(text, "## Measurement\n\n");
		measurement_grid(report->explained.measured, &grid);
		put_markdown(&grid, text);
	}
}

static void add_one(const struct report *report, struct text *text)
{
	const struct explained *explained = &report->explained;
	struct grid grid;

	add_title(report, text);
	if (report->answer != NULL) {
		add_answer(report->answer, text);
		add_front(report->answer, text);
	}
	add_measured(report, text);
	add_study("More of this hardware", report->scaling, text);
	add_study("A slower or faster link", report->link, text);
	text_add(text, "## Memory\n\n");
	memory_grid(explained->prediction, &grid);
	put_markdown(&grid, text);
	if (stages_grid(explained->prediction, &grid))
		put_markdown(&grid, text);
	text_add(text, "## Time\n\n");
	kinds_grid(explained, &grid);
	put_markdown(&grid, text);
	if (mesh_grid(explained->schedule->topology, explained->prediction, 2, &grid))
		put_markdown(&grid, text);
	text_add(text, "## Plan\n\n");
	plan_grid(&explained->schedule->plan, &grid);
	put_markdown(&grid, text);
	text_add(text, "## Assumptions\n\n");
	assumptions_grid(explained, explained->schedule->topology, &grid);
	put_markdown(&grid, text);
}

void report_markdown(const struct report *reports, int n, struct text *text)
{
	struct grid grid;

	if (n > 1) {
		text_printf(text, "# %d plans side by side\n\n", n);
		reports_grid(reports, n, &grid);
		put_markdown(&grid, text);
	}
	for (int i = 0; i < n; i++)
		add_one(&reports[i], text);
}
