/* The options of all commands: one table, from which parsing, help, suggestions, the columns of
 * `predict --cases` and the question in a plan file follow. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "base/base.h"
#include "reports/reports.h"
#include "schedule/schedule.h"

/* X(suffix, name), alphabetical: the table of commands is searched by bisection. */
#define COMMANDS(X)                                                                                \
	X(CALIBRATE, calibrate)                                                                    \
	X(CHECK, check)                                                                            \
	X(DIAGNOSE, diagnose)                                                                      \
	X(EXPLAIN, explain)                                                                        \
	X(EXPORT, export)                                                                          \
	X(HELP, help)                                                                              \
	X(IMPORT, import)                                                                          \
	X(MODELS, models)                                                                          \
	X(PLAN, plan)                                                                              \
	X(PREDICT, predict)                                                                        \
	X(REPORT, report)                                                                          \
	X(TOPOLOGIES, topologies)                                                                  \
	X(TRAIN, train)

enum command_index {
#define X(suffix, name) COMMAND_##suffix,
	COMMANDS(X)
#undef X
		COMMAND_COUNT
};

enum option_flags {
	OPTION_SWITCH = 1,   /* takes no value */
	OPTION_QUESTION = 4, /* part of the question: kept in plan files, a column of --cases */
	OPTION_HIDDEN = 8,   /* for tests; not in the help */
	OPTION_LATER = 16,   /* announced, not in this version: an error that says so */
};

struct option {
	const char *name;  /* without the dashes */
	const char *group; /* heading in the help */
	const char *value; /* "N", "FILE", "on|off"; NULL: the names of the knob's values */
	const char *help;
	unsigned commands; /* bit per enum command_index */
	unsigned flags;
	char letter;             /* "-o" */
	const struct knob *knob; /* of a plan; NULL: none */
};

enum { OPTIONS_MOST = 128, OPERANDS_MOST = 16 };

/* Filled by options_make, which main calls before all else. */
extern const struct option *const all_options;
extern const int n_options;
void options_make(void);

/* What the user typed, by option; also what one row of --cases says. */
struct arguments {
	enum command_index command;
	int n_operands;
	const char *operands[OPERANDS_MOST];
	const char *values[OPTIONS_MOST];  /* NULL: not given; "" for a switch */
	const char *origins[OPTIONS_MOST]; /* who set it (settings.h); NULL: it was typed */
	bool cells;                        /* values are CSV cells: messages name columns */
};

/* `arguments` after the command's name. Unknown, repeated, misplaced or incomplete options are
 * EXIT_CODE_USAGE. `help` becomes true when --help is anywhere before "--". */
bool arguments_parse(int argc, char **argv, enum command_index command, int most,
	struct arguments *arguments, bool *help, struct arena *arena, struct error *error);

/* What another tool calls an option of ours: "gbs", "seq_len". `prefix` goes before its value: of
 * "zero-stage" it is "zero". NULL when there is none, with EXIT_CODE_USAGE where we know what to
 * type. */
const struct option *option_spelled(
	const char *typed, enum command_index command, const char **prefix, struct error *error);
/* A value as our tables have it: "full_shard", "8k", "bfloat16". As typed where nothing is known.
 */
const char *option_value_spelled(
	const struct option *option, const char *typed, struct arena *arena);
/* False, with what to type, where another option of ours says what this value means. */
bool option_value_allowed(
	const struct option *option, const char *where, const char *value, struct error *error);

/* The value of an option of the table; NULL when not given. */
const char *argument(const struct arguments *arguments, const char *name);
const char *argument_of_knob(const struct arguments *arguments, enum knob_id id);
bool argument_given(const struct arguments *arguments, const char *name);
/* How to call an option in a message: "--seq-len", or "seq_len" for a cell. */
const char *argument_where(
	const struct arguments *arguments, const struct option *option, struct arena *arena);

/* Given options as fields of a struct; option "a-b" sets the field "a_b". */
bool arguments_set(const struct arguments *arguments, const struct field *fields, void *object,
	struct arena *arena, struct error *error);
/* The index in `names`; `*index` stays when the option was not given. */
bool argument_choice(const struct arguments *arguments, const char *name, const char *const *names,
	int *index, struct error *error);

/* The names of a command's options as the user would write them, NULL-terminated: "--seq-len", or
 * "seq_len" for columns of the question. */
const char **option_names(enum command_index command, bool columns, struct arena *arena);
const struct option *option_find(const char *name);
const struct option *option_of_knob(enum knob_id id);
/* '-' for '_', or back. */
const char *swap_dashes(const char *name, char from, char to, struct arena *arena);
/* "N", "true|false", "none|pre|post", ... */
const char *option_value(const struct option *option, struct arena *arena);

/* The question as text, options in table order: "--gpus 4 --global-batch 32". Values with blanks
 * or quotes are quoted. And its inverse, for plan files. */
const char *question_print(const struct arguments *arguments, struct arena *arena);
bool question_scan(
	const char *text, struct arguments *arguments, struct arena *arena, struct error *error);

/* --- options that were not typed --- */

/* They come from the environment (SHARDPLAN_SEQ_LEN) and from the file of settings
 * ($XDG_CONFIG_HOME/shardplan/config.yaml). What is typed wins over the environment, that over the
 * file, that over the defaults. */

/* Fills what was not typed, where the command has the option. EXIT_CODE_USAGE for a variable that
 * is no option, EXIT_CODE_INPUT at the place of a key that is none. */
bool settings_apply(struct arguments *arguments, struct arena *arena, struct error *error);

/* `help settings`: every option that can be set, its value and where that comes from. */
bool help_settings(struct arena *arena, struct text *text, struct error *error);

/* By --color, NO_COLOR and the terminal. EXIT_CODE_USAGE for another --color. */
bool output_style(const struct arguments *arguments, struct style *style, struct error *error);

/* --- commands --- */

/* One call of the program. `arena` lives as long as the process. */
struct invocation {
	const struct command *const *commands; /* all of them, by name: what `help` explains */
	const struct command *command;
	struct arguments arguments;
	struct arena *arena;
	/* What a command that succeeded ends with: EXIT_CODE_OK, or EXIT_CODE_NO for a
	 * well-formed "no". */
	enum exit_code verdict;
	const char *lines; /* of a command that failed: shown below the message; or NULL */
};

struct command {
	const char *name;
	const char *summary;  /* one line, without a full stop */
	const char *operands; /* "MODEL TOPOLOGY"; "" when it takes none */
	int least, most;      /* number of operands */
	const char *details;  /* for `help NAME`; paragraphs, each one line of any length */
	const char *lines;    /* behind the details in the help, as they are; or NULL */
	const char *examples[5];
	bool (*run)(struct invocation *invocation, struct error *error);
};

/* A table of commands has COMMAND_COUNT rows, by name. */

/* NULL when there is none of that name; `error`, if given, then suggests the nearest. */
const struct command *command_find(
	const struct command *const commands[], const char *name, struct error *error);
/* The row of the table that is `command`. */
enum command_index command_index(
	const struct command *const commands[], const struct command *command);

#endif
