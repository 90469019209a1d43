/* The manual page, from the same tables as help and parsing, so that they cannot differ. */
#include <string.h>

#include "cli/help/help.h"
#include "reports/reports.h"

/* Adds words, with characters escaped that are special to scdoc. */
static void add_plain(const char *words, struct text *text)
{
	for (; *words != '\0'; words++) {
		if (strchr("\\*_#`<>[]|", *words) != NULL)
			text_add_char(text, '\\');
		text_add_char(text, *words);
	}
}

/* Adds a term, with its meaning indented below. */
static void add_item(const char *term, const char *value, const char *words, struct text *text)
{
	text_add(text, "*");
	add_plain(term, text);
	text_add(text, "*");
	if (value[0] != '\0') {
		text_add(text, " ");
		add_plain(value, text);
	}
	text_add(text, "\n\t");
	add_plain(words, text);
	text_add(text, "\n\n");
}

/* Adds lines as they are typed, which no formatter may fill or hyphenate. They stand as far right
 * as what explains an item, so an indentation of their own is left out. */
static void add_typed(const char *lines, struct text *text)
{
	size_t indent = strspn(lines, " ");

	text_add(text, "```\n");
	while (*lines != '\0') {
		size_t length = strcspn(lines, "\n");
		if (length >= indent)
			text_add_bytes(text, lines + indent, length - indent);
		text_add_char(text, '\n');
		lines += length + (lines[length] == '\n');
	}
	text_add(text, "```\n");
}

static void add_commands(const struct command *const commands[], struct text *text)
{
	text_add(text, "# COMMANDS\n\n");
	for (int c = 0; c < COMMAND_COUNT; c++) {
		text_add(text, "*");
		add_plain(commands[c]->name, text);
		text_add(text, "* ");
		add_plain(commands[c]->operands, text);
		text_add(text, "\n\t");
		add_plain(commands[c]->summary, text);
		text_add(text, ". ");
		add_plain(commands[c]->details, text);
		text_add(text, "\n\n");
		if (commands[c]->lines != NULL) {
			add_typed(commands[c]->lines, text);
			text_add(text, "\n");
		}
	}
}

/* The commands that ask a question share most options: naming them at each would hide the meaning.
 */
static const char asking[] = "import, plan, predict, report";

static const char *owners(
	const struct command *const commands[], const struct option *option, struct arena *arena)
{
	const char *list = "";
	unsigned all = (1u << COMMAND_COUNT) - 1;

	if ((option->commands & all) == all)
		return "every command";
	for (int c = 0; c < COMMAND_COUNT; c++) {
		if (option->commands >> c & 1)
			list = arena_printf(arena, "%s%s%s", list, list[0] != '\0' ? ", " : "",
				commands[c]->name);
	}
	return list;
}

static void add_options(
	const struct command *const commands[], struct arena *arena, struct text *text)
{
	const char *group = "";

	text_printf(text,
		"# OPTIONS\n\nIn brackets: the commands that have the option; "
		"without brackets: %s.\n\n",
		asking);
	for (int i = 0; i < n_options; i++) {
		const struct option *option = &all_options[i];
		if (option->flags & (OPTION_HIDDEN | OPTION_LATER))
			continue;
		if (strcmp(group, option->group) != 0)
			text_printf(text, "## %s\n\n", option->group);
		group = option->group;
		const char *term =
			option->letter != '\0'
				? arena_printf(arena, "-%c, --%s", option->letter, option->name)
				: arena_printf(arena, "--%s", option->name);
		const char *commands_with = owners(commands, option, arena);
		add_item(term, option->flags & OPTION_SWITCH ? "" : option_value(option, arena),
			strcmp(commands_with, asking) == 0
				? option->help
				: arena_printf(arena, "%s (%s)", option->help, commands_with),
			text);
	}
}

static void add_views(struct text *text)
{
	text_add(text, "# VIEWS OF EXPLAIN\n\n");
	for (int i = 0; i < n_report_views; i++)
		add_item(report_views[i].name, "", report_views[i].question, text);
	add_item("schedule", "", "the schedule itself, as text that its digest is of", text);
}

static void add_help_lines(const char *heading, const struct help_line *lines, struct text *text)
{
	text_printf(text, "# %s\n\n", heading);
	for (; lines->name != NULL; lines++)
		add_item(lines->name, "", lines->words, text);
}

static void add_examples(
	const struct command *const commands[], struct arena *arena, struct text *text)
{
	const char *lines = "";

	text_add(text, "# EXAMPLES\n\n");
	for (int c = 0; c < COMMAND_COUNT; c++) {
		const struct command *command = commands[c];
		for (int i = 0; i < COUNT_OF(command->examples) && command->examples[i] != NULL;
			i++) {
			lines = arena_printf(arena, "%s%s%s", lines, lines[0] != '\0' ? "\n" : "",
				command->examples[i]);
		}
	}
	add_typed(lines, text);
}

void help_man(const struct command *const commands[], struct arena *arena, struct text *text)
{
	text_add(text,
		"shardplan(1)\n\n# NAME\n\n"
		"shardplan - which sharding strategy for my cluster? Plan, predict, train and "
		"check\n\n"
		"# SYNOPSIS\n\n*shardplan* _COMMAND_ \\[_OPERANDS_\\] \\[_OPTIONS_\\]\n\n"
		"# DESCRIPTION\n\n"
		"shardplan answers which sharding strategy (FSDP, ZeRO) suits a model on a "
		"cluster: it "
		"plans by a\ncost model and search, simulates, trains with exactly the chosen "
		"plan, and "
		"checks every prediction\nagainst what was measured.\n\n"
		"MODEL is a preset (*shardplan models*), a Hugging Face config.json or its folder, "
		"or "
		"a model file.\nTOPOLOGY is a catalogue name (*shardplan topologies*), NxNAME, a "
		"topology file, or *local*, which is\nthis machine.\n\n");
	add_commands(commands, text);
	add_options(commands, arena, text);
	add_views(text);
	add_help_lines("ENVIRONMENT", help_variables, text);
	text_add(text, "# FILES\n\n");
	add_item("$XDG_CONFIG_HOME/shardplan/config.yaml", "",
		"options that are not typed, one a line: memory_limit: 70GiB. "
		"What is typed wins over the environment, the environment over this file.",
		text);
	add_item("$XDG_CACHE_HOME/shardplan/local.yaml", "", "the calibration of this machine",
		text);
	add_help_lines("EXIT STATUS", help_exit_codes, text);
	add_examples(commands, arena, text);
	while (text->length > 1 && text->data[text->length - 2] == '\n')
		text->data[--text->length] = '\0';
}
