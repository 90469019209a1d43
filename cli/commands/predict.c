/* `predict`: predicts the result of given choices. */
#include <string.h>

#include "cli/commands/cases.h"
#include "cli/terminal/terminal.h"

static bool print(const struct arguments *arguments, const struct asked *asked,
	const struct evaluation *evaluation, struct error *error)
{
	const struct prediction *prediction = &evaluation->simulation.prediction;
	const char *file = argument(arguments, "output");
	bool aside = file != NULL && strcmp(file, "-") == 0;
	struct style style;
	struct text text = {0};

	if (!output_style(arguments, &style, error))
		return false;
	if (argument_given(arguments, "json"))
		report_prediction_json(&asked->text, &evaluation->plan, prediction, &text);
	else
		report_prediction_text(&evaluation->plan, asked->model, asked->topology, prediction,
			&style, &text);
	bool ok = aside ? output_aside(&text) : output_text(&text, error);
	text_finish(&text);
	return ok;
}

static bool predict_one(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *path = argument(arguments, "output");
	struct asked asked;
	struct plan plan;
	struct evaluation evaluation;

	if (arguments->n_operands < 2)
		return error_set(error, EXIT_CODE_USAGE,
			"predict: expected MODEL TOPOLOGY or --cases FILE; "
			"what a PLAN.yaml predicts shows `shardplan explain PLAN.yaml`");
	if (!ask_plan(invocation->arena, arguments->operands[0], arguments->operands[1], arguments,
		    &asked, &plan, error) ||
		(path != NULL && !file_check_writable(invocation->arena, path, error)) ||
		!plan_evaluate(&asked.question, &plan, EVALUATION_FIGURES, invocation->arena,
			&evaluation, error) ||
		!print(arguments, &asked, &evaluation, error))
		return false;
	if (evaluation.simulation.prediction.fits == FITS_NO)
		invocation->verdict = EXIT_CODE_NO;
	return path == NULL || save_plan(invocation->arena, path, &asked.text, asked.model,
				       asked.topology, &evaluation, error);
}

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	const char *cases = argument(arguments, "cases");
	int threads;

	if (!ask_threads(arguments, &threads, error))
		return false;
	if (cases == NULL)
		return predict_one(invocation, error);
	if (argument_given(arguments, "json") || argument_given(arguments, "output"))
		return error_set(error, EXIT_CODE_USAGE,
			"--cases: prints CSV on stdout and goes neither with --json nor with -o");
	return predict_cases(invocation, cases, threads, error);
}

const struct command command_predict = {
	.name = "predict",
	.summary = "predict step time and memory of given choices",
	.operands = "[MODEL TOPOLOGY]",
	.least = 0,
	.most = 2,
	.details = "What no option says takes the defaults of `shardplan help defaults`. "
		   "Exit code 1: it does not fit; "
		   "with --cases a row says so and the exit code is 0. "
		   "A row that makes no sense fills its column `error`, "
		   "and the exit code is then 3.",
	.examples = {"shardplan predict llama-2-7b 2xdgx-a100-80gb --strategy FULL_SHARD",
		"shardplan predict gpt2-1.5b local --gpus 2 --json",
		"shardplan predict --cases cases.csv > predictions.csv"},
	.instead = question_instead,
	.run = run,
};
