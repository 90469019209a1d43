/* shardplan: finds the command in the table, runs it, and turns errors into exit codes. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/help/help.h"
#include "cli/options/options.h"
#include "cli/terminal/terminal.h"
#include "executor/executor.h"

static const struct command *const commands[] = {
#define X(suffix, name) &command_##name,
	COMMANDS(X)
#undef X
};

/* Writes without stdio, because nothing can be allocated any more. */
static _Noreturn void out_of_memory(size_t bytes)
{
	static const char message[] = "out of memory\n";
	ssize_t ignored = write(STDERR_FILENO, message, sizeof(message) - 1);

	(void)ignored, (void)bytes;
	_exit(EXIT_CODE_INTERNAL);
}

/* Checks the limit of the stack. Threads get it too, and a process that exceeds it ends without a
 * message. */
static bool check_stack(struct error *error)
{
	static const rlim_t least = 512 << 10;
	struct rlimit limit;

	if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= least)
		return true;
	return error_set(error, EXIT_CODE_ENVIRONMENT,
		"stack: limited to %lld KiB, expected %lld KiB or more; raise it with ulimit -s",
		(long long)(limit.rlim_cur >> 10), (long long)(least >> 10));
}

static bool too_many(const struct command *command, const struct arguments *arguments,
	struct arena *arena, struct error *error)
{
	const char *instead = NULL;

	if (strcmp(arguments->extra, "help") == 0)
		instead = arena_printf(arena, "`shardplan help %s` explains it", command->name);
	else if (command->instead != NULL)
		instead = command->instead(arguments, arena);
	return error_set(error, EXIT_CODE_USAGE, "%.200s: one word too many, expected %s%s%s",
		arguments->extra, command->operands, instead != NULL ? "; " : "",
		instead != NULL ? instead : "");
}

static bool check_operands(const struct invocation *invocation, struct error *error)
{
	const struct command *command = invocation->command;
	const struct arguments *arguments = &invocation->arguments;
	int n = arguments->n_operands;

	if (arguments->extra != NULL)
		return too_many(command, arguments, invocation->arena, error);
	if (n >= command->least)
		return true;
	return error_set(error, EXIT_CODE_USAGE, "%s: expected %s, got %d %s; for example: %s",
		command->name, command->operands, n, n == 1 ? "word" : "words",
		command->examples[0]);
}

static bool run_command(struct invocation *invocation, int argc, char **argv, struct error *error)
{
	const struct command *command = invocation->command;
	bool help;

	if (!arguments_parse(argc, argv, command_index(commands, command), command->most,
		    &invocation->arguments, &help, invocation->arena, error))
		return false;
	if (!help)
		return settings_apply(&invocation->arguments, invocation->arena, error) &&
		       check_operands(invocation, error) && command->run(invocation, error);
	struct text text = {0};
	help_command(commands, command, &text);
	bool ok = output_text(&text, error);
	text_finish(&text);
	return ok;
}

/* Answers --help, --version and an empty command line. False: a command was typed. */
static bool answer_without_command(int argc, char **argv, enum exit_code *code)
{
	struct text text = {0};
	struct error error = {0};
	bool nothing = argc < 2;

	if (nothing || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		help_overview(commands, &text);
	else if (strcmp(argv[1], "--version") == 0)
		version_print(&text);
	else
		return false;
	*code = EXIT_CODE_OK;
	if (nothing) {
		output_aside(&text);
		*code = EXIT_CODE_USAGE;
	} else if (!output_text(&text, &error)) {
		fprintf(stderr, "%s\n", error.message);
		*code = error.code;
	}
	text_finish(&text);
	return true;
}

static enum exit_code report_failure(const struct invocation *invocation, const struct error *error)
{
	/* Of many processes that train together only one prints the error. */
	if (error->message[0] == '\0')
		return error->code;
	fprintf(stderr, "%s\n", error->message);
	if (invocation->lines != NULL)
		fprintf(stderr, "%s\n", invocation->lines);
	if (error->code == EXIT_CODE_INTERNAL)
		fprintf(stderr, "this is a bug in shardplan %s, please report it\n",
			SHARDPLAN_VERSION);
	return error->code;
}

int main(int argc, char **argv)
{
	struct arena arena = {0};
	struct invocation invocation = {.commands = commands, .arena = &arena};
	struct error error = {0};
	enum exit_code code;

	base_set_out_of_memory_handler(out_of_memory);
	/* A write beyond the limit of file sizes then fails as on a full disk. Ranks inherit
	 * this. */
	signal(SIGXFSZ, SIG_IGN);
	if (argc > 1 && strcmp(argv[1], EXECUTOR_RANK_ARGUMENT) == 0)
		return executor_rank_main(argc, argv);
	options_make();
	if (answer_without_command(argc, argv, &code))
		return (int)code;
	if (check_stack(&error))
		invocation.command = command_find(commands, argv[1], &error);
	bool ok =
		invocation.command != NULL && run_command(&invocation, argc - 2, argv + 2, &error);
	if (ok)
		output_answer();
	output_forget_notes();
	code = ok ? invocation.verdict : report_failure(&invocation, &error);
	arena_finish(&arena);
	return (int)code;
}
