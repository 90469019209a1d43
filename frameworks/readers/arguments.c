/* "--name value" and "--name=value" as leaves: of a file with one a line, or of a shell script. Of
 * the shell only this is understood: comments, quotes, NAME=value, $NAME, ${NAME} and
 * ${NAME:-default}. Every option in the script counts, whatever branches there are. */
#include <ctype.h>
#include <string.h>

#include "frameworks/readers/leaves.h"

enum { VARIABLES_MOST = 256, LONGEST_WORD = 512 };

struct variable {
	const char *name, *value;
};

struct shell {
	struct arena *arena;
	struct source *source;
	const char *at, *line_start;
	int line;
	int n_variables;
	struct variable variables[VARIABLES_MOST];
	const char *pending; /* an option that waits for its value */
	const char *list;    /* an option that takes more words; NULL: none does */
	int pending_line, pending_column;
};

static const char *lookup(const struct shell *shell, const char *name, size_t length)
{
	for (int i = shell->n_variables - 1; i >= 0; i--) {
		const char *known = shell->variables[i].name;
		if (strlen(known) == length && strncmp(known, name, length) == 0)
			return shell->variables[i].value;
	}
	return NULL;
}

static size_t word_length(const char *at)
{
	size_t length = 0;

	while (isalnum((unsigned char)at[length]) || at[length] == '_')
		length++;
	return length;
}

/* `at` is behind the '$'; returns what follows the reference. */
static const char *expand(const struct shell *shell, const char *at, struct text *word)
{
	bool braces = *at == '{';
	size_t name = word_length(at + braces);
	const char *value = lookup(shell, at + braces, name);

	if (!braces) {
		text_add(word, value != NULL ? value : "");
		return at + name;
	}
	const char *rest = at + 1 + name;
	size_t length = strcspn(rest, "}\n");
	if (value == NULL && strncmp(rest, ":-", 2) == 0) {
		const char *otherwise = rest + 2;
		size_t left = length - 2;
		bool quoted = left >= 2 && otherwise[0] == '"';
		text_add_bytes(word, otherwise + quoted, left - 2 * quoted);
	} else {
		text_add(word, value != NULL ? value : "");
	}
	return rest + length + (rest[length] == '}');
}

static void take_option(struct shell *shell, const char *word, int column)
{
	const char *equals = strchr(word, '=');
	size_t length = equals != NULL ? (size_t)(equals - word) : strlen(word);
	char *name = arena_strndup(shell->arena, word + 2, length - 2);

	if (equals != NULL) {
		source_add(shell->arena, shell->source, name,
			arena_strdup(shell->arena, equals + 1), false, shell->line, column);
		return;
	}
	shell->pending = name;
	shell->pending_line = shell->line;
	shell->pending_column = column;
}

static void add_value(struct shell *shell, const char *option, const char *value)
{
	source_add(shell->arena, shell->source, option, arena_strdup(shell->arena, value), false,
		shell->pending_line, shell->pending_column);
}

/* May several words follow the option? */
static bool takes_words(const char *option)
{
	static const char *const options[] = {
		"recompute-modules", "cuda-graph-modules", "cuda-graph-scope"};
	for (int i = 0; i < COUNT_OF(options); i++)
		if (strcmp(options[i], option) == 0)
			return true;
	return false;
}

/* An option without a value is a switch. */
static void settle_pending(struct shell *shell, const char *value)
{
	const char *list = value != NULL ? shell->list : NULL;

	shell->list = list;
	if (shell->pending == NULL && list != NULL)
		add_value(shell, list, value);
	if (shell->pending == NULL)
		return;
	add_value(shell, shell->pending, value != NULL ? value : "true");
	if (value != NULL && takes_words(shell->pending))
		shell->list = shell->pending;
	shell->pending = NULL;
}

static bool is_assignment(const char *word)
{
	size_t length = word_length(word);

	return length > 0 && !isdigit((unsigned char)word[0]) && word[length] == '=';
}

/* torchtitan's choice of a policy is a word of its own: "activation-checkpoint:full". */
static bool take_choice(struct shell *shell, const char *part, int column)
{
	static const char choice[] = "activation-checkpoint:";
	size_t length = strlen(choice);

	if (strncmp(part, choice, length) != 0)
		return false;
	settle_pending(shell, NULL);
	source_add(shell->arena, shell->source, "activation-checkpoint",
		arena_strdup(shell->arena, part + length), false, shell->line, column);
	return true;
}

/* A list of Python as an option's value, ([0]*3+[1]*58), is a word although no quotes are there: a
 * file with one option a line needs none. */
static bool begins_list(const struct shell *shell, const char *at)
{
	return shell->pending != NULL && at[0] == '(' && at[strspn(at, "(")] == '[';
}

static void take_part(struct shell *shell, const char *part, int column)
{
	if (take_choice(shell, part, column))
		return;
	if (strncmp(part, "--", 2) == 0 && isalpha((unsigned char)part[2])) {
		settle_pending(shell, NULL);
		take_option(shell, part, column);
	} else if (is_assignment(part) && shell->pending == NULL) {
		size_t length = word_length(part);
		if (shell->n_variables < VARIABLES_MOST)
			shell->variables[shell->n_variables++] =
				(struct variable){arena_strndup(shell->arena, part, length),
					arena_strdup(shell->arena, part + length + 1)};
	} else if (part[0] != '\0' && part[0] != '\\') {
		bool ends = strchr("()|&;", part[0]) != NULL && !begins_list(shell, part);
		settle_pending(shell, ends ? NULL : part);
	}
}

/* "--fp8-format hybrid" in one pair of quotes is two words all the same. */
static void take_word(struct shell *shell, const char *word, int column)
{
	if (strncmp(word, "--", 2) != 0) {
		take_part(shell, word, column);
		return;
	}
	while (*word != '\0') {
		size_t length = strcspn(word, " \t\n");
		take_part(shell, arena_strndup(shell->arena, word, length), column);
		word += length;
		word += strspn(word, " \t\n");
	}
}

/* One word of the shell, quotes taken off and variables put in. */
static void read_word(struct shell *shell)
{
	struct text word = {0};
	int column = (int)(shell->at - shell->line_start) + 1;
	bool list = begins_list(shell, shell->at);
	char quote = '\0';

	while (*shell->at != '\0' && word.length < LONGEST_WORD) {
		char c = *shell->at;
		if (quote == '\0' &&
			(isspace((unsigned char)c) || (!list && strchr("();", c) != NULL)))
			break;
		shell->at++;
		if (c == '\n') {
			shell->line++;
			shell->line_start = shell->at;
		}
		if (c == quote)
			quote = '\0';
		else if (quote == '\0' && (c == '"' || c == '\''))
			quote = c;
		else if (c == '$' && quote != '\'' && *shell->at != '(')
			shell->at = expand(shell, shell->at, &word);
		else
			text_add_char(&word, c);
	}
	take_word(shell, arena_strdup(shell->arena, text_string(&word)), column);
	text_finish(&word);
}

static void skip(struct shell *shell)
{
	if (*shell->at == '\n') {
		shell->line++;
		shell->line_start = shell->at + 1;
	}
	if (strchr("();", *shell->at) != NULL)
		settle_pending(shell, NULL);
	shell->at++;
}

bool source_read_arguments(struct arena *arena, struct source *source, struct error *error)
{
	struct shell *shell = ARENA_NEW(arena, struct shell);

	(void)error;
	*shell = (struct shell){.arena = arena,
		.source = source,
		.at = source->text,
		.line_start = source->text,
		.line = 1};
	while (*shell->at != '\0') {
		if (*shell->at == '#')
			shell->at += strcspn(shell->at, "\n");
		else if (!begins_list(shell, shell->at) &&
			 (isspace((unsigned char)*shell->at) || strchr("();", *shell->at) != NULL))
			skip(shell);
		else
			read_word(shell);
	}
	settle_pending(shell, NULL);
	return true;
}
