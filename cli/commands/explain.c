/* `explain`: shows the schedule of a plan file, with predicted and measured times on one line. */
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"
#include "frameworks/frameworks.h"

/* Lists the views as "summary, operations, ...", or only those with a picture, and fills
 * `names`. */
static const char *list_views(bool drawn, const char **names, struct arena *arena)
{
	const char *list = "";
	int n = 0;

	for (int i = 0; i < n_report_views; i++) {
		const struct view *view = &report_views[i];
		if (drawn && view->draw == NULL)
			continue;
		list = arena_printf(arena, "%s%s%s", list, n > 0 ? ", " : "", view->name);
		names[n++] = view->name;
	}
	names[n] = drawn ? NULL : "schedule";
	return drawn ? list : arena_printf(arena, "%s, schedule", list);
}

static bool unknown_view(const char *name, struct arena *arena, struct error *error)
{
	const char **names = ARENA_ARRAY(arena, const char *, n_report_views + 2);
	const char *list = list_views(false, names, arena);
	const char *near = nearest_name(name, names);

	return error_set(error, EXIT_CODE_USAGE, "--view %.60s: expected one of %s%s%s%s", name,
		list, near != NULL ? "; did you mean " : "", near != NULL ? near : "",
		near != NULL ? "?" : "");
}

static bool no_picture(const char *name, struct arena *arena, struct error *error)
{
	const char **names = ARENA_ARRAY(arena, const char *, n_report_views + 2);

	return error_set(error, EXIT_CODE_USAGE, "--svg: view \"%s\" is text only; pictures: %s",
		name, list_views(true, names, arena));
}

static bool write_view(const struct invocation *invocation, const struct explained *explained,
	struct text *text, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *name = argument(arguments, "view");
	struct style style;

	if (!output_style(arguments, &style, error))
		return false;
	if (argument_given(arguments, "json")) {
		if (name != NULL || argument_given(arguments, "svg"))
			return error_set(error, EXIT_CODE_USAGE,
				"--%s: does not go with --json, which says everything",
				name != NULL ? "view" : "svg");
		report_explain_json(explained, text);
		return true;
	}
	bool svg = argument_given(arguments, "svg");
	if (name != NULL && strcmp(name, "schedule") == 0 && !svg) {
		output_note("this view is for machines, it is what the digest is of; "
			    "--view operations is for people");
		schedule_print(explained->schedule, text);
		return true;
	}
	const struct view *view = name != NULL ? report_view(name) : &report_views[0];
	if (view == NULL)
		return unknown_view(name, invocation->arena, error);
	if (svg && view->draw == NULL)
		return no_picture(view->name, invocation->arena, error);
	if (svg)
		view->draw(explained, text);
	else
		view->write(explained, &style, text);
	return true;
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *measured_path = argument(arguments, "analyze");
	struct opened opened;
	struct measurement measured;
	struct text text = {0};

	if (!open_plan(invocation->arena, arguments->operands[0], &opened, error) ||
		(measured_path != NULL && !input_measurement(invocation->arena, measured_path,
						  &opened.file, &measured, error)))
		return false;
	if (measured_path != NULL)
		opened_tell_measured(&opened);
	struct explained explained =
		opened_explained(&opened, measured_path != NULL ? &measured : NULL);
	explained.n_said_by = export_sayers(opened.file.model, opened.file.topology,
		&opened.file.plan, invocation->arena, &explained.said_by);
	bool ok = write_view(invocation, &explained, &text, error) && output_text(&text, error);
	text_finish(&text);
	return ok;
}

static const char *instead(const struct arguments *arguments, struct arena *arena)
{
	const char *plan = input_instead_of_plan(arena, arguments->operands[0]);

	return plan != NULL ? plan
			    : arena_printf(arena, "type %s %.200s",
				      file_exists(arguments->extra) ? "--analyze" : "--view",
				      arguments->extra);
}

const struct command command_explain = {
	.name = "explain",
	.summary = "show the schedule of a plan, view by view",
	.operands = "PLAN.yaml",
	.least = 1,
	.most = 1,
	.details = "Compiles the plan again and refuses (3) "
		   "when the schedule is not the one that the file's digest is of.",
	.examples = {"shardplan explain plan.yaml --view operations",
		"shardplan explain plan.yaml --view memory --analyze measured.json",
		"shardplan explain plan.yaml --view communication",
		"shardplan explain plan.yaml --view layout --svg > layout.svg"},
	.instead = instead,
	.run = run,
};
