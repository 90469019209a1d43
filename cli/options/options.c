#include "cli/options/options.h"

#include <string.h>

#include "cli/terminal/terminal.h"
#include "schedule/schedule.h"

const struct option *option_find(const char *name)
{
	for (int i = 0; i < n_options; i++) {
		if (strcmp(all_options[i].name, name) == 0)
			return &all_options[i];
	}
	return NULL;
}

const char *swap_dashes(const char *name, char from, char to, struct arena *arena)
{
	char *swapped = arena_strdup(arena, name);

	for (char *c = swapped; *c != '\0'; c++) {
		if (*c == from)
			*c = to;
	}
	return swapped;
}

const char **option_names(enum command_index command, bool columns, struct arena *arena)
{
	const char **names = ARENA_ARRAY(arena, const char *, n_options + 1);
	int n = 0;

	for (int i = 0; i < n_options; i++) {
		const struct option *option = &all_options[i];
		if (!(option->commands >> command & 1) || option->flags & OPTION_HIDDEN)
			continue;
		if (columns && option->flags & OPTION_QUESTION)
			names[n++] = swap_dashes(option->name, '-', '_', arena);
		else if (!columns)
			names[n++] = arena_printf(arena, "--%s", option->name);
	}
	return names;
}

const char *option_value(const struct option *option, struct arena *arena)
{
	const char *list = "";

	if (option->value != NULL)
		return option->value;
	const char *const *names = option->knob->field.names;
	for (int i = 0; names[i] != NULL; i++)
		list = arena_printf(arena, "%s%s%s", list, i > 0 ? "|" : "", names[i]);
	return list;
}

const struct option *option_of_knob(enum knob_id id)
{
	const struct option *option = all_options;

	while (option->knob != &knob_table[id])
		option++;
	return option;
}

const char *argument_of_knob(const struct arguments *arguments, enum knob_id id)
{
	return arguments->values[option_of_knob(id) - all_options];
}

/* --- reading a command line ---------------------------------------------------------------------
 */

static const struct option *find_letter(char letter)
{
	for (int i = 0; i < n_options; i++) {
		if (all_options[i].letter != '\0' && all_options[i].letter == letter)
			return &all_options[i];
	}
	return NULL;
}

static bool unknown_option(
	const char *name, enum command_index command, struct arena *arena, struct error *error)
{
	static const char *const names[] = {
#define X(suffix, name) #name,
		COMMANDS(X)
#undef X
	};
	const char *near = nearest_name(name, option_names(command, false, arena));
	const char *hint = option_hint(name, command, arena);

	if (hint != NULL)
		return error_set(error, EXIT_CODE_USAGE, "%s: %s", name, hint);
	if (near != NULL)
		return error_set(
			error, EXIT_CODE_USAGE, "%s: unknown option, did you mean %s?", name, near);
	return error_set(error, EXIT_CODE_USAGE,
		"%s: unknown option; `shardplan help %s` lists those there are", name,
		names[command]);
}

static bool misplaced_option(const struct option *option, enum command_index command,
	struct arena *arena, struct error *error)
{
	static const char *const names[] = {
#define X(suffix, name) #name,
		COMMANDS(X)
#undef X
	};
	const char *owners = "", *hint = option_hint(option->name, command, arena);

	if (hint != NULL)
		return error_set(error, EXIT_CODE_USAGE, "--%s: %s", option->name, hint);
	for (int i = 0; i < COMMAND_COUNT; i++) {
		if (option->commands >> i & 1)
			owners = arena_printf(
				arena, "%s%s%s", owners, owners[0] != '\0' ? ", " : "", names[i]);
	}
	return error_set(error, EXIT_CODE_USAGE,
		"--%s: not an option of this command; it belongs to: %s", option->name, owners);
}

static bool check_option(const struct option *option, const struct arguments *arguments,
	struct arena *arena, struct error *error)
{
	if (!(option->commands >> arguments->command & 1))
		return misplaced_option(option, arguments->command, arena, error);
	if (option->flags & OPTION_LATER)
		return error_set(error, EXIT_CODE_USAGE, "--%s: not in this version", option->name);
	if (arguments->values[option - all_options] != NULL)
		return error_set(error, EXIT_CODE_USAGE, "--%s: given twice", option->name);
	return true;
}

/* Reads "--no-cpu-offload" as "--cpu-offload none": the option, and the value that turns it off.
 * NULL: not such an option. */
static const struct option *find_negated(const char *name, const char **off)
{
	const struct option *option = strncmp(name, "--no-", 5) == 0 ? option_find(name + 5) : NULL;
	if (option == NULL || option->knob == NULL)
		return NULL;
	*off = knob_off(option->knob);
	return *off != NULL ? option : NULL;
}

/* Finds an option by the name that another tool uses, if this command has no option of that
 * name. */
static bool find_spelled(const char *name, enum command_index command, const struct option **option,
	const char **prefix, struct error *error)
{
	struct error refused = {0};

	if (name[1] != '-' || (*option != NULL && (*option)->commands >> command & 1))
		return true;
	const struct option *spelled = option_spelled(name + 2, command, prefix, &refused);
	if (spelled != NULL)
		*option = spelled;
	if (refused.code != EXIT_CODE_OK)
		*error = refused;
	return refused.code == EXIT_CODE_OK;
}

/* The value as we understand it. A note says so if it differs from what was typed in more than
 * capitals. */
static const char *understood(const struct option *option, const char *name, const char *prefix,
	const char *value, struct arena *arena)
{
	const char *read =
		option_value_spelled(option, arena_printf(arena, "%s%s", prefix, value), arena);
	bool renamed = name[1] == '-' && !same_name(name + 2, option->name);

	if (renamed && option->flags & OPTION_SWITCH)
		output_note("%s is read as --%s", name, option->name);
	else if (renamed || !same_name(read, value))
		output_note("%s %s is read as --%s %s", name, value, option->name, read);
	return read;
}

/* Takes the option at argv[*i], and moves *i to its last word. */
static bool take_option(int argc, char **argv, int *i, struct arguments *arguments,
	struct arena *arena, struct error *error)
{
	char *word = argv[*i];
	char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
	char *name = equals != NULL ? arena_strndup(arena, word, (size_t)(equals - word))
				    : arena_strdup(arena, word);
	const struct option *option = name[1] == '-'    ? option_find(name + 2)
				      : name[2] == '\0' ? find_letter(name[1])
							: NULL;
	const char *off = NULL, *prefix = "";

	if (option == NULL)
		option = find_negated(name, &off);
	if (!find_spelled(name, arguments->command, &option, &prefix, error))
		return false;
	if (option == NULL)
		return unknown_option(name, arguments->command, arena, error);
	if (!check_option(option, arguments, arena, error))
		return false;
	if (off != NULL && equals != NULL)
		return error_set(error, EXIT_CODE_USAGE, "%s: takes no value", name);
	if (off != NULL) {
		arguments->values[option - all_options] = off;
		return true;
	}
	if (option->flags & OPTION_SWITCH && equals != NULL)
		return error_set(error, EXIT_CODE_USAGE, "%s: takes no value", name);
	const char *value = equals != NULL ? equals + 1 : "";
	if (!(option->flags & OPTION_SWITCH) && equals == NULL) {
		if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0)
			return error_set(error, EXIT_CODE_USAGE, "%s: expected a value: %s", name,
				option_value(option, arena));
		value = argv[++*i];
	}
	arguments->values[option - all_options] = understood(option, name, prefix, value, arena);
	return true;
}

/* Is --help among the words? It is looked for before anything is judged, so that it works even
 * beside mistakes. */
static bool asks_for_help(int argc, char **argv)
{
	for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return true;
	}
	return false;
}

bool arguments_parse(int argc, char **argv, enum command_index command, int most,
	struct arguments *arguments, bool *help, struct arena *arena, struct error *error)
{
	bool only_operands = false;

	*arguments = (struct arguments){.command = command};
	*help = asks_for_help(argc, argv);
	if (*help)
		return true;
	for (int i = 0; i < argc; i++) {
		bool dashed = argv[i][0] == '-' && argv[i][1] != '\0';
		if (dashed && !only_operands && strcmp(argv[i], "--") == 0) {
			only_operands = true;
		} else if (dashed && !only_operands) {
			if (!take_option(argc, argv, &i, arguments, arena, error))
				return false;
		} else if (arguments->n_operands >= most) {
			if (arguments->extra == NULL)
				arguments->extra = argv[i];
		} else {
			arguments->operands[arguments->n_operands++] = argv[i];
		}
	}
	return true;
}

/* --- using them ---------------------------------------------------------------------------------
 */

const char *argument(const struct arguments *arguments, const char *name)
{
	const struct option *option = option_find(name);

	return option != NULL ? arguments->values[option - all_options] : NULL;
}

bool argument_given(const struct arguments *arguments, const char *name)
{
	return argument(arguments, name) != NULL;
}

const char *argument_where(
	const struct arguments *arguments, const struct option *option, struct arena *arena)
{
	const char *origin = arguments->origins[option - all_options];

	if (origin != NULL)
		return origin;
	return arguments->cells ? swap_dashes(option->name, '-', '_', arena)
				: arena_printf(arena, "--%s", option->name);
}

bool arguments_set(const struct arguments *arguments, const struct field *fields, void *object,
	struct arena *arena, struct error *error)
{
	for (const struct field *field = fields; field->name != NULL; field++) {
		const char *name = swap_dashes(field->name, '_', '-', arena);
		const char *value = argument(arguments, name);
		if (value == NULL)
			continue;
		const char *where = argument_where(arguments, option_find(name), arena);
		if (!fields_set(field, where, value, object, arena, error))
			return false;
	}
	return true;
}

bool argument_choice(const struct arguments *arguments, const char *name, const char *const *names,
	int *index, struct error *error)
{
	struct arena arena = {0};
	const struct field fields[] = {
		{swap_dashes(name, '-', '_', &arena), FIELD_TYPE_ENUM, 0, 0, names}, FIELD_END};
	bool ok = arguments_set(arguments, fields, index, &arena, error);

	arena_finish(&arena);
	return ok;
}

/* --- the question as text -----------------------------------------------------------------------
 */

static bool is_plain(const char *value)
{
	return value[0] != '\0' && strpbrk(value, " \t'\"\\") == NULL;
}

const char *question_print(const struct arguments *arguments, struct arena *arena)
{
	const char *line = "";

	for (int i = 0; i < n_options; i++) {
		const char *value = arguments->values[i];
		if (value == NULL || !(all_options[i].flags & OPTION_QUESTION))
			continue;
		line = arena_printf(arena, is_plain(value) ? "%s%s--%s %s" : "%s%s--%s '%s'", line,
			line[0] != '\0' ? " " : "", all_options[i].name, value);
	}
	return line;
}

/* The next word of a line that question_print wrote; NULL at its end. */
static char *next_word(const char **line, struct arena *arena)
{
	*line += strspn(*line, " ");
	if (**line == '\0')
		return NULL;
	bool quoted = **line == '\'';
	const char *start = *line + quoted;
	size_t length = strcspn(start, quoted ? "'" : " ");
	*line = start + length + (quoted && start[length] == '\'');
	return arena_strndup(arena, start, length);
}

bool question_scan(
	const char *text, struct arguments *arguments, struct arena *arena, struct error *error)
{
	char *words[2 * OPTIONS_MOST];
	int n = 0;
	bool help;

	while (n < COUNT_OF(words) && (words[n] = next_word(&text, arena)) != NULL)
		n++;
	if (!arguments_parse(n, words, COMMAND_PLAN, 0, arguments, &help, arena, error))
		return false;
	return arguments->extra == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "%.200s: no option, expected --NAME VALUE",
		       arguments->extra);
}
