/* A command: one file each, one row each in the table of main.c. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "base/base.h"
#include "cli/options.h"

/* One call of the program. `arena` lives as long as the process. */
struct invocation {
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

/* NULL when there is none of that name; `error`, if given, then suggests the nearest. */
const struct command *command_find(const char *name, struct error *error);
extern const struct command *const commands[]; /* COMMAND_COUNT, by name */

extern const char *const help_topics[]; /* besides commands; NULL-terminated */
/* The manual page, for scdoc; also docs/shardplan.1.scd. */
void help_man(struct arena *arena, struct text *text);
/* What an exit code means, and which variables are looked at, one a line: "0 ok". */
struct help_line {
	const char *name, *words;
};
extern const struct help_line help_exit_codes[], help_variables[]; /* ended by a NULL name */
/* `help [COMMAND]` and `--help`. */
void help_overview(struct text *text);
void help_command(const struct command *command, struct text *text);
/* `help defaults`; also docs/defaults.md. */
bool help_defaults(struct arena *arena, struct text *text, struct error *error);

#endif
