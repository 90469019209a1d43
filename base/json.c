#include <string.h>

#include "base/text.h"
#include "base/tree.h"

/* JSON (RFC 8259) is read here and not by libfyaml's JSON mode, which cannot know whether the
 * outermost bracket starts a key and therefore queues the whole document: 810 MiB for 14 MiB. */

struct reader {
	struct tree *tree;
	const char *at, *end;
	/* The place of `placed`; it only moves forward, so that places cost one pass in all. */
	const char *placed;
	int line, column;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static void move_place(struct reader *reader, const char *to)
{
	for (; reader->placed < to; reader->placed++) {
		if (*reader->placed == '\n') {
			reader->line++;
			reader->column = 1;
		} else if (((unsigned char)*reader->placed & 0xc0) != 0x80) {
			reader->column++;
		}
	}
}

/* "expected X, got c" at the current character. */
static bool unexpected(struct reader *reader, const char *expected)
{
	uint32_t point;

	move_place(reader, reader->at);
	if (reader->at == reader->end)
		return tree_fail(reader->tree, reader->line, reader->column,
			"expected %s, got the end of the text", expected);
	int bytes = utf8_decode(reader->at, (size_t)(reader->end - reader->at), &point);
	return tree_fail(reader->tree, reader->line, reader->column, "expected %s, got '%.*s'",
		expected, bytes, reader->at);
}

static bool fail_here(struct reader *reader, const char *what)
{
	move_place(reader, reader->at);
	return tree_fail(reader->tree, reader->line, reader->column, "%s", what);
}

static char peek(const struct reader *reader)
{
	return reader->at < reader->end ? *reader->at : '\0';
}

static void skip_blanks(struct reader *reader)
{
	while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) != NULL)
		reader->at++;
}

static bool read_hex4(struct reader *reader, uint32_t *value)
{
	*value = 0;
	for (int i = 0; i < 4; i++) {
		char c = peek(reader);
		int digit = is_digit(c)            ? c - '0'
			    : c >= 'a' && c <= 'f' ? c - 'a' + 10
			    : c >= 'A' && c <= 'F' ? c - 'A' + 10
						   : -1;
		if (digit < 0)
			return unexpected(reader, "four hexadecimal digits after \\u");
		*value = *value << 4 | (uint32_t)digit;
		reader->at++;
	}
	return true;
}

static int put_utf8(char *to, uint32_t point)
{
	if (point < 0x80) {
		to[0] = (char)point;
		return 1;
	}
	int bytes = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
	for (int i = bytes - 1; i > 0; i--, point >>= 6)
		to[i] = (char)(0x80 | (point & 0x3f));
	to[0] = (char)(0xf00u >> bytes | point);
	return bytes;
}

/* What follows "\u": a character of its own or, from D800 on, the first half of a pair. */
static bool read_unicode(struct reader *reader, uint32_t *point)
{
	uint32_t low;

	if (!read_hex4(reader, point))
		return false;
	if (*point == 0)
		return fail_here(reader, "expected text, got a NUL character");
	if (*point < 0xd800 || *point > 0xdfff)
		return true;
	bool first = *point < 0xdc00 && reader->end - reader->at >= 2 && reader->at[0] == '\\' &&
		     reader->at[1] == 'u';
	if (!first)
		return fail_here(
			reader, "expected both halves of a surrogate pair (\\ud83d\\ude00)");
	reader->at += 2;
	if (!read_hex4(reader, &low))
		return false;
	if (low < 0xdc00 || low > 0xdfff)
		return fail_here(
			reader, "expected both halves of a surrogate pair (\\ud83d\\ude00)");
	*point = 0x10000 + ((*point - 0xd800) << 10) + (low - 0xdc00);
	return true;
}

static bool read_escape(struct reader *reader, char *to, int *length)
{
	static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
	const char *letter = strchr(letters, peek(reader));
	uint32_t point;

	if (peek(reader) == 'u') {
		reader->at++;
		if (!read_unicode(reader, &point))
			return false;
		*length = put_utf8(to, point);
		return true;
	}
	if (peek(reader) == '\0' || letter == NULL)
		return unexpected(reader, "one of \" \\ / b f n r t u after \\");
	reader->at++;
	*to = meanings[letter - letters];
	*length = 1;
	return true;
}

/* An escape is never shorter than what it stands for, so the raw length suffices. */
static bool read_string(struct reader *reader, char **result)
{
	const char *close = reader->at + 1;

	while (close < reader->end && *close != '"')
		close += *close == '\\' && close + 1 < reader->end ? 2 : 1;
	char *to = arena_alloc(reader->tree->arena, (size_t)(close - reader->at), 1);
	*result = to;
	reader->at++;
	while (reader->at < reader->end && *reader->at != '"') {
		int length = 1;
		if ((unsigned char)*reader->at < 0x20)
			return fail_here(reader, "control character in a string, write it as an "
						 "escape such as \\n or close the quote");
		*to = *reader->at++;
		if (*to == '\\' && !read_escape(reader, to, &length))
			return false;
		to += length;
	}
	if (reader->at == reader->end) /* the place is still that of the opening quote */
		return tree_fail(reader->tree, reader->line, reader->column,
			"string without a closing quote");
	reader->at++;
	return true;
}

static bool is_word_character(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c != '\0' && strchr("+-._", c) != NULL);
}

/* Python writes NaN and Infinity into JSON; in a foreign file they pass as long as nobody reads
 * them as numbers. */
static bool is_word(const struct reader *reader, const char *word)
{
	static const char *const words[] = {"true", "false", "null"};
	static const char *const foreign[] = {"NaN", "Infinity", "-Infinity"};

	for (int i = 0; i < 3; i++) {
		if (strcmp(word, words[i]) == 0)
			return true;
		if ((reader->tree->flags & DOCUMENT_FOREIGN) && strcmp(word, foreign[i]) == 0)
			return true;
	}
	return false;
}

static bool read_word(struct reader *reader)
{
	const char *start = reader->at;

	while (is_word_character(peek(reader)))
		reader->at++;
	if (reader->at == start)
		return unexpected(reader, "a JSON value");
	char *word = arena_strndup(reader->tree->arena, start, (size_t)(reader->at - start));
	if (!is_json_number(word) && !is_word(reader, word))
		return tree_fail(reader->tree, reader->line, reader->column,
			"expected a JSON value, got %.40s; text needs double quotes", word);
	enum node_kind kind = strcmp(word, "null") == 0 ? NODE_NULL : NODE_SCALAR;
	tree_scalar(reader->tree, kind, word, false, reader->line, reader->column);
	return true;
}

static bool read_key(struct reader *reader)
{
	char *key;

	if (peek(reader) != '"')
		return unexpected(reader, "a key in double quotes");
	move_place(reader, reader->at);
	int line = reader->line, column = reader->column;
	if (!read_string(reader, &key))
		return false;
	skip_blanks(reader);
	if (peek(reader) != ':')
		return unexpected(reader, "':' after the key");
	reader->at++;
	tree_key(reader->tree, key, line, column);
	return true;
}

/* A scalar, or the opening of a collection. */
static bool read_value(struct reader *reader)
{
	char *string;
	char c = peek(reader);

	move_place(reader, reader->at);
	int line = reader->line, column = reader->column;
	if (c == '{' || c == '[') {
		reader->at++;
		return tree_begin(reader->tree, c == '{' ? NODE_MAP : NODE_LIST, line, column);
	}
	if (c != '"')
		return read_word(reader);
	if (!read_string(reader, &string))
		return false;
	tree_scalar(reader->tree, NODE_SCALAR, string, true, line, column);
	return true;
}

/* The next key and value in the collection that is open, or its end. `first`: nothing stands in it
 * yet. */
static bool read_next(struct reader *reader, bool first)
{
	bool map = tree_top(reader->tree)->node->kind == NODE_MAP;
	char close = map ? '}' : ']';

	skip_blanks(reader);
	if (peek(reader) == close) {
		reader->at++;
		return tree_end(reader->tree);
	}
	if (!first) {
		if (peek(reader) != ',')
			return unexpected(reader, map ? "',' or '}'" : "',' or ']'");
		reader->at++;
		skip_blanks(reader);
		if (peek(reader) == close)
			return unexpected(
				reader, map ? "another key after ','" : "another value after ','");
	}
	if (map) {
		if (!read_key(reader))
			return false;
		skip_blanks(reader);
	}
	return read_value(reader);
}

bool json_read(struct tree *tree, const char *text, size_t length)
{
	struct reader reader = {.tree = tree,
		.at = text,
		.end = text + length,
		.placed = text,
		.line = 1,
		.column = 1};

	skip_blanks(&reader);
	if (!read_value(&reader))
		return false;
	while (tree->depth > 0) {
		const struct tree_frame *top = tree_top(tree);
		if (!read_next(&reader, top->first_child == tree->n_finished))
			return false;
	}
	skip_blanks(&reader);
	return reader.at == reader.end || unexpected(&reader, "the end of the text");
}
