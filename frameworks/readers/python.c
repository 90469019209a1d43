/* Assignments and keyword arguments of a Python file as leaves; nothing is run.
 *
 *     cfg.parallelism.data_parallel_shard_degree = 8     "parallelism.data_parallel_shard_degree"
 *     MICRO_BATCH = 2                                     "MICRO_BATCH"
 *     FSDP(model, limit_all_gathers=True)                 "FSDP.limit_all_gathers"
 *     init_device_mesh("cuda", (2, 8))                    "init_device_mesh()" = "cuda", (2, 8)
 *
 * A product of whole numbers is multiplied out, quotes are taken off, everything else is the text
 * of the expression. The last of several assignments counts, whatever branches there are. */
#include <ctype.h>
#include <string.h>

#include "frameworks/readers/leaves.h"

enum { DEEPEST = 64, LONGEST_VALUE = 400 };

struct scanner {
	struct arena *arena;
	struct source *source;
	const char *at, *line_start;
	int line, depth;
	const char *callees[DEEPEST]; /* "" for a bracket that is no call */
};

static bool starts_name(char c)
{
	return isalpha((unsigned char)c) || c == '_';
}

static size_t name_length(const char *at)
{
	size_t length = 0;

	while (isalnum((unsigned char)at[length]) || at[length] == '_' ||
		(at[length] == '.' && starts_name(at[length + 1])))
		length++;
	return length;
}

/* The length of the string literal at `at`, with its quotes. */
static size_t string_length(const char *at)
{
	size_t quotes = strncmp(at, "\"\"\"", 3) == 0 || strncmp(at, "'''", 3) == 0 ? 3 : 1;
	size_t i = quotes;

	while (at[i] != '\0' && strncmp(at + i, at, quotes) != 0) {
		if (quotes == 1 && at[i] == '\n')
			return i;
		i += at[i] == '\\' && at[i + 1] != '\0' ? 2 : 1;
	}
	return at[i] == '\0' ? i : i + quotes;
}

/* The expression from `at` to the end of the argument or statement. */
static size_t expression_length(const char *at, bool in_call)
{
	size_t i = 0;
	int depth = 0;

	while (at[i] != '\0' && i < LONGEST_VALUE) {
		char c = at[i];
		if (c == '"' || c == '\'') {
			i += string_length(at + i);
			continue;
		}
		if (strchr("([{", c) != NULL)
			depth++;
		if (strchr(")]}", c) != NULL && --depth < 0)
			break;
		if (depth == 0 && (c == '#' || (c == ',' && in_call) || (c == '\n' && !in_call)))
			break;
		i++;
	}
	while (i > 0 && isspace((unsigned char)at[i - 1]))
		i--;
	return i;
}

/* 2 * 4096 -> 8192; false for anything else. */
static bool multiply(const char *text, int64_t *product)
{
	*product = 1;
	for (;;) {
		char digits[24];
		size_t length = 0;
		text += strspn(text, " ");
		while ((isdigit((unsigned char)text[length]) || text[length] == '_') &&
			length < sizeof(digits) - 1)
			length++;
		size_t n = 0;
		for (size_t i = 0; i < length; i++) {
			if (text[i] != '_')
				digits[n++] = text[i];
		}
		digits[n] = '\0';
		int64_t factor;
		if (!parse_int(digits, &factor) || !checked_mul(*product, factor, product))
			return false;
		text += length;
		text += strspn(text, " ");
		if (*text == '\0')
			return true;
		if (*text++ != '*')
			return false;
	}
}

static void add_value(struct scanner *scanner, const char *path, const char *at, size_t length)
{
	char *value = arena_strndup(scanner->arena, at, length);
	bool quoted = length >= 2 && (at[0] == '"' || at[0] == '\'') && string_length(at) == length;
	int64_t product;

	if (quoted) {
		value[length - 1] = '\0';
		value++;
	} else if (multiply(value, &product)) {
		value = arena_printf(scanner->arena, "%lld", (long long)product);
	}
	source_add(scanner->arena, scanner->source, path, value, quoted, scanner->line,
		(int)(at - scanner->line_start) + 1);
}

/* `name` is followed by '=': an assignment, or an argument of the innermost call. */
static void add_assignment(struct scanner *scanner, const char *name, const char *value)
{
	bool in_call = scanner->depth > 0;
	const char *dot = strchr(name, '.');
	const char *path = dot != NULL ? dot + 1 : name;

	if (in_call)
		path = arena_printf(
			scanner->arena, "%s.%s", scanner->callees[scanner->depth - 1], name);
	add_value(scanner, path, value, expression_length(value, in_call));
}

static void open_call(struct scanner *scanner, const char *callee)
{
	const char *last = strrchr(callee, '.');

	callee = last != NULL ? last + 1 : callee;
	if (callee[0] != '\0')
		add_value(scanner, arena_printf(scanner->arena, "%s()", callee), scanner->at + 1,
			expression_length(scanner->at + 1, false));
	if (scanner->depth < DEEPEST)
		scanner->callees[scanner->depth++] = callee;
	scanner->at++;
}

static void scan_name(struct scanner *scanner)
{
	size_t length = name_length(scanner->at);
	const char *name = arena_strndup(scanner->arena, scanner->at, length);

	scanner->at += length;
	scanner->at += strspn(scanner->at, " \t");
	if (*scanner->at == '(') {
		open_call(scanner, name);
	} else if (*scanner->at == '=' && scanner->at[1] != '=') {
		scanner->at++;
		scanner->at += strspn(scanner->at, " \t");
		add_assignment(scanner, name, scanner->at);
	}
}

static void scan_other(struct scanner *scanner)
{
	char c = *scanner->at;

	if (c == '\n') {
		scanner->line++;
		scanner->line_start = scanner->at + 1;
	} else if (strchr("([{", c) != NULL && scanner->depth < DEEPEST) {
		scanner->callees[scanner->depth++] = "";
	} else if (strchr(")]}", c) != NULL && scanner->depth > 0) {
		scanner->depth--;
	}
	scanner->at++;
}

static void skip_string(struct scanner *scanner)
{
	size_t length = string_length(scanner->at);

	for (size_t i = 0; i < length; i++) {
		if (scanner->at[i] == '\n') {
			scanner->line++;
			scanner->line_start = scanner->at + i + 1;
		}
	}
	scanner->at += length;
}

bool source_read_python(struct arena *arena, struct source *source, struct error *error)
{
	struct scanner scanner = {.arena = arena,
		.source = source,
		.at = source->text,
		.line_start = source->text,
		.line = 1};

	(void)error;
	while (*scanner.at != '\0') {
		if (*scanner.at == '#')
			scanner.at += strcspn(scanner.at, "\n");
		else if (*scanner.at == '"' || *scanner.at == '\'')
			skip_string(&scanner);
		else if (starts_name(*scanner.at))
			scan_name(&scanner);
		else if (isdigit((unsigned char)*scanner.at))
			scanner.at += strspn(scanner.at, "0123456789_.eExXabcdfABCDF");
		else
			scan_other(&scanner);
	}
	return true;
}
