#include "cli/help/help.h"

#include <ctype.h>
#include <string.h>

#include "reports/reports.h"
#include "schedule/schedule.h"

/* --- words that can be typed ------------------------------------------------------------------ */

enum value_kind { VALUE_NONE, VALUE_FILE, VALUE_WORDS, VALUE_ANY };

static bool is_word(const char *token)
{
	for (; *token != '\0'; token++) {
		if (!islower((unsigned char)*token) && !isdigit((unsigned char)*token) &&
			strchr("-._", *token) == NULL)
			return false;
	}
	return true;
}

/* The words of "none
 * pre
 * post"; of "block
 * blocks:K
 * size:N
 * model" only the complete ones. */
static const char *words_of_value(const char *value, struct arena *arena)
{
	const char *words = "";

	for (const char *at = value; *at != '\0';) {
		size_t length = strcspn(at, "|");
		const char *token = arena_strndup(arena, at, length);
		if (is_word(token))
			words = arena_printf(
				arena, "%s%s%s", words, words[0] != '\0' ? " " : "", token);
		at += length + (at[length] == '|');
	}
	return words;
}

static const char *words_of_names(const char *const *names, struct arena *arena)
{
	const char *words = "";

	for (int i = 0; names[i] != NULL; i++)
		words = arena_printf(arena, "%s%s%s", words, i > 0 ? " " : "", names[i]);
	return words;
}

static const char *words_of_views(struct arena *arena)
{
	const char *words = "schedule";

	for (int i = 0; i < n_report_views; i++)
		words = arena_printf(arena, "%s %s", words, report_views[i].name);
	return words;
}

static enum value_kind value_of(
	const struct option *option, const char **words, struct arena *arena)
{
	const char *value = option->value;

	*words = "";
	if (option->flags & OPTION_SWITCH)
		return VALUE_NONE;
	if (value != NULL && (strncmp(value, "FILE", 4) == 0 || strcmp(value, "DIR") == 0))
		return VALUE_FILE;
	if (value != NULL && strcmp(value, "VIEW") == 0)
		*words = words_of_views(arena);
	else if (option->knob != NULL && option->knob->field.names != NULL)
		*words = words_of_names(option->knob->field.names, arena);
	else if (value != NULL && strchr(value, '|') != NULL)
		*words = words_of_value(value, arena);
	return (*words)[0] != '\0' ? VALUE_WORDS : VALUE_ANY;
}

static bool is_shown(const struct option *option, enum command_index command)
{
	return (option->commands >> command & 1) &&
	       !(option->flags & (OPTION_HIDDEN | OPTION_LATER));
}

/* --- operands -----------------------------------------------------------------------------------
 */

static const char *join(
	const char *words, const struct embedded_file *files, int n, struct arena *arena)
{
	for (int i = 0; i < n; i++)
		words = arena_printf(
			arena, "%s%s%s", words, words[0] != '\0' ? " " : "", files[i].name);
	return words;
}

static const char *command_words(const struct command *const commands[], struct arena *arena)
{
	const char *words = "";

	for (int i = 0; i < COMMAND_COUNT; i++)
		words = arena_printf(arena, "%s%s%s", words, i > 0 ? " " : "", commands[i]->name);
	return words;
}

/* Of the words that `help` explains, those of the table of options. */
static const char *explained_words(struct arena *arena)
{
	const char *words = words_of_names(strategy_names, arena);

	for (int i = 0; i < n_options; i++)
		if (!(all_options[i].flags & (OPTION_HIDDEN | OPTION_LATER)))
			words = arena_printf(arena, "%s %s", words, all_options[i].name);
	return words;
}

static const char *add_operand(const struct command *const commands[], const char *words,
	const char *token, bool *files, struct arena *arena)
{
	if (strcmp(token, "MODEL") == 0)
		return join(words, model_presets, n_model_presets, arena);
	if (strcmp(token, "TOPOLOGY") == 0)
		return arena_printf(arena, "%s local",
			join(words, topology_catalogue, n_topology_catalogue, arena));
	if (strcmp(token, "COMMAND") == 0)
		return arena_printf(arena, "%s %s", words, command_words(commands, arena));
	if (strcmp(token, "TOPIC") == 0)
		return arena_printf(arena, "%s %s", words, words_of_names(help_topics, arena));
	if (strcmp(token, "WORD") == 0)
		return arena_printf(arena, "%s %s", words, explained_words(arena));
	if (strcmp(token, "SHELL") == 0)
		return arena_printf(arena, "%s bash zsh fish", words);
	if (is_word(token))
		return arena_printf(arena, "%s%s%s", words, words[0] != '\0' ? " " : "", token);
	*files = true;
	return words;
}

/* The words of operands like "MODEL TOPOLOGY" or "[list
 * show MODEL]": names, literal words, and whether files are possible. */
static const char *operand_words(const struct command *const commands[],
	const struct command *command, bool *files, struct arena *arena)
{
	const char *words = "";

	*files = strstr(command->operands, "MODEL") != NULL ||
		 strstr(command->operands, "TOPOLOGY") != NULL;
	for (const char *at = command->operands; *at != '\0';) {
		size_t length = strcspn(at, " |[]()");
		const char *token = arena_strndup(arena, at, length);
		if (length > 0 && strcmp(token, "...") != 0)
			words = add_operand(commands, words, token, files, arena);
		at += length + (at[length] != '\0');
	}
	return words;
}

/* --- bash ---------------------------------------------------------------------------------------
 */

static void bash_values(struct arena *arena, struct text *text)
{
	const char *words;

	for (int i = 0; i < n_options; i++) {
		const struct option *option = &all_options[i];
		enum value_kind kind = value_of(option, &words, arena);
		if (kind == VALUE_NONE || option->flags & (OPTION_HIDDEN | OPTION_LATER))
			continue;
		text_printf(text, "\t--%s", option->name);
		if (option->letter != '\0')
			text_printf(text, "|-%c", option->letter);
		if (kind == VALUE_FILE)
			text_add(text, ") _shardplan_files; return ;;\n");
		else
			text_printf(text, ") _shardplan_words '%s'; return ;;\n", words);
	}
}

static void bash_commands(
	const struct command *const commands[], struct arena *arena, struct text *text)
{
	for (int c = 0; c < COMMAND_COUNT; c++) {
		bool files;
		const char *words = operand_words(commands, commands[c], &files, arena);
		text_printf(text, "\t%s) files=%d words='%s'; options='", commands[c]->name, files,
			words);
		for (int i = 0, n = 0; i < n_options; i++) {
			if (is_shown(&all_options[i], (enum command_index)c))
				text_printf(
					text, "%s--%s", n++ > 0 ? " " : "", all_options[i].name);
		}
		text_add(text, "' ;;\n");
	}
}

static void write_bash(
	const struct command *const commands[], struct arena *arena, struct text *text)
{
	text_add(text,
		"# bash completion of shardplan. Made by: shardplan help completion bash\n"
		"_shardplan_words()\n{\n"
		"\tCOMPREPLY=($(compgen -W \"$1\" -- \"$cur\"))\n}\n\n"
		"_shardplan_files()\n{\n"
		"\tcompopt -o filenames 2>/dev/null\n"
		"\tCOMPREPLY+=($(compgen -f -- \"$cur\"))\n}\n\n"
		"_shardplan()\n{\n"
		"\tlocal cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} "
		"command= i\n"
		"\tlocal files=0 words= options=\n"
		"\tCOMPREPLY=()\n"
		"\tif [[ $cur == = ]]; then cur=\n"
		"\telif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD - 2]}\n\tfi\n"
		"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
		"\t\tif [[ ${COMP_WORDS[i]} != -* ]]; then command=${COMP_WORDS[i]}; break; fi\n"
		"\tdone\n"
		"\tif [[ -z $command ]]; then\n");
	text_printf(text, "\t\t_shardplan_words '%s --help --version'\n\t\treturn\n\tfi\n",
		command_words(commands, arena));
	text_add(text, "\tcase $before in\n");
	bash_values(arena, text);
	text_add(text, "\tesac\n\tcase $command in\n");
	bash_commands(commands, arena, text);
	text_add(text, "\tesac\n"
		       "\tif [[ $cur == -* ]]; then _shardplan_words \"$options\"\n"
		       "\telse\n\t\t_shardplan_words \"$words\"\n"
		       "\t\tif ((files)); then _shardplan_files; fi\n\tfi\n}\n\n"
		       "complete -F _shardplan shardplan\n");
}

/* --- zsh ----------------------------------------------------------------------------------------
 */

/* Adds text inside '...' of _arguments, where quotes, brackets and colons are special; a comma
 * replaces them. */
static void add_plain(const char *words, struct text *text)
{
	for (; *words != '\0'; words++)
		text_add_char(text, *words == ':'                      ? ','
				    : strchr("'[]`\\", *words) != NULL ? ' '
								       : *words);
}

static void zsh_option(const struct option *option, struct arena *arena, struct text *text)
{
	const char *words;
	enum value_kind kind = value_of(option, &words, arena);

	text_printf(text, " \\\n\t\t\t'--%s%s[", option->name, kind == VALUE_NONE ? "" : "=");
	add_plain(option->help, text);
	text_add(text, "]");
	if (kind == VALUE_FILE)
		text_add(text, ":file:_files");
	else if (kind == VALUE_WORDS)
		text_printf(text, ":value:(%s)", words);
	else if (kind == VALUE_ANY)
		text_add(text, ":value:");
	text_add(text, "'");
}

static void write_zsh(
	const struct command *const commands[], struct arena *arena, struct text *text)
{
	text_add(text, "#compdef shardplan\n"
		       "# zsh completion of shardplan. Made by: shardplan help completion zsh\n"
		       "_shardplan()\n{\n\tlocal -a names\n\tif (( CURRENT == 2 )); then\n"
		       "\t\tnames=(\n");
	for (int c = 0; c < COMMAND_COUNT; c++) {
		text_printf(text, "\t\t\t'%s:", commands[c]->name);
		add_plain(commands[c]->summary, text);
		text_add(text, "'\n");
	}
	text_add(text, "\t\t)\n\t\t_describe command names\n\t\treturn\n\tfi\n"
		       "\tlocal command=$words[2]\n\tshift words\n\t(( CURRENT-- ))\n"
		       "\tcase $command in\n");
	for (int c = 0; c < COMMAND_COUNT; c++) {
		bool files;
		const char *words = operand_words(commands, commands[c], &files, arena);
		text_printf(text, "\t%s)\n\t\t_arguments", commands[c]->name);
		for (int i = 0; i < n_options; i++) {
			if (is_shown(&all_options[i], (enum command_index)c))
				zsh_option(&all_options[i], arena, text);
		}
		if (files && words[0] != '\0')
			text_printf(text,
				" \\\n\t\t\t'*:operand:{_alternative \"names:name:(%s)\" "
				"\"files:file:_files\"}'\n",
				words);
		else if (files)
			text_add(text, " \\\n\t\t\t'*:file:_files'\n");
		else
			text_printf(text, " \\\n\t\t\t'*:operand:(%s)'\n", words);
		text_add(text, "\t\t;;\n");
	}
	text_add(text, "\tesac\n}\n\n_shardplan \"$@\"\n");
}

/* --- fish ---------------------------------------------------------------------------------------
 */

static void fish_option(
	const char *command, const struct option *option, struct arena *arena, struct text *text)
{
	const char *words;
	enum value_kind kind = value_of(option, &words, arena);

	text_printf(text, "complete -c shardplan -n '__fish_seen_subcommand_from %s' -l %s",
		command, option->name);
	if (option->letter != '\0')
		text_printf(text, " -s %c", option->letter);
	if (kind == VALUE_FILE)
		text_add(text, " -r -F");
	else if (kind == VALUE_WORDS)
		text_printf(text, " -x -a '%s'", words);
	else if (kind == VALUE_ANY)
		text_add(text, " -x");
	text_add(text, " -d '");
	add_plain(option->help, text);
	text_add(text, "'\n");
}

static void write_fish(
	const struct command *const commands[], struct arena *arena, struct text *text)
{
	text_add(text, "# fish completion of shardplan. Made by: shardplan help completion fish\n"
		       "complete -c shardplan -f\n");
	for (int c = 0; c < COMMAND_COUNT; c++) {
		bool files;
		const char *words = operand_words(commands, commands[c], &files, arena);
		const char *name = commands[c]->name;
		text_printf(
			text, "complete -c shardplan -n __fish_use_subcommand -a %s -d '", name);
		add_plain(commands[c]->summary, text);
		text_add(text, "'\n");
		if (files)
			text_printf(text,
				"complete -c shardplan -n '__fish_seen_subcommand_from %s' -F\n",
				name);
		if (words[0] != '\0')
			text_printf(text,
				"complete -c shardplan -n '__fish_seen_subcommand_from %s' -a "
				"'%s'\n",
				name, words);
		for (int i = 0; i < n_options; i++) {
			if (is_shown(&all_options[i], (enum command_index)c))
				fish_option(name, &all_options[i], arena, text);
		}
	}
}

bool help_completion(const struct command *const commands[], const char *shell, struct arena *arena,
	struct text *text, struct error *error)
{
	static const struct {
		const char *name;
		void (*write)(const struct command *const commands[], struct arena *arena,
			struct text *text);
	} shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};

	for (int i = 0; i < COUNT_OF(shells); i++) {
		if (strcmp(shell, shells[i].name) == 0) {
			shells[i].write(commands, arena, text);
			return true;
		}
	}
	if (shell[0] == '\0')
		return error_set(error, EXIT_CODE_USAGE,
			"completion: the shell is missing, expected bash, zsh or fish");
	return error_set(error, EXIT_CODE_USAGE,
		"completion: expected bash, zsh or fish, got \"%.60s\"", shell);
}
