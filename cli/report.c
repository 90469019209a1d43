/* `report`: one document with everything. */
#include <string.h>

#include "cli/command.h"
#include "cli/files.h"
#include "cli/inputs.h"
#include "cli/output.h"
#include "cli/question.h"

enum format { FORMAT_HTML, FORMAT_MARKDOWN, FORMAT_TRACE, FORMAT_JSON, FORMAT_CSV };
static const char *const format_names[] = {"html", "markdown", "trace", "json", "csv", NULL};

static bool read_format(const struct arguments *arguments, enum format *format, struct error *error)
{
	static const struct {
		const char *ending;
		enum format format;
	} endings[] = {{".trace.json", FORMAT_TRACE}, {".json", FORMAT_JSON}, {".csv", FORMAT_CSV},
		{".md", FORMAT_MARKDOWN}};
	const char *file = argument(arguments, "output");
	size_t length = file != NULL ? strlen(file) : 0;
	int index = FORMAT_HTML;

	for (int i = COUNT_OF(endings) - 1; i >= 0; i--) {
		size_t ending = strlen(endings[i].ending);
		if (length > ending && strcmp(file + length - ending, endings[i].ending) == 0)
			index = (int)endings[i].format;
	}
	if (!argument_choice(arguments, "format", format_names, &index, error))
		return false;
	*format = (enum format)index;
	return true;
}

/* The question that the plan answered, from its file: the other strategies are planned again. */
static bool ask_again(struct arena *arena, const struct opened *opened, struct question *question,
	struct error *error)
{
	const struct plan_file *file = &opened->file;
	const char *options = file->question.options != NULL ? file->question.options : "";
	struct arguments arguments;
	struct error why = {0};

	*question = (struct question){.model = file->model, .topology = file->topology};
	if (question_scan(options, &arguments, arena, &why) &&
		ask_options(arena, &arguments, false, question, &why))
		return true;
	return error_set(error, EXIT_CODE_INPUT,
		"%s: question: options: %s; or use "
		"--no-alternatives",
		opened->path, why.message);
}

static void write_case(const struct opened *opened, struct text *text)
{
	report_case_header(text);
	report_case_row(opened->path, &opened->file.prediction, "", text);
}

static void write_report(const struct report *report, const struct opened *opened,
	enum format format, struct text *text)
{
	if (format == FORMAT_HTML)
		report_html(report, text);
	else if (format == FORMAT_MARKDOWN)
		report_markdown(report, text);
	else if (format == FORMAT_TRACE)
		report_trace(&report->explained, text);
	else if (format == FORMAT_JSON)
		report_explain_json(&report->explained, text);
	else
		write_case(opened, text);
}

/* Alternatives and check, where the format shows them. */
static bool complete(const struct invocation *invocation, const struct opened *opened,
	enum format format, struct report *report, struct error *error)
{
	struct arena *arena = invocation->arena;
	bool is_page = format == FORMAT_HTML || format == FORMAT_MARKDOWN;
	struct question *question = ARENA_NEW(arena, struct question);
	struct answer *answer = ARENA_NEW(arena, struct answer);
	struct check *check = ARENA_NEW(arena, struct check);

	if (is_page && !argument_given(&invocation->arguments, "no-alternatives")) {
		if (!ask_again(arena, opened, question, error) ||
			!planner_plan(question, arena, answer, error))
			return false;
		report->question = question;
		report->answer = answer;
	}
	if (report->explained.measured != NULL) {
		report_check(opened->evaluation.schedule, &opened->file.prediction,
			report->explained.measured, &report_default_tolerance, arena, check);
		report->check = check;
	}
	return true;
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *path = argument(arguments, "output");
	bool measured = arguments->n_operands > 1;
	enum format format;
	struct opened opened;
	struct measurement measurement;
	struct text text = {0};

	if (!read_format(arguments, &format, error) ||
		!open_plan(invocation->arena, arguments->operands[0], &opened, error) ||
		(measured && !input_measurement(invocation->arena, arguments->operands[1],
				     &opened.file, &measurement, error)))
		return false;
	struct report report = {.asked = opened.file.question,
		.explained = opened_explained(&opened, measured ? &measurement : NULL)};
	if (!complete(invocation, &opened, format, &report, error))
		return false;
	write_report(&report, &opened, format, &text);
	bool ok = file_write(invocation->arena, path != NULL ? path : "-", &text, error);
	text_finish(&text);
	if (ok && path != NULL && strcmp(path, "-") != 0)
		output_note("the report is in %s", path);
	return ok;
}

const struct command command_report = {
	.name = "report",
	.summary = "write one self-contained page, or a trace, of a plan",
	.operands = "PLAN.yaml [MEASURED.json]",
	.least = 1,
	.most = 2,
	.details = "Without -o to stdout. The page needs no network. `trace` is for "
		   "ui.perfetto.dev or chrome://tracing, `json` is what `explain --json` prints, "
		   "`csv` a row as of `predict --cases`. The comparison of strategies is planned "
		   "again from the question in the plan file.",
	.examples = {"shardplan report plan.yaml measured.json -o report.html",
		"shardplan report plan.yaml --format trace -o step.trace.json"},
	.run = run,
};
