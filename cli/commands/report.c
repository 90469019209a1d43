/* `report`: writes one document with all results. */
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/commands/study.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"

enum format {
	FORMAT_HTML,
	FORMAT_MARKDOWN,
	FORMAT_TRACE,
	FORMAT_JSON,
	FORMAT_CSV,
	FORMAT_SNAPSHOT,
};
static const char *const format_names[] = {
	"html", "markdown", "trace", "json", "csv", "snapshot", NULL};

/* One report of the command line, with everything it points to. */
struct entry {
	struct opened *opened; /* of a plan file; NULL: of a question */
	struct asked *asked;
	const char *label;
	struct report report;
};

struct entries {
	struct arena *arena;
	const struct arguments *arguments;
	bool alone; /* --no-alternatives */
	int threads;
	int n;
	struct entry all[OPERANDS_MOST];
};

static bool read_format(const struct arguments *arguments, enum format *format, struct error *error)
{
	static const struct {
		const char *ending;
		enum format format;
	} endings[] = {{".trace.json", FORMAT_TRACE}, {".json", FORMAT_JSON}, {".csv", FORMAT_CSV},
		{".md", FORMAT_MARKDOWN}, {".pickle", FORMAT_SNAPSHOT}, {".html", FORMAT_HTML},
		{".htm", FORMAT_HTML}};
	const char *file = argument(arguments, "output");
	size_t length = file != NULL ? strlen(file) : 0;
	const char *slash = file != NULL ? strrchr(file, '/') : NULL;
	bool known = file == NULL || strchr(slash != NULL ? slash : file, '.') == NULL;
	int index = FORMAT_HTML;

	for (int i = COUNT_OF(endings) - 1; i >= 0; i--) {
		size_t ending = strlen(endings[i].ending);
		if (length <= ending || strcmp(file + length - ending, endings[i].ending) != 0)
			continue;
		index = (int)endings[i].format;
		known = true;
	}
	if (!known && !argument_given(arguments, "json") && !argument_given(arguments, "format"))
		return error_set(error, EXIT_CODE_USAGE,
			"--output %s: expected a name that ends in .html, .md, .csv, .json, "
			".trace.json or .pickle; or type --format",
			file);
	if (argument_given(arguments, "json"))
		index = FORMAT_JSON;
	if (!argument_choice(arguments, "format", format_names, &index, error))
		return false;
	if (argument_given(arguments, "json") && index != FORMAT_JSON)
		return error_set(error, EXIT_CODE_USAGE, "--json: does not go with --format %s",
			format_names[index]);
	*format = (enum format)index;
	return true;
}

/* --- operands --------------------------------------------------------------------------------- */

enum operand { OPERAND_OTHER, OPERAND_PLAN, OPERAND_MEASUREMENT };

static bool starts_with(const struct node *root, const char *key, const char *start)
{
	const struct node *value = node_get(root, key);

	return value != NULL && value->kind == NODE_SCALAR &&
	       strncmp(value->text, start, strlen(start)) == 0;
}

/* The kind of an operand by its contents. A file that cannot be read is refused later, where it is
 * needed. */
static enum operand operand_of(const char *word)
{
	struct arena arena = {0};
	struct contents contents;
	struct error why = {0};
	enum operand operand = OPERAND_OTHER;
	const struct node *root = NULL;

	if (strcmp(word, "-") == 0)
		return OPERAND_PLAN;
	if (file_exists(word) && !file_is_folder(word) && file_read(&arena, word, &contents, &why))
		root = document_parse(
			&arena, contents.name, contents.text, contents.length, 0, &why);
	if (starts_with(root, "shardplan", "plan/"))
		operand = OPERAND_PLAN;
	else if (starts_with(root, "schema", "shardplan/measurement/"))
		operand = OPERAND_MEASUREMENT;
	arena_finish(&arena);
	return operand;
}

/* Are the operands MODEL TOPOLOGY...? Not if one is a document of this program, or if there is only
 * one. */
static bool is_question(const struct arguments *arguments)
{
	for (int i = 0; i < arguments->n_operands; i++) {
		if (operand_of(arguments->operands[i]) != OPERAND_OTHER)
			return false;
	}
	return arguments->n_operands > 1;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/* --- from plan files ----------------------------------------------------------------------------
 */

static bool refuse_question_options(const struct arguments *arguments, struct error *error)
{
	for (int i = 0; i < n_options; i++) {
		bool typed = arguments->values[i] != NULL && arguments->origins[i] == NULL;
		if (typed && all_options[i].flags & OPTION_QUESTION)
			return error_set(error, EXIT_CODE_USAGE,
				"--%s: the plan file has its question already; "
				"options of a question go with MODEL TOPOLOGY",
				all_options[i].name);
	}
	return true;
}

/* Completes a question as `plan` does, so that both give the same answer, and asks for the front,
 * which the report draws. */
static void complete_question(struct question *question)
{
	question->mixes = question->objective == OBJECTIVE_TIME;
	question->pareto = true;
	question->thresholds = true;
}

/* Plans the question of a plan file again, for the other strategies. */
static bool ask_again(struct arena *arena, const struct opened *opened, bool options_needed,
	struct question *question, struct error *error)
{
	const struct plan_file *file = &opened->file;
	const char *options = file->question.options != NULL ? file->question.options : "";
	struct arguments arguments;
	struct error why = {0};

	*question = (struct question){.model = file->model,
		.topology = file->topology,
		.memory_limit_bytes = file->prediction.memory_limit_bytes};
	if (!options_needed || (question_scan(options, &arguments, arena, &why) &&
				       ask_options(arena, &arguments, false, question, &why) &&
				       ask_wording(&arguments, arena, question, &why))) {
		complete_question(question);
		return true;
	}
	return error_set(error, EXIT_CODE_INPUT,
		"%s: question: options: %s; or use --no-alternatives", opened->path, why.message);
}

static bool add_plan(struct entries *entries, const char *path, struct error *error)
{
	struct entry *entry = &entries->all[entries->n];
	struct question *question = ARENA_NEW(entries->arena, struct question);

	*entry = (struct entry){.opened = ARENA_NEW(entries->arena, struct opened)};
	if (!open_plan(entries->arena, path, entry->opened, error) ||
		!ask_again(entries->arena, entry->opened, !entries->alone, question, error))
		return false;
	entry->label = base_name(path);
	entry->report = (struct report){.asked = entry->opened->file.question,
		.question = question,
		.explained = opened_explained(entry->opened, NULL)};
	entries->n++;
	return true;
}

/* The plan to which a measurement belongs. If there is none it is the first, whose check then
 * refuses the measurement. */
static int plan_of(const struct entries *entries, int n_plans, const char *path)
{
	struct error why;
	struct measurement measurement;
	struct arena arena = {0};
	int found = 0;

	for (int i = n_plans - 1; i >= 0; i--) {
		why = (struct error){0};
		if (input_measurement(
			    &arena, path, &entries->all[i].opened->file, &measurement, &why))
			found = i;
	}
	arena_finish(&arena);
	return found;
}

/* Adds a measurement. The first one of a plan is in that plan's report, a further one in a report
 * of its own. */
static bool add_measurement(
	struct entries *entries, int n_plans, const char *path, struct error *error)
{
	struct entry *entry = &entries->all[plan_of(entries, n_plans, path)];
	struct measurement *measured = ARENA_NEW(entries->arena, struct measurement);
	struct check *check = ARENA_NEW(entries->arena, struct check);
	const char *plan = entry->label;

	if (!input_measurement(entries->arena, path, &entry->opened->file, measured, error))
		return false;
	if (entry->report.explained.measured != NULL) {
		entries->all[entries->n] = *entry;
		entry = &entries->all[entries->n++];
		entry->label = arena_printf(entries->arena, "%s, %s", plan, base_name(path));
	}
	opened_tell_measured(entry->opened);
	entry->report.explained.measured = measured;
	report_check(entry->opened->evaluation.schedule, &entry->opened->file.prediction, measured,
		&report_default_tolerance, entries->arena, check);
	entry->report.check = check;
	return true;
}

static bool read_files(struct entries *entries, struct error *error)
{
	const struct arguments *arguments = entries->arguments;

	if (!refuse_question_options(arguments, error))
		return false;
	for (int i = 0; i < arguments->n_operands; i++) {
		bool measured = i > 0 && operand_of(arguments->operands[i]) != OPERAND_PLAN;
		if (!measured && !add_plan(entries, arguments->operands[i], error))
			return false;
	}
	int n_plans = entries->n;
	for (int i = 1; i < arguments->n_operands; i++) {
		bool measured = operand_of(arguments->operands[i]) != OPERAND_PLAN;
		if (measured && !add_measurement(entries, n_plans, arguments->operands[i], error))
			return false;
	}
	return true;
}

/* --- from a question ----------------------------------------------------------------------------
 */

/* The chosen plan; if nothing fits, the first plan that can be built, which shows why. */
static const struct candidate *shown(const struct answer *answer)
{
	if (answer->chosen != NULL)
		return answer->chosen;
	for (int i = 0; i < answer->n_alternatives; i++) {
		if (answer->alternatives[i].outcome != OUTCOME_IMPOSSIBLE)
			return &answer->alternatives[i];
	}
	return NULL;
}

/* Plans a question with a complete search. */
static bool plan_whole(const struct question *question, int threads, struct arena *arena,
	struct answer *answer, struct error *error)
{
	if (!plan_question(question, threads, arena, answer, error))
		return false;
	return !answer->interrupted || error_set(error, EXIT_CODE_INTERRUPTED, "interrupted");
}

static bool add_question(
	struct entries *entries, const char *model, const char *topology, struct error *error)
{
	struct arena *arena = entries->arena;
	struct entry *entry = &entries->all[entries->n];
	struct asked *asked = ARENA_NEW(arena, struct asked);
	struct answer *answer = ARENA_NEW(arena, struct answer);
	struct evaluation *evaluation = ARENA_NEW(arena, struct evaluation);

	if (!ask(arena, model, topology, entries->arguments, false, asked, error))
		return false;
	complete_question(&asked->question);
	if (!plan_whole(&asked->question, entries->threads, arena, answer, error))
		return false;
	const struct candidate *candidate = shown(answer);
	if (candidate == NULL)
		return error_set(error, EXIT_CODE_NO, "%s on %s: no plan can be built: %s", model,
			topology,
			answer->n_alternatives > 0 ? answer->alternatives[0].why_not
						   : "the question allows none");
	if (!plan_evaluate(
		    &asked->question, &candidate->plan, EVALUATION_WHOLE, arena, evaluation, error))
		return false;
	*entry = (struct entry){.asked = asked, .label = topology};
	entry->report = (struct report){.asked = asked->text,
		.question = &asked->question,
		.answer = answer,
		.explained = evaluation_explained(evaluation)};
	entries->n++;
	return true;
}

static bool read_question(struct entries *entries, struct error *error)
{
	const struct arguments *arguments = entries->arguments;

	for (int i = 1; i < arguments->n_operands; i++) {
		if (!add_question(entries, arguments->operands[0], arguments->operands[i], error))
			return false;
	}
	return true;
}

/* --- studies ---------------------------------------------------------------------------------- */

static bool complete(struct entries *entries, struct report *report, struct error *error)
{
	struct arena *arena = entries->arena;
	struct answer *answer = ARENA_NEW(arena, struct answer);
	const struct plan *plan = &report->explained.schedule->plan;

	if (entries->alone)
		return true;
	if (report->answer == NULL) {
		if (!plan_whole(report->question, entries->threads, arena, answer, error))
			return false;
		report->answer = answer;
	}
	/* Several reports side by side need no studies. */
	if (entries->n > 1)
		return true;
	waiting_begin("more nodes, other links");
	bool ok = study_scaling(arena, report->question, entries->threads, plan, report->answer,
			  &report->scaling, error) &&
		  study_link(arena, report->question, entries->threads, plan, report->answer,
			  &report->link, error);
	waiting_end();
	return ok;
}

static bool is_of_one(enum format format)
{
	return format == FORMAT_TRACE || format == FORMAT_SNAPSHOT;
}

static bool needs_one(const struct entries *entries, enum format format, struct error *error)
{
	if (!is_of_one(format) || entries->n == 1)
		return true;
	return error_set(error, EXIT_CODE_USAGE, "--format %s: of one plan, got %d",
		format_names[format], entries->n);
}

static void write_documents(
	const struct report *reports, int n, enum format format, struct text *text)
{
	static void (*const writers[])(const struct report *, int, struct text *) = {
		[FORMAT_HTML] = report_html,
		[FORMAT_MARKDOWN] = report_markdown,
		[FORMAT_JSON] = report_json,
		[FORMAT_CSV] = report_csv};

	if (format == FORMAT_TRACE)
		report_trace(&reports[0].explained, text);
	else if (format == FORMAT_SNAPSHOT)
		report_snapshot(&reports[0].explained, text);
	else
		writers[format](reports, n, text);
}

static bool write_all(struct entries *entries, enum format format, struct error *error)
{
	struct report reports[OPERANDS_MOST];
	const char *path = argument(entries->arguments, "output");
	struct text text = {0};

	for (int i = 0; i < entries->n; i++) {
		reports[i] = entries->all[i].report;
		reports[i].label = entries->all[i].label;
		if (!is_of_one(format) && !complete(entries, &reports[i], error))
			return false;
	}
	write_documents(reports, entries->n, format, &text);
	bool ok = file_write(entries->arena, path != NULL ? path : "-", &text, error);
	text_finish(&text);
	if (ok && path != NULL && strcmp(path, "-") != 0)
		output_note("the report is in %s", path);
	return ok;
}

static bool run(struct invocation *invocation, struct error *error)
{
	struct entries entries = {.arena = invocation->arena, .arguments = &invocation->arguments};
	enum format format = FORMAT_HTML;

	entries.alone = argument_given(entries.arguments, "no-alternatives");
	if (!read_format(entries.arguments, &format, error) ||
		!ask_threads(entries.arguments, &entries.threads, error))
		return false;
	bool ok = is_question(entries.arguments) ? read_question(&entries, error)
						 : read_files(&entries, error);
	if (!ok || !needs_one(&entries, format, error) || !write_all(&entries, format, error))
		return false;
	for (int i = 0; i < entries.n; i++) {
		const struct answer *answer = entries.all[i].report.answer;
		if (answer != NULL && answer->chosen == NULL)
			invocation->verdict = EXIT_CODE_NO;
	}
	return true;
}

const struct command command_report = {
	.name = "report",
	.summary = "write one self-contained page, or a trace",
	.operands = "PLAN|MODEL [MEASURED|TOPOLOGY]...",
	.least = 1,
	.most = OPERANDS_MOST,
	.details =
		"Shows a plan file, with what was measured of it; "
		"or a question, which is planned first (exit code 1: nothing fits); "
		"or several plans, measurements or topologies side by side. "
		"Without -o it goes to stdout. The page needs no network. "
		"`trace` is for ui.perfetto.dev or chrome://tracing, `snapshot` (FILE.pickle) "
		"for pytorch.org/memory_viz, `csv` has rows as of `predict --cases`. "
		"The comparison of strategies is planned again from the question in the plan file.",
	.examples = {"shardplan report llama-2-7b 2xdgx-a100-80gb -o report.html",
		"shardplan report plan.yaml measured.json -o report.md",
		"shardplan report llama-3-8b dgx-a100-80gb dgx-h100 -o compare.html",
		"shardplan report plan.yaml --format trace -o step.trace.json"},
	.run = run,
};
