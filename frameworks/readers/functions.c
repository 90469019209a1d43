/* Configurations that are functions of a Python file: one of them, and those that it calls. */
#include <ctype.h>
#include <string.h>

#include "frameworks/readers/leaves.h"

enum { FUNCTIONS_MOST = 256 };

struct function {
	const char *name;
	size_t start, end; /* in the text: from "def" up to the next statement of the file */
	bool wanted;
};

struct functions {
	int n;
	struct function of[FUNCTIONS_MOST];
};

static size_t name_length(const char *at)
{
	size_t length = 0;

	while (isalnum((unsigned char)at[length]) || at[length] == '_')
		length++;
	return length;
}

/* Where the line behind `at` begins. */
static const char *next_line(const char *at)
{
	at += strcspn(at, "\n");
	return *at == '\n' ? at + 1 : at;
}

/* Functions without parameters, which is what a registry calls. */
static void find_functions(struct arena *arena, const char *text, struct functions *functions)
{
	struct function *open = NULL;

	functions->n = 0;
	for (const char *line = text; *line != '\0'; line = next_line(line)) {
		if (strchr(" \t\r\n#)", *line) != NULL)
			continue;
		if (open != NULL)
			open->end = (size_t)(line - text);
		open = NULL;
		if (strncmp(line, "def ", 4) != 0 || functions->n == FUNCTIONS_MOST)
			continue;
		size_t length = name_length(line + 4);
		if (strncmp(line + 4 + length, "()", 2) != 0)
			continue;
		open = &functions->of[functions->n++];
		*open = (struct function){arena_strndup(arena, line + 4, length),
			(size_t)(line - text), strlen(text), false};
	}
}

static bool calls(const char *text, const struct function *caller, const struct function *callee)
{
	size_t length = strlen(callee->name);
	const char *at = text + caller->start;

	while ((at = strstr(at, callee->name)) != NULL && at < text + caller->end) {
		bool whole = at == text ||
			     (!isalnum((unsigned char)at[-1]) && at[-1] != '_' && at[-1] != '.');
		if (whole && at[length] == '(')
			return true;
		at += length;
	}
	return false;
}

static void want(const char *text, struct functions *functions, struct function *function)
{
	function->wanted = true;
	for (int i = 0; i < functions->n; i++) {
		struct function *other = &functions->of[i];
		if (!other->wanted && calls(text, function, other))
			want(text, functions, other);
	}
}

static bool refuse(struct arena *arena, const struct source *source,
	const struct functions *functions, const char *name, struct error *error)
{
	const char *list = functions->of[0].name;

	for (int i = 1; i < functions->n; i++)
		list = arena_printf(arena, "%s%s%s", list, i + 1 < functions->n ? ", " : " or ",
			functions->of[i].name);
	return name != NULL ? error_set(error, EXIT_CODE_USAGE,
				      "--config %.60s: no function of %s, expected %s", name,
				      source->name, list)
			    : error_at(error, EXIT_CODE_INPUT, source->name, 0, 0,
				      "%d configurations, expected one; add --config with %s",
				      functions->n, list);
}

bool source_choose_function(
	struct arena *arena, struct source *source, const char *name, struct error *error)
{
	struct functions *functions = ARENA_NEW(arena, struct functions);
	struct function *chosen = NULL;
	char *text = arena_strdup(arena, source->text);

	find_functions(arena, text, functions);
	if (functions->n < 2 && name == NULL)
		return true;
	for (int i = 0; i < functions->n && name != NULL; i++) {
		if (strcmp(functions->of[i].name, name) == 0)
			chosen = &functions->of[i];
	}
	if (functions->n == 0)
		return error_set(error, EXIT_CODE_USAGE, "--config %.60s: %s has no functions",
			name, source->name);
	if (chosen == NULL)
		return refuse(arena, source, functions, name, error);
	want(text, functions, chosen);
	for (int i = 0; i < functions->n; i++) {
		const struct function *function = &functions->of[i];
		for (size_t at = function->start; !function->wanted && at < function->end; at++)
			text[at] = text[at] == '\n' ? '\n' : ' ';
	}
	source->text = text;
	return true;
}
