/* `help` and `--help`, written from the tables of commands and options. */
#include <string.h>

#include "cli/help/help.h"
#include "cli/options/options.h"
#include "cli/terminal/terminal.h"
#include "reports/reports.h"

enum { PAGE = 80, OPTION_COLUMN = 34 };

void help_wrap(struct text *text, const char *words, int indent)
{
	int column = indent;

	while (*words != '\0') {
		int length = (int)strcspn(words, " ");
		if (column + 1 + length > PAGE && column > indent) {
			text_add_char(text, '\n');
			text_repeat(text, ' ', indent);
			column = indent;
		} else if (column > indent) {
			text_add_char(text, ' ');
			column++;
		}
		text_add_bytes(text, words, (size_t)length);
		column += length;
		words += length + (words[length] == ' ');
	}
	text_add_char(text, '\n');
}

void help_option(const struct option *option, struct arena *arena, struct text *text)
{
	const char *value = option_value(option, arena);

	if (option->letter != '\0')
		text_printf(text, "  -%c, --%s", option->letter, option->name);
	else
		text_printf(text, "  --%s", option->name);
	if (!(option->flags & OPTION_SWITCH))
		text_printf(text, " %s", value);
	size_t start = text->length;
	while (start > 0 && text->data[start - 1] != '\n')
		start--;
	if (text->length - start > OPTION_COLUMN - 2) {
		text_add_char(text, '\n');
		text_repeat(text, ' ', OPTION_COLUMN);
	} else {
		text_column(text, OPTION_COLUMN);
	}
	help_wrap(text, option->help, OPTION_COLUMN);
}

static void add_options(enum command_index command, struct text *text)
{
	struct arena arena = {0};
	const char *group = "";

	for (int i = 0; i < n_options; i++) {
		const struct option *option = &all_options[i];
		if (!(option->commands >> command & 1) || option->flags & OPTION_HIDDEN)
			continue;
		if (strcmp(group, option->group) != 0)
			text_printf(text, "\n%s:\n", option->group);
		group = option->group;
		help_option(option, &arena, text);
	}
	arena_finish(&arena);
}

static void add_views(struct text *text)
{
	text_add(text, "\nViews:\n");
	for (int i = 0; i < n_report_views; i++)
		text_printf(text, "  %-12s %s\n", report_views[i].name, report_views[i].question);
	text_printf(text, "  %-12s %s\n", "schedule",
		"the schedule itself, as text that its digest is of");
}

void help_command(
	const struct command *const commands[], const struct command *command, struct text *text)
{
	enum command_index index = command_index(commands, command);

	text_printf(text, "shardplan %s: %s\n\n", command->name, command->summary);
	text_printf(text, "usage: shardplan %s%s%s [OPTIONS]\n\n", command->name,
		command->operands[0] != '\0' ? " " : "", command->operands);
	help_wrap(text, command->details, 0);
	if (command->lines != NULL)
		text_printf(text, "\n%s\n", command->lines);
	add_options(index, text);
	if (index == COMMAND_EXPLAIN)
		add_views(text);
	if (command->examples[0] != NULL)
		text_add(text, "\nExamples:\n");
	for (int i = 0; i < COUNT_OF(command->examples) && command->examples[i] != NULL; i++)
		text_printf(text, "  %s\n", command->examples[i]);
}

void help_overview(const struct command *const commands[], struct text *text)
{
	text_add(text, "shardplan: which sharding strategy for my cluster?\n\n"
		       "usage: shardplan COMMAND [OPERANDS] [OPTIONS]\n\n"
		       "Commands:\n");
	for (int i = 0; i < COMMAND_COUNT; i++)
		text_printf(text, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
	text_add_char(text, '\n');
	help_wrap(text,
		"MODEL: a preset (`shardplan models`), a Hugging Face config.json or its folder, "
		"or a model file. TOPOLOGY: a catalogue name (`shardplan topologies`), "
		"NxNAME, a topology file, or `local`, which is this machine.",
		0);
	text_add(text, "\nMore: shardplan help COMMAND|TOPIC|WORD, help help, --version\n\n"
		       "Examples:\n"
		       "  shardplan plan llama-2-7b 2xdgx-a100-80gb\n"
		       "  shardplan plan gpt2-nano local --gpus 4 -o plan.yaml\n"
		       "  shardplan train plan.yaml --data corpus.txt\n"
		       "  shardplan check plan.yaml measured.json\n");
}

static void add_lines(const struct help_line *lines, int column, struct text *text)
{
	for (; lines->name != NULL; lines++) {
		text_add(text, lines->name);
		text_column(text, column);
		help_wrap(text, lines->words, column);
	}
}

static bool find_word(const struct command *const commands[], const char *word, const char *unknown,
	struct arena *arena, struct text *text, struct error *error)
{
	size_t before = text->length;

	if (!help_word(commands, word, arena, text, error))
		return false;
	if (text->length > before)
		return true;
	const char *near = help_nearest(commands, word, arena);
	if (near == NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"%s; topics: completion, defaults, environment, exit-codes, man, settings; "
			"words: every option, its values, and docs/glossary.md",
			unknown);
	return error_set(error, EXIT_CODE_USAGE,
		"%.60s: unknown word; did you mean `shardplan help %s`?", word, near);
}

bool help_topic(const struct command *const commands[], const char *topic, const char *shell,
	struct arena *arena, struct text *text, struct error *error)
{
	struct error unknown = {0};
	const struct command *command = command_find(commands, topic, &unknown);

	if (command != NULL)
		help_command(commands, command, text);
	else if (strcmp(topic, "defaults") == 0)
		return help_defaults(arena, text, error);
	else if (strcmp(topic, "settings") == 0)
		return help_settings(arena, text, error);
	else if (strcmp(topic, "completion") == 0)
		return help_completion(commands, shell != NULL ? shell : "", arena, text, error);
	else if (strcmp(topic, "man") == 0)
		help_man(commands, arena, text);
	else if (strcmp(topic, "exit-codes") == 0)
		add_lines(help_exit_codes, 7, text);
	else if (strcmp(topic, "environment") == 0)
		add_lines(help_variables, 18, text);
	else
		return find_word(commands, topic, unknown.message, arena, text, error);
	return true;
}
