/* The text of `help`, --help and --version, written from the tables of commands and options. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "cli/options/options.h"

/* `help [COMMAND]` and `--help`. */
void help_overview(const struct command *const commands[], struct text *text);
void help_command(
	const struct command *const commands[], const struct command *command, struct text *text);
/* `help TOPIC`, also for the name of a command. `shell` is the word after "completion", else NULL.
 * EXIT_CODE_USAGE for an unknown word. */
bool help_topic(const struct command *const commands[], const char *topic, const char *shell,
	struct arena *arena, struct text *text, struct error *error);

/* An option in a list: its name, its value, its help. */
void help_option(const struct option *option, struct arena *arena, struct text *text);

/* `help WORD`: adds nothing for a word that nothing here explains. */
bool help_word(const struct command *const commands[], const char *word, struct arena *arena,
	struct text *text, struct error *error);
/* The command, topic, option or strategy with the nearest name; NULL. */
const char *help_nearest(
	const struct command *const commands[], const char *word, struct arena *arena);

/* Words broken at the width of the page; the first line continues the text, which is at `indent`.
 */
void help_wrap(struct text *text, const char *words, int indent);

/* --- the topics --- */

extern const char *const help_topics[]; /* besides commands; NULL-terminated */
/* The meaning of an exit code or an environment variable, one for each line: "0 ok". */
struct help_line {
	const char *name, *words;
};
extern const struct help_line help_exit_codes[], help_variables[]; /* ended by a NULL name */
/* `help completion SHELL`: "bash", "zsh" or "fish"; another name is EXIT_CODE_USAGE. */
bool help_completion(const struct command *const commands[], const char *shell, struct arena *arena,
	struct text *text, struct error *error);
/* `help defaults`, and its row of one knob. */
bool help_defaults(struct arena *arena, struct text *text, struct error *error);
bool help_default(enum knob_id id, struct arena *arena, struct text *text, struct error *error);
/* The manual page, for scdoc. */
void help_man(const struct command *const commands[], struct arena *arena, struct text *text);

/* `--version`: names this binary and the libraries built into it. */
void version_print(struct text *text);

#endif
