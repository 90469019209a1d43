/* `check`: compares a prediction with a measurement. */
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"

/* Reads "15" and "15%" as 15 percent. Without the option times are not judged. */
static bool read_tolerance(const struct arguments *arguments, struct arena *arena,
	struct tolerance *tolerance, struct error *error)
{
	const char *typed = argument(arguments, "tolerance-time");
	double percent;

	*tolerance = report_default_tolerance;
	if (typed == NULL)
		return true;
	size_t length = strlen(typed);
	bool has_sign = length > 0 && typed[length - 1] == '%';
	if (!parse_number(arena_strndup(arena, typed, length - has_sign), &percent) || percent < 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--tolerance-time: expected a percentage such as 20, got \"%.60s\"", typed);
	tolerance->time = percent / 100;
	return true;
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	struct arena *arena = invocation->arena;
	struct tolerance tolerance;
	struct opened opened;
	struct measurement measured;
	struct check check;
	struct style style;
	struct text text = {0};

	if (!output_style(arguments, &style, error) ||
		!read_tolerance(arguments, arena, &tolerance, error) ||
		!open_plan(arena, arguments->operands[0], &opened, error) ||
		!input_measurement(arena, arguments->operands[1], &opened.file, &measured, error))
		return false;
	opened_tell_measured(&opened);
	report_check(opened.evaluation.schedule, &opened.file.prediction, &measured, &tolerance,
		arena, &check);
	if (argument_given(arguments, "json"))
		report_check_json(&check, &text);
	else
		report_check_text(&check, &style, &text);
	bool ok = output_text(&text, error);
	text_finish(&text);
	invocation->verdict = check.ok ? EXIT_CODE_OK : EXIT_CODE_NO;
	return ok;
}

const struct command command_check = {
	.name = "check",
	.summary = "compare a prediction with its measurement, line by line",
	.operands = "PLAN.yaml MEASURED.json",
	.least = 2,
	.most = 2,
	.details = "Bytes and counts are judged exactly, "
		   "the growth of a rank's memory as the system sees it (PSS, from 200 MB on) "
		   "within 10 %, what is in use on a GPU by its own account within 3 %, "
		   "times only with --tolerance-time. "
		   "Exit code 1: outside. A measurement of another schedule is refused (3).",
	.examples = {"shardplan check plan.yaml measured.json",
		"shardplan check plan.yaml measured.json --tolerance-time 25"},
	.run = run,
};
