/* `help WORD`: an option, a value, another tool's word for one, or a word of the glossary. What is
 * said of them is in the tables that parse them, and in docs/glossary.md, which is built in. */
#include <ctype.h>
#include <string.h>

#include "cli/help/help.h"

extern const struct embedded_file help_pages[];

/* --- options and values ----------------------------------------------------------------------- */

static bool is_listed(const struct option *option)
{
	return !(option->flags & (OPTION_HIDDEN | OPTION_LATER));
}

static void add_commands(const struct command *const commands[], const struct option *option,
	struct arena *arena, struct text *text)
{
	const char *line = "Of:";

	for (int c = 0; c < COMMAND_COUNT; c++)
		if (option->commands >> c & 1)
			line = arena_printf(arena, "%s %s,", line, commands[c]->name);
	help_wrap(text, arena_strndup(arena, line, strlen(line) - 1), 0);
}

static bool say_option(const struct command *const commands[], const struct option *option,
	struct arena *arena, struct text *text, struct error *error)
{
	help_option(option, arena, text);
	text_add_char(text, '\n');
	add_commands(commands, option, arena, text);
	return option->knob == NULL ||
	       help_default((enum knob_id)(option->knob - knob_table), arena, text, error);
}

static const struct option *find_option(const char *word)
{
	while (*word == '-')
		word++;
	for (int i = 0; i < n_options; i++)
		if (is_listed(&all_options[i]) && same_name(all_options[i].name, word))
			return &all_options[i];
	return NULL;
}

/* Does the option take the word, in any spelling, as one of few values? `*value` is ours. */
static bool takes(
	const struct option *option, const char *word, const char **value, struct arena *arena)
{
	const char *const *names = option->knob != NULL ? option->knob->field.names : NULL;

	if (names == NULL || !is_listed(option))
		return false;
	*value = option_value_spelled(option, word, arena);
	for (; *names != NULL; names++)
		if (strcmp(*names, *value) == 0)
			return true;
	return false;
}

enum { NAMES_MOST = 8 };

/* What a value is called here: an option's zero3 is ZERO_3. Adds each name to `names`. */
static int say_values(
	const char *word, const char *names[NAMES_MOST], struct arena *arena, struct text *text)
{
	const char *value, *line = "";
	int n = 0;

	for (int i = 0; i < n_options; i++) {
		const struct option *option = &all_options[i];
		if (!takes(option, word, &value, arena))
			continue;
		bool again = n > 0 && strcmp(names[n - 1], value) == 0;
		if (!again && n == NAMES_MOST)
			break;
		if (!again && n > 0)
			help_wrap(text, line, 0);
		line = again ? arena_printf(arena, "%s, --%s", line, option->name)
			     : arena_printf(arena, "%s: a value of --%s", value, option->name);
		if (!again)
			names[n++] = value;
	}
	if (n > 0)
		help_wrap(text, line, 0);
	return n;
}

/* --- the glossary ----------------------------------------------------------------------------- */

/* The next "**word**" or "`word`" of a line; NULL: there is no more. */
static const char *next_word(const char *at, const char *end, size_t *length)
{
	for (; at < end; at++) {
		const char *mark = *at == '`' ? "`" : strncmp(at, "**", 2) == 0 ? "**" : NULL;
		if (mark == NULL)
			continue;
		const char *word = at + strlen(mark), *close = strstr(word, mark);
		if (close == NULL || close >= end)
			return NULL;
		*length = (size_t)(close - word);
		return word;
	}
	return NULL;
}

/* The end of the entry: an empty line, or the next item of a list. */
static const char *entry_end(const char *entry)
{
	const char *end = entry;

	while (*(end += strcspn(end, "\n")) != '\0' && end[1] != '\n' &&
		!isdigit((unsigned char)end[1]))
		end++;
	return end;
}

/* Does it explain the word? Entries of lists begin with theirs, others have theirs in bold. */
static bool explains(const char *entry, const char *end, const char *word)
{
	bool item = isdigit((unsigned char)*entry);
	const char *found;
	size_t length;

	for (const char *at = entry; (found = next_word(at, end, &length)) != NULL;
		at = found + length + 2) {
		if ((item || found[-1] == '*') && strlen(word) == length &&
			strncasecmp(found, word, length) == 0)
			return true;
		if (item)
			return false;
	}
	return false;
}

/* Without Markdown's marks, and of links the words alone. */
static const char *plain(struct arena *arena, const char *entry, const char *end)
{
	struct text text = {0};

	if (isdigit((unsigned char)*entry))
		entry += strcspn(entry, " ") + 1;
	for (const char *at = entry; at < end; at++) {
		if (*at == ']' && at[1] == '(')
			at += strcspn(at, ")");
		else if (*at == '\n')
			text_add_char(&text, ' ');
		else if (strchr("*`[", *at) == NULL)
			text_add_char(&text, *at);
	}
	const char *words = arena_strdup(arena, text_string(&text));
	text_finish(&text);
	return words;
}

static void say_entry(const char *word, struct arena *arena, struct text *text)
{
	const char *end;

	for (const char *entry = help_pages[0].text; *entry != '\0'; entry = end) {
		entry += strspn(entry, "\n");
		end = entry_end(entry);
		if (*entry != '#' && explains(entry, end, word))
			help_wrap(text, plain(arena, entry, end), 0);
	}
}

/* --- all of them ------------------------------------------------------------------------------ */

/* Is the name an earlier one, too? */
static bool is_again(const char *const names[], int n)
{
	for (int i = 0; i < n; i++)
		if (strcasecmp(names[i], names[n]) == 0)
			return true;
	return false;
}

bool help_word(const struct command *const commands[], const char *word, struct arena *arena,
	struct text *text, struct error *error)
{
	const struct option *option = find_option(word);
	/* The glossary writes "shard group" and "optimizer_state". */
	const char *names[3 + NAMES_MOST] = {
		word, swap_dashes(word, '-', ' ', arena), swap_dashes(word, '-', '_', arena)};
	const char *words = NULL;

	if (option == NULL) {
		option = option_called(word, &words);
		if (words != NULL)
			help_wrap(text, arena_printf(arena, "%s: %s", word, words), 0);
		else if (option != NULL)
			text_printf(text, "%s: here --%s\n\n", word, option->name);
	}
	if (option != NULL && !say_option(commands, option, arena, text, error))
		return false;
	int n = 3 + say_values(word, names + 3, arena, text);
	for (int i = 0; i < n; i++)
		if (!is_again(names, i))
			say_entry(names[i], arena, text);
	return true;
}

const char *help_nearest(
	const struct command *const commands[], const char *word, struct arena *arena)
{
	const char **names = ARENA_ARRAY(arena, const char *, COMMAND_COUNT + n_options + 32);
	int n = 0;

	for (int i = 0; i < COMMAND_COUNT; i++)
		names[n++] = commands[i]->name;
	for (int i = 0; help_topics[i] != NULL; i++)
		names[n++] = help_topics[i];
	for (int i = 0; i < n_options; i++)
		if (is_listed(&all_options[i]))
			names[n++] = all_options[i].name;
	for (int i = 0; strategy_names[i] != NULL; i++)
		names[n++] = strategy_names[i];
	names[n] = NULL;
	return nearest_name(word, names);
}
