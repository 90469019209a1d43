/* `plan`: the best plan for a question, and why not the others. */
#include <string.h>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/question.h"

static bool print_answer(const struct arguments *arguments, const struct asked *asked,
	const struct answer *answer, struct error *error)
{
	const char *file = argument(arguments, "output");
	struct style style;
	struct text text = {0};

	if (!output_style(arguments, &style, error))
		return false;
	if (argument_given(arguments, "json"))
		report_answer_json(&asked->question, &asked->text, answer, &text);
	else
		report_answer_text(&asked->question, answer, &style, &text);
	/* With -o - stdout is the plan file's. */
	bool aside = file != NULL && strcmp(file, "-") == 0 && answer->chosen != NULL;
	bool ok = aside ? output_aside(&text) : output_text(&text, error);
	text_finish(&text);
	return ok;
}

static bool save_chosen(const struct invocation *invocation, struct asked *asked,
	const struct candidate *chosen, struct error *error)
{
	const char *path = argument(&invocation->arguments, "output");
	struct evaluation evaluation;

	if (path == NULL)
		return true;
	if (!plan_evaluate(invocation->arena, &chosen->plan, asked->model, asked->topology,
		    asked->question.memory_limit_bytes, &evaluation, error) ||
		!save_plan(invocation->arena, path, &asked->text, asked->model, asked->topology,
			&evaluation, error))
		return false;
	if (strcmp(path, "-") != 0)
		output_note("the plan is in %s", path);
	return true;
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	struct asked asked;
	struct answer answer;

	if (!ask(invocation->arena, arguments->operands[0], arguments->operands[1], arguments,
		    false, &asked, error))
		return false;
	asked.question.pareto = argument_given(arguments, "pareto");
	if (!planner_plan(&asked.question, invocation->arena, &answer, error) ||
		!print_answer(arguments, &asked, &answer, error))
		return false;
	if (answer.chosen == NULL) {
		invocation->verdict = EXIT_CODE_NO;
		return true;
	}
	return save_chosen(invocation, &asked, answer.chosen, error);
}

const struct command command_plan = {
	.name = "plan",
	.summary = "choose the best plan and defend it",
	.operands = "MODEL TOPOLOGY",
	.least = 2,
	.most = 2,
	.details =
		"Searches what no option fixes: strategy, wrapping, prefetch, checkpointing and "
		"micro-batch. A knob may also take a list (--wrap block,blocks:2), and --no-NAME "
		"turns one off. Prints the answer, how every other strategy compares, and why it "
		"lost. Nothing is written without -o. Exit code 1: nothing fits.",
	.examples = {"shardplan plan llama-2-7b 2xdgx-a100-80gb",
		"shardplan plan llama-3-70b 8xdgx-h100 --global-batch 1024 --seq-len 8192",
		"shardplan plan gpt2-124m local --gpus 4 -o plan.yaml"},
	.run = run,
};
