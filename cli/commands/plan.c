/* `plan`: finds the best plan for a question, and says why the others lost. */
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/question/question.h"
#include "cli/terminal/terminal.h"
#include "frameworks/frameworks.h"

/* The width for a file or a pipe, that of a usual terminal. */
enum { PIPE_COLUMNS = 100 };

static bool print_answer(const struct arguments *arguments, const struct asked *asked,
	const struct answer *answer, struct error *error)
{
	const char *file = argument(arguments, "output");
	struct style style;
	struct text text = {0};

	if (!output_style(arguments, &style, error))
		return false;
	if (style.width == 0)
		style.width = PIPE_COLUMNS;
	if (answer->compared != NULL && !argument_given(arguments, "json")) {
		report_comparison_text(answer->compared, &style, &text);
		text_add_char(&text, '\n');
	}
	if (argument_given(arguments, "json"))
		report_answer_json(&asked->question, &asked->text, answer, &text);
	else if (argument_given(arguments, "explain"))
		report_answer_text(&asked->question, answer, &style, &text);
	else {
		report_screen_text(&asked->question, answer, &style, &text);
		text_add(&text, answer->n_front > 0 ? "\n" : "");
		report_front_text(answer, &style, &text);
	}
	/* With "-o -" the plan file goes to stdout. */
	bool aside = file != NULL && strcmp(file, "-") == 0 && answer->chosen != NULL;
	bool ok = aside ? output_aside(&text) : output_text(&text, error);
	text_finish(&text);
	return ok;
}

/* --- questions about limits ----------------------------------------------------------------------
 */

/* Reads "network-for=90%" or "max-seq-len". */
static bool read_find(struct arena *arena, const char *typed, enum find *find, double *target,
	struct error *error)
{
	size_t length = strcspn(typed, "=");
	const char *value = typed[length] == '=' ? typed + length + 1 : NULL;
	const struct field field = {"find", FIELD_TYPE_ENUM, 0, 0, find_names};
	int index = 0;

	if (!fields_set(
		    &field, "--find", arena_strndup(arena, typed, length), &index, arena, error))
		return false;
	*find = (enum find)index;
	*target = 0;
	if ((*find == FIND_NETWORK) != (value != NULL))
		return error_set(error, EXIT_CODE_USAGE,
			value != NULL ? "--find %s: takes no percentage"
				      : "--find %s: expected a percentage: network-for=90%%",
			find_names[index]);
	if (value == NULL)
		return true;
	size_t digits = strcspn(value, "%");
	if (!parse_number(arena_strndup(arena, value, digits), target) || *target <= 0 ||
		*target >= 100 || (value[digits] != '\0' && value[digits + 1] != '\0'))
		return error_set(error, EXIT_CODE_USAGE,
			"--find network-for: expected a percentage between 0 and 100, got \"%s\"",
			value);
	*target /= 100;
	return true;
}

static bool print_finding(const struct arguments *arguments, const struct asked *asked,
	const struct finding *finding, struct error *error)
{
	struct style style;
	struct text text = {0};

	if (!output_style(arguments, &style, error))
		return false;
	if (argument_given(arguments, "json"))
		report_finding_json(&asked->text, finding, &text);
	else
		report_finding_text(&asked->question, finding, &style, &text);
	bool ok = output_text(&text, error);
	text_finish(&text);
	return ok;
}

static bool run_find(
	struct invocation *invocation, const struct asked *asked, int threads, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	enum find find;
	double target;
	struct finding finding;

	if (argument_given(arguments, "output") || argument_given(arguments, "pareto"))
		return error_set(error, EXIT_CODE_USAGE,
			"--find: answers about many plans; drop -o and --pareto");
	if (!read_find(invocation->arena, argument(arguments, "find"), &find, &target, error) ||
		!find_question(&asked->question, threads, find, target, invocation->arena, &finding,
			error) ||
		!print_finding(arguments, asked, &finding, error))
		return false;
	if (!finding.exists)
		invocation->verdict = EXIT_CODE_NO;
	return true;
}

static bool save_chosen(const struct invocation *invocation, struct asked *asked,
	const struct candidate *chosen, struct error *error)
{
	const char *path = argument(&invocation->arguments, "output");
	struct evaluation evaluation;

	if (path == NULL)
		return true;
	return plan_evaluate(&asked->question, &chosen->plan, EVALUATION_FIGURES, invocation->arena,
		       &evaluation, error) &&
	       save_plan(invocation->arena, path, &asked->text, asked->model, asked->topology,
		       &evaluation, error);
}

/* --- a plan that the user brings
 * ------------------------------------------------------------------
 */

/* Fixes the work to that of the plan unless options say otherwise: sequence length, batch, data
 * types, optimizer and runtime, and what the script computes it with. DDP is what the default
 * runtime does without sharding. */
static void fix_work(const struct plan *plan, struct question *question)
{
	bool batch = question_gives(question, KNOB_MICRO_BATCH) &&
		     question_gives(question, KNOB_GRAD_ACCUM);

	uint64_t work = knobs_of_role(KNOB_WORK) | knobs_of_role(KNOB_NEVER_WORSE);
	if (plan->runtime != RUNTIME_PYTORCH_DDP)
		work |= KNOB_BIT(KNOB_RUNTIME);
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		if (!(work & ~question->freed & KNOB_BIT(id)) || !question_is_open(question, id) ||
			(batch && id == KNOB_GLOBAL_BATCH))
			continue;
		question_take(question, id, plan);
		question->kept |= KNOB_BIT(id);
	}
	if (!batch)
		ask_same_batch(plan, question);
}

/* Without MODEL and TOPOLOGY, those of the plan file are used. */
static bool ask_compared(struct invocation *invocation, struct asked *asked, struct plan_file *file,
	struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *path = argument(arguments, "compare"), *contents;

	if (argument_given(arguments, "find"))
		return error_set(error, EXIT_CODE_USAGE, "--compare: --find has no best plan");
	if (!input_plan_file(invocation->arena, path, file, &contents, error))
		return false;
	if (arguments->n_operands == 2) {
		if (!ask(invocation->arena, arguments->operands[0], arguments->operands[1],
			    arguments, false, asked, error))
			return false;
	} else {
		*asked = (struct asked){.text = {file->question.model, file->question.topology,
						question_print(arguments, invocation->arena)},
			.model = file->model,
			.topology = file->topology};
		if (argument_given(arguments, "gpus"))
			return error_set(error, EXIT_CODE_USAGE,
				"--gpus: the plan says on how many; name MODEL and TOPOLOGY too");
		if (argument_given(arguments, "vocab") || argument_given(arguments, "mtp-layers"))
			return error_set(error, EXIT_CODE_USAGE,
				"--%s: the plan says which model; name MODEL and TOPOLOGY too",
				argument_given(arguments, "vocab") ? "vocab" : "mtp-layers");
		if (!ask_options(invocation->arena, arguments, false, &asked->question, error))
			return false;
		asked->question.model = file->model;
		asked->question.topology = file->topology;
		if (!ask_wording(arguments, invocation->arena, &asked->question, error))
			return false;
	}
	fix_work(&file->plan, &asked->question);
	return true;
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *path = argument(arguments, "output");
	struct asked asked;
	struct answer answer;
	struct plan_file file;
	struct comparison comparison;
	bool compares = argument_given(arguments, "compare");
	int threads;

	if (arguments->n_operands != 2 && !(compares && arguments->n_operands == 0))
		return error_set(error, EXIT_CODE_USAGE,
			"plan: expected MODEL TOPOLOGY, got %d %s; for example: "
			"shardplan plan llama-3-8b 2xdgx-h100",
			arguments->n_operands, arguments->n_operands == 1 ? "word" : "words");
	if (!ask_threads(arguments, &threads, error))
		return false;
	if (compares ? !ask_compared(invocation, &asked, &file, error)
		     : !ask(invocation->arena, arguments->operands[0], arguments->operands[1],
			       arguments, false, &asked, error))
		return false;
	asked.question.effort = argument_given(arguments, "thorough") ? INT64_MAX : 0;
	if (argument_given(arguments, "find"))
		return run_find(invocation, &asked, threads, error);
	if (path != NULL && !file_check_writable(invocation->arena, path, error))
		return false;
	asked.question.mixes = asked.question.objective == OBJECTIVE_TIME;
	asked.question.pareto = argument_given(arguments, "pareto");
	asked.question.thresholds =
		argument_given(arguments, "json") || argument_given(arguments, "explain");
	asked.question.brief = !asked.question.thresholds; /* the first screen shows no more */
	if (!plan_question(&asked.question, threads, invocation->arena, &answer, error) ||
		(compares && !planner_compare(&asked.question, &file.plan, &answer,
				     invocation->arena, &comparison, error)))
		return false;
	answer.compared = compares ? &comparison : NULL;
	if (answer.chosen != NULL)
		answer.n_said_by = export_sayers(asked.model, asked.topology, &answer.chosen->plan,
			invocation->arena, &answer.said_by);
	if (!print_answer(arguments, &asked, &answer, error))
		return false;
	if (answer.chosen == NULL)
		invocation->verdict = EXIT_CODE_NO;
	if (answer.interrupted)
		invocation->verdict = EXIT_CODE_INTERRUPTED;
	if (answer.chosen == NULL)
		return true;
	return save_chosen(invocation, &asked, answer.chosen, error);
}

const struct command command_plan = {
	.name = "plan",
	.summary = "choose the best plan and defend it",
	.operands = "MODEL TOPOLOGY",
	.least = 0,
	.most = 2,
	.details = "Searches what no option fixes: "
		   "strategy, wrapping, prefetch, checkpointing and micro-batch. "
		   "A knob may also take a list (--wrap block,blocks:2), "
		   "and --no-NAME turns one off. Prints one screen: the answer, "
		   "why every other strategy lost, and what one line of your script would gain. "
		   "Nothing is written without -o. Exit code 1: nothing fits. "
		   "Ctrl-C: the best so far, and exit code 130; once more ends at once.",
	.examples = {"shardplan plan llama-2-7b 2xdgx-a100-80gb",
		"shardplan plan llama-3-70b 8xdgx-h100 --global-batch 1024 --seq-len 8192",
		"shardplan plan llama-3-8b dgx-h100 --for torchtitan --explain",
		"shardplan plan gpt2-124m local --gpus 4 -o plan.yaml"},
	.instead = question_instead,
	.run = run,
};
