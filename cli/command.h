/* A command: one file each, one row each in the table of main.c. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "base/base.h"
#include "cli/options.h"

/* One call of the program. `arena` lives as long as the process. */
struct invocation {
	const struct command *const *commands; /* all of them, by name: what `help` explains */
	const struct command *command;
	struct arguments arguments;
	struct arena *arena;
	/* What a command that succeeded ends with: EXIT_CODE_OK, or EXIT_CODE_NO for a
	 * well-formed "no". */
	enum exit_code verdict;
};

struct command {
	const char *name;
	const char *summary;  /* one line, without a full stop */
	const char *operands; /* "MODEL TOPOLOGY"; "" when it takes none */
	int least, most;      /* number of operands */
	const char *details;  /* for `help NAME`; paragraphs, each one line of any length */
	const char *examples[5];
	bool (*run)(struct invocation *invocation, struct error *error);
};

#define X(suffix, name) extern const struct command command_##name;
COMMANDS(X)
#undef X

/* A table of commands has COMMAND_COUNT rows, by name. */

/* NULL when there is none of that name; `error`, if given, then suggests the nearest. */
const struct command *command_find(
	const struct command *const commands[], const char *name, struct error *error);
/* The row of the table that is `command`. */
enum command_index command_index(
	const struct command *const commands[], const struct command *command);

#endif
