/* TOML 1.0 to leaves, as far as configurations use it: tables, dotted keys, strings of one line,
 * numbers, booleans, arrays and inline tables. Dates stay text; strings of several lines are an
 * error. */
#include <string.h>

#include "frameworks/readers/leaves.h"

enum { DEEPEST = 16 };

struct reader {
	struct arena *arena;
	struct source *source;
	struct error *error;
	const char *at, *line_start;
	int line;
	const char *table; /* "" at the top */
};

static int column_of(const struct reader *reader)
{
	return (int)(reader->at - reader->line_start) + 1;
}

static bool fail(const struct reader *reader, const char *expected)
{
	char got[24];
	size_t length = strcspn(reader->at, "\n");

	length = length < sizeof(got) - 1 ? length : sizeof(got) - 1;
	memcpy(got, reader->at, length);
	got[length] = '\0';
	return error_at(reader->error, EXIT_CODE_INPUT, reader->source->name, reader->line,
		column_of(reader), "expected %s, got \"%s\"", expected, got);
}

static void skip_blanks(struct reader *reader)
{
	reader->at += strspn(reader->at, " \t\r");
}

/* Blanks, comments and line ends. */
static void skip_lines(struct reader *reader)
{
	for (;;) {
		skip_blanks(reader);
		if (*reader->at == '#')
			reader->at += strcspn(reader->at, "\n");
		if (*reader->at != '\n')
			return;
		reader->at++;
		reader->line++;
		reader->line_start = reader->at;
	}
}

static bool end_line(struct reader *reader)
{
	skip_blanks(reader);
	if (*reader->at != '\0' && *reader->at != '\n' && *reader->at != '#')
		return fail(reader, "the end of the line");
	skip_lines(reader);
	return true;
}

/* "\n", "\u00e9": only what fits a configuration; the rest stays as written. */
static void add_escape(struct reader *reader, struct text *text)
{
	static const char from[] = "nrt\"\\", to[] = "\n\r\t\"\\";
	const char *known = strchr(from, *reader->at);

	if (*reader->at != '\0' && known != NULL) {
		text_add_char(text, to[known - from]);
		reader->at++;
	} else {
		text_add_char(text, '\\');
	}
}

static bool read_string(struct reader *reader, const char **value)
{
	char quote = *reader->at;
	struct text text = {0};

	if (strncmp(reader->at, "\"\"\"", 3) == 0 || strncmp(reader->at, "'''", 3) == 0)
		return fail(reader, "a string of one line");
	for (reader->at++; *reader->at != quote;) {
		if (*reader->at == '\0' || *reader->at == '\n') {
			text_finish(&text);
			return fail(reader, "the end of the string");
		}
		char c = *reader->at++;
		if (c == '\\' && quote == '"')
			add_escape(reader, &text);
		else
			text_add_char(&text, c);
	}
	reader->at++;
	*value = arena_strdup(reader->arena, text_string(&text));
	text_finish(&text);
	return true;
}

static bool is_bare(char c)
{
	return c != '\0' && (strchr("_-", c) != NULL || (c >= '0' && c <= '9') ||
				    (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
}

/* a.b."c d" */
static bool read_key(struct reader *reader, const char *before, const char **key)
{
	*key = before;
	for (;;) {
		const char *part;
		size_t length = 0;
		skip_blanks(reader);
		while (is_bare(reader->at[length]))
			length++;
		if (*reader->at == '"' || *reader->at == '\'') {
			if (!read_string(reader, &part))
				return false;
		} else if (length == 0) {
			return fail(reader, "a key");
		} else {
			part = arena_strndup(reader->arena, reader->at, length);
			reader->at += length;
		}
		*key = (*key)[0] == '\0' ? part : arena_printf(reader->arena, "%s.%s", *key, part);
		skip_blanks(reader);
		if (*reader->at != '.')
			return true;
		reader->at++;
	}
}

/* true, 4_096, 3e-4, inf, 1979-05-27 */
static bool read_plain(struct reader *reader, const char **value)
{
	size_t length = strcspn(reader->at, ",]}# \t\r\n");
	char *copy = arena_strndup(reader->arena, reader->at, length);
	char *to = copy;

	if (length == 0 || strchr("\"'=[{", copy[0]) != NULL)
		return fail(reader, "a value");
	for (const char *from = copy; *from != '\0'; from++) {
		if (*from != '_' || !(from[1] >= '0' && from[1] <= '9'))
			*to++ = *from;
	}
	*to = '\0';
	if (!(copy[0] >= '0' && copy[0] <= '9') && strchr("+-", copy[0]) == NULL &&
		strcmp(copy, "true") != 0 && strcmp(copy, "false") != 0 &&
		strcmp(copy, "inf") != 0 && strcmp(copy, "nan") != 0)
		return fail(reader, "a value; strings are quoted");
	reader->at += length;
	*value = copy;
	return true;
}

static bool read_value(struct reader *reader, const char *path, int depth);

static bool read_array(struct reader *reader, const char *path, int depth)
{
	const char *element = arena_printf(reader->arena, "%s[]", path);

	for (reader->at++;; reader->at++) {
		skip_lines(reader);
		if (*reader->at == ']')
			break;
		if (!read_value(reader, element, depth + 1))
			return false;
		skip_lines(reader);
		if (*reader->at == ']')
			break;
		if (*reader->at != ',')
			return fail(reader, "',' or ']'");
	}
	reader->at++;
	return true;
}

static bool read_pair(struct reader *reader, const char *table, int depth)
{
	const char *path;

	if (!read_key(reader, table, &path))
		return false;
	if (*reader->at != '=')
		return fail(reader, "'='");
	reader->at++;
	return read_value(reader, path, depth);
}

static bool read_inline_table(struct reader *reader, const char *path, int depth)
{
	for (reader->at++;; reader->at++) {
		skip_blanks(reader);
		if (*reader->at == '}')
			break;
		if (!read_pair(reader, path, depth + 1))
			return false;
		skip_blanks(reader);
		if (*reader->at == '}')
			break;
		if (*reader->at != ',')
			return fail(reader, "',' or '}'");
	}
	reader->at++;
	return true;
}

static bool read_value(struct reader *reader, const char *path, int depth)
{
	const char *value;

	skip_blanks(reader);
	if (depth > DEEPEST)
		return fail(reader, "at most 16 levels");
	if (*reader->at == '[')
		return read_array(reader, path, depth);
	if (*reader->at == '{')
		return read_inline_table(reader, path, depth);
	int line = reader->line, column = column_of(reader);
	bool quoted = *reader->at == '"' || *reader->at == '\'';
	if (quoted ? !read_string(reader, &value) : !read_plain(reader, &value))
		return false;
	const struct node *before = source_find(reader->source, path);
	/* Elements of a list have one path. */
	if (before != NULL && strstr(path, "[]") == NULL)
		return error_at(reader->error, EXIT_CODE_INPUT, reader->source->name, line, column,
			"%.80s: given twice, first in line %d; remove one", path, before->line);
	source_add(reader->arena, reader->source, path, value, quoted, line, column);
	return true;
}

static bool read_header(struct reader *reader)
{
	bool list = reader->at[1] == '[';

	reader->at += list ? 2 : 1;
	if (!read_key(reader, "", &reader->table))
		return false;
	if (strncmp(reader->at, list ? "]]" : "]", list ? 2 : 1) != 0)
		return fail(reader, list ? "']]'" : "']'");
	reader->at += list ? 2 : 1;
	if (list)
		reader->table = arena_printf(reader->arena, "%s[]", reader->table);
	return end_line(reader);
}

bool source_read_toml(struct arena *arena, struct source *source, struct error *error)
{
	struct reader reader = {arena, source, error, source->text, source->text, 1, ""};

	skip_lines(&reader);
	while (*reader.at != '\0') {
		bool ok = *reader.at == '['
				  ? read_header(&reader)
				  : read_pair(&reader, reader.table, 0) && end_line(&reader);
		if (!ok)
			return false;
	}
	return true;
}
