/* The options of all commands in one table, which parsing, help, suggestions, the columns of
 * `predict --cases` and the question in a plan file use. */
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
	OPTION_HIDDEN = 8,   /* for tests, not in the help */
	OPTION_LATER = 16,   /* not in this version: an error says so */
};

struct option {
	const char *name;  /* without dashes */
	const char *group; /* its heading in the help */
	const char *value; /* "N", "FILE", "on|off"; NULL: the names of the knob's values */
	const char *help;
	unsigned commands; /* one bit for each enum command_index */
	unsigned flags;
	char letter;             /* 'o' for "-o" */
	const struct knob *knob; /* the knob of a plan that it sets; NULL: none */
};

enum { OPTIONS_MOST = 128, OPERANDS_MOST = 16 };

/* Set by options_make, which main calls first. */
extern const struct option *const all_options;
extern const int n_options;
void options_make(void);

/* The values that the user typed for each option; also those of a row of --cases. */
struct arguments {
	enum command_index command;
	int n_operands;
	const char *operands[OPERANDS_MOST];
	const char *extra;                /* the first word beyond those that were expected; NULL */
	const char *values[OPTIONS_MOST]; /* NULL: not given; "" for a switch */
	const char *origins[OPTIONS_MOST]; /* the origin (settings.h); NULL: it was typed */
	bool cells;                        /* values are CSV cells, so messages name columns */
};

/* Parses `arguments` after the command's name, which takes `most` operands. Unknown, repeated,
 * misplaced or incomplete options are EXIT_CODE_USAGE. `help` becomes true if --help is anywhere
 * before "--". */
bool arguments_parse(int argc, char **argv, enum command_index command, int most,
	struct arguments *arguments, bool *help, struct arena *arena, struct error *error);

/* The option that another tool calls by this name: "gbs", "seq_len". `prefix` goes before its
 * value: for "zero-stage" it is "zero". NULL: there is none, with EXIT_CODE_USAGE if the error can
 * say what to type. */
const struct option *option_spelled(
	const char *typed, enum command_index command, const char **prefix, struct error *error);
/* The option that other tools call by this name, of any command; with `words`, what to type instead
 * of it. NULL: neither. */
const struct option *option_called(const char *typed, const char **words);
/* What to type instead of an option that the command has not; NULL: nothing is known. */
const char *option_hint(const char *typed, enum command_index command, struct arena *arena);
/* A value in our spelling: "full_shard", "8k" and "bfloat16" are understood. As typed if it is not
 * known. */
const char *option_value_spelled(
	const struct option *option, const char *typed, struct arena *arena);
/* False if another option has this meaning; the error says what to type. */
bool option_value_allowed(
	const struct option *option, const char *where, const char *value, struct error *error);

/* The value of an option; NULL: not given. */
const char *argument(const struct arguments *arguments, const char *name);
const char *argument_of_knob(const struct arguments *arguments, enum knob_id id);
bool argument_given(const struct arguments *arguments, const char *name);
/* The name of an option in a message: "--seq-len", or "seq_len" for a cell. */
const char *argument_where(
	const struct arguments *arguments, const struct option *option, struct arena *arena);

/* Sets fields of a struct from given options; option "a-b" sets the field "a_b". */
bool arguments_set(const struct arguments *arguments, const struct field *fields, void *object,
	struct arena *arena, struct error *error);
/* Finds the value in `names`. `*index` does not change if the option was not given. */
bool argument_choice(const struct arguments *arguments, const char *name, const char *const *names,
	int *index, struct error *error);

/* The names of a command's options, NULL-terminated: "--seq-len", or "seq_len" for columns. */
const char **option_names(enum command_index command, bool columns, struct arena *arena);
const struct option *option_find(const char *name);
const struct option *option_of_knob(enum knob_id id);
/* Replaces '-' by '_', or back. */
const char *swap_dashes(const char *name, char from, char to, struct arena *arena);
/* Examples: "N", "true
 * false", "none
 * pre
 * post". */
const char *option_value(const struct option *option, struct arena *arena);

/* The question as text, with options in the order of the table: "--gpus 4 --global-batch 32".
 * Values with blanks or quotes are quoted. The second function is its inverse, for plan files. */
const char *question_print(const struct arguments *arguments, struct arena *arena);
bool question_scan(
	const char *text, struct arguments *arguments, struct arena *arena, struct error *error);

/* --- options that were not typed --- */

/* They come from the environment (SHARDPLAN_SEQ_LEN) and from the file of settings
 * ($XDG_CONFIG_HOME/shardplan/config.yaml). A typed option comes before the environment, that
 * before the file, that before the defaults. */

/* Sets options that were not typed, if the command has them. EXIT_CODE_USAGE for a variable that is
 * not an option; EXIT_CODE_INPUT, at its place, for such a key. */
bool settings_apply(struct arguments *arguments, struct arena *arena, struct error *error);

/* `help settings`: every option that can be set, with its value and its origin. */
bool help_settings(struct arena *arena, struct text *text, struct error *error);

/* The style of output, by --color, NO_COLOR and the terminal. EXIT_CODE_USAGE for an unknown
 * --color. */
bool output_style(const struct arguments *arguments, struct style *style, struct error *error);

/* --- commands --- */

/* One call of the program. `arena` lives as long as the process. */
struct invocation {
	const struct command *const *commands; /* all commands, by name, for `help` */
	const struct command *command;
	struct arguments arguments;
	struct arena *arena;
	/* The exit code of a command that succeeds: EXIT_CODE_OK, or EXIT_CODE_NO for a well-formed
	 * "no". */
	enum exit_code verdict;
	const char *lines; /* shown below the error message; or NULL */
};

struct command {
	const char *name;
	const char *summary;  /* one line, without a full stop */
	const char *operands; /* "MODEL TOPOLOGY"; "": none */
	int least, most;      /* number of operands */
	const char *details;  /* for `help NAME`; paragraphs, each one line of any length */
	const char *lines;    /* shown unchanged after the details in the help; or NULL */
	const char *examples[5];
	/* What to type in the place of a word too many; NULL: nothing is known. May be NULL. */
	const char *(*instead)(const struct arguments *arguments, struct arena *arena);
	bool (*run)(struct invocation *invocation, struct error *error);
};

/* A table of commands has COMMAND_COUNT rows, sorted by name. */

/* NULL: there is no command of that name; `error`, if not NULL, then suggests the nearest. */
const struct command *command_find(
	const struct command *const commands[], const char *name, struct error *error);
/* The index of a command in the table. */
enum command_index command_index(
	const struct command *const commands[], const struct command *command);

#endif
