/* `help`. */
#include <string.h>

#include "cli/help/help.h"
#include "cli/terminal/terminal.h"

static bool run(struct invocation *invocation, struct error *error)
{
	const struct arguments *arguments = &invocation->arguments;
	struct text text = {0};
	bool ok = true;

	bool completes =
		arguments->n_operands > 0 && strcmp(arguments->operands[0], "completion") == 0;
	if (arguments->n_operands > 1 && !completes)
		return error_set(error, EXIT_CODE_USAGE,
			"%.200s: one word too many, expected 1 at most", arguments->operands[1]);
	if (arguments->n_operands == 0)
		help_overview(invocation->commands, &text);
	else
		ok = help_topic(invocation->commands, arguments->operands[0],
			arguments->n_operands > 1 ? arguments->operands[1] : NULL,
			invocation->arena, &text, error);
	ok = ok && output_text(&text, error);
	text_finish(&text);
	return ok;
}

const struct command command_help = {
	.name = "help",
	.summary = "explain a command, a topic, an option or a word",
	.operands = "[COMMAND|TOPIC|WORD] [SHELL]",
	.least = 0,
	.most = 2,
	.details = "Without a word: the list of commands. "
		   "Topics: `completion` (then bash, zsh or fish: what that shell sources), "
		   "`defaults` of every option, "
		   "`environment`, `exit-codes`, `man` (the manual page, for scdoc), "
		   "`settings` (what the environment and the file of settings say, and where). "
		   "Words: options, their values, other tools' names of them (`tp`), and those "
		   "of the glossary (`unit`).",
	.examples = {"shardplan help plan", "shardplan help defaults",
		"eval \"$(shardplan help completion bash)\"", "shardplan help settings"},
	.run = run,
};
