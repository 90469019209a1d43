#include "cli/options/options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal/terminal.h"

static const char prefix[] = "SHARDPLAN_";

/* Variables that are not options: cli/question/search_path.c, executor/launch/secret.c. */
static const char *const no_options[] = {"path", "secret", "secret-file"};

/* One value for each option; `where` says who set it. */
struct settings {
	const char *file; /* the file of settings; NULL: there is no home folder */
	bool found;
	const char *values[OPTIONS_MOST], *where[OPTIONS_MOST];
};

/* Options for files and for kinds of output belong to one call, so they can only be typed. */
static bool can_be_set(const struct option *option)
{
	static const char *const typed[] = {"FILE", "FILE.csv", "DIR", "VIEW", "WHAT", "TOPOLOGY"};

	if (option->flags & (OPTION_SWITCH | OPTION_HIDDEN | OPTION_LATER))
		return false;
	for (int i = 0; option->value != NULL && i < COUNT_OF(typed); i++) {
		if (strcmp(option->value, typed[i]) == 0)
			return false;
	}
	return true;
}

static const char **setting_names(char from, struct arena *arena)
{
	const char **names = ARENA_ARRAY(arena, const char *, n_options + 1);
	int n = 0;

	for (int i = 0; i < n_options; i++) {
		if (can_be_set(&all_options[i]))
			names[n++] = swap_dashes(all_options[i].name, '-', from, arena);
	}
	return names;
}

/* --- the file -----------------------------------------------------------------------------------
 */

static const char *file_of_settings(struct arena *arena)
{
	const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (folder != NULL && folder[0] == '/')
		return arena_printf(arena, "%s/shardplan/config.yaml", folder);
	if (home != NULL && home[0] != '\0')
		return arena_printf(arena, "%s/.config/shardplan/config.yaml", home);
	return NULL;
}

static bool set_from_node(struct settings *settings, const struct node *node, struct arena *arena,
	struct error *error)
{
	const struct option *option = option_find(swap_dashes(node->key, '_', '-', arena));

	if (option == NULL || !can_be_set(option) || strchr(node->key, '-') != NULL) {
		const char *near = nearest_name(node->key, setting_names('_', arena));
		return node_error(node, error,
			"no option that can be set, "
			"expected one of `shardplan help settings`%s%s%s",
			near != NULL ? "; did you mean " : "", near != NULL ? near : "",
			near != NULL ? "?" : "");
	}
	if (node->kind != NODE_SCALAR)
		return node_error(
			node, error, "expected one value: %s", option_value(option, arena));
	settings->values[option - all_options] = node->text;
	settings->where[option - all_options] = arena_printf(
		arena, "%s:%d:%d: %s", node->name, node->line, node->column, node->key);
	return true;
}

/* Blank lines and comments alone are not a mistake. */
static bool says_nothing(const char *text)
{
	while (*text != '\0') {
		text += strspn(text, " \t\r\n");
		if (*text != '#')
			return *text == '\0';
		text += strcspn(text, "\n");
	}
	return true;
}

static bool read_file(struct settings *settings, struct arena *arena, struct error *error)
{
	struct contents contents;

	settings->file = file_of_settings(arena);
	settings->found = settings->file != NULL && file_exists(settings->file);
	if (!settings->found)
		return true;
	if (!file_read(arena, settings->file, &contents, error))
		return false;
	if (says_nothing(contents.text))
		return true;
	const struct node *root =
		document_parse(arena, contents.name, contents.text, contents.length, 0, error);
	if (root == NULL)
		return false;
	if (root->kind == NODE_NULL)
		return true;
	if (root->kind != NODE_MAP)
		return node_error(
			root, error, "expected options and values, such as \"color: never\"");
	for (int i = 0; i < root->n_children; i++) {
		if (!set_from_node(settings, root->children[i], arena, error))
			return false;
	}
	return true;
}

/* --- the environment ----------------------------------------------------------------------------
 */

/* Turns "seq-len" into "SHARDPLAN_SEQ_LEN", and back. */
static const char *variable_of(const char *name, struct arena *arena)
{
	char *variable = arena_printf(arena, "%s%s", prefix, swap_dashes(name, '-', '_', arena));

	for (char *c = variable; *c != '\0'; c++)
		*c = (char)toupper((unsigned char)*c);
	return variable;
}

static const char *option_of_variable(const char *variable, size_t length, struct arena *arena)
{
	char *name =
		arena_strndup(arena, variable + sizeof(prefix) - 1, length - (sizeof(prefix) - 1));

	for (char *c = name; *c != '\0'; c++)
		*c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
	return name;
}

static bool set_from_variable(
	struct settings *settings, const char *variable, struct arena *arena, struct error *error)
{
	size_t length = strcspn(variable, "=");
	const char *name = option_of_variable(variable, length, arena);
	const struct option *option = option_find(name);

	for (int i = 0; i < COUNT_OF(no_options); i++)
		if (strcmp(name, no_options[i]) == 0)
			return true;
	if (option == NULL || !can_be_set(option)) {
		const char *near = nearest_name(name, setting_names('-', arena));
		return error_set(error, EXIT_CODE_USAGE,
			"%.*s: no option that can be set, see `shardplan help settings`%s%s%s",
			(int)length, variable, near != NULL ? "; did you mean " : "",
			near != NULL ? variable_of(near, arena) : "", near != NULL ? "?" : "");
	}
	/* An empty variable counts as unset, as with NO_COLOR. */
	if (variable[length] == '\0' || variable[length + 1] == '\0')
		return true;
	settings->values[option - all_options] = arena_strdup(arena, variable + length + 1);
	settings->where[option - all_options] = arena_strndup(arena, variable, length);
	return true;
}

static bool read_environment(struct settings *settings, struct arena *arena, struct error *error)
{
	for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
		if (strncmp(*variable, prefix, sizeof(prefix) - 1) == 0 &&
			!set_from_variable(settings, *variable, arena, error))
			return false;
	}
	return true;
}

/* The environment is read last, so it comes before the file. */
static bool settings_read(struct settings *settings, struct arena *arena, struct error *error)
{
	*settings = (struct settings){0};
	return read_file(settings, arena, error) && read_environment(settings, arena, error);
}

bool settings_apply(struct arguments *arguments, struct arena *arena, struct error *error)
{
	struct settings settings;

	if (arguments->command == COMMAND_HELP)
		return true; /* it must work whatever is set */
	if (!settings_read(&settings, arena, error))
		return false;
	for (int i = 0; i < n_options; i++) {
		bool applies = all_options[i].commands >> arguments->command & 1;
		if (!applies || arguments->values[i] != NULL || settings.values[i] == NULL)
			continue;
		arguments->values[i] =
			option_value_spelled(&all_options[i], settings.values[i], arena);
		arguments->origins[i] = settings.where[i];
	}
	return true;
}

bool help_settings(struct arena *arena, struct text *text, struct error *error)
{
	struct settings settings;

	if (!settings_read(&settings, arena, error))
		return false;
	text_add(text,
		"An option that is not typed is taken from the environment, else from the file of\n"
		"settings, where it is called seq_len and so on, else it has its default\n"
		"(`shardplan help defaults`).\n\nFile: ");
	text_printf(text, "%s%s\n\n", settings.file != NULL ? settings.file : "none",
		settings.found ? "" : ", which is not there");
	for (int i = 0; i < n_options; i++) {
		const struct option *option = &all_options[i];
		if (!can_be_set(option))
			continue;
		text_printf(text, "%-36s %s", variable_of(option->name, arena),
			settings.values[i] != NULL ? settings.values[i] : "-");
		if (settings.values[i] != NULL)
			text_printf(text, "  (%s)", settings.where[i]);
		text_add_char(text, '\n');
	}
	return true;
}
