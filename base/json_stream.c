#include "base/json_stream.h"

#include <string.h>

enum state {
	BEFORE_VALUE,
	BEFORE_FIRST, /* of a map or list: a value or key, or its end */
	BEFORE_NEXT,  /* behind a comma */
	BEFORE_COLON,
	AFTER_VALUE,
	IN_STRING,
	IN_ESCAPE,
	IN_UNICODE,
	IN_WORD
};

static const char half_a_pair[] = "expected both halves of a surrogate pair (\\ud83d\\ude00)";

void json_stream_init(
	struct json_stream *stream, const char *name, json_event_fn *event, void *data)
{
	*stream = (struct json_stream){.name = name,
		.event = event,
		.data = data,
		.longest = 1 << 20,
		.state = BEFORE_VALUE,
		.at = {1, 1}};
}

void json_stream_finish(struct json_stream *stream)
{
	text_finish(&stream->key);
	text_finish(&stream->value);
}

static bool fail_at(struct json_stream *s, struct json_place at, const char *what)
{
	return error_at(s->error, EXIT_CODE_INPUT, s->name, at.line, at.column, "%s", what);
}

/* At the current character, which `left` bytes from `c` on hold; none: the text is over. */
static bool unexpected(struct json_stream *s, const char *c, const char *expected)
{
	uint32_t point;

	if (c == NULL)
		return error_at(s->error, EXIT_CODE_INPUT, s->name, s->at.line, s->at.column,
			"expected %s, got the end of the text", expected);
	int bytes = utf8_decode(c, s->left, &point);
	return error_at(s->error, EXIT_CODE_INPUT, s->name, s->at.line, s->at.column,
		"expected %s, got '%.*s'", expected, bytes > 0 ? bytes : 1, bytes > 0 ? c : "?");
}

static bool in_map(const struct json_stream *s)
{
	return s->depth > 0 && s->is_map[s->depth - 1];
}

static bool tell(struct json_stream *s, enum json_event event)
{
	const char *key = in_map(s) ? text_string(&s->key) : NULL;
	const char *value = event == JSON_SCALAR ? text_string(&s->value) : NULL;

	s->state = AFTER_VALUE;
	return s->event(s->data, event, s->depth, key, value, s->quoted, s->error);
}

static bool open_value(struct json_stream *s, bool map)
{
	if (s->depth == JSON_STREAM_DEEPEST)
		return fail_at(s, s->at, "nested too deeply, expected at most 64 levels");
	if (!tell(s, map ? JSON_MAP : JSON_LIST))
		return false;
	s->is_map[s->depth++] = map;
	s->state = BEFORE_FIRST;
	return true;
}

static bool close_value(struct json_stream *s)
{
	s->depth--;
	s->state = AFTER_VALUE;
	return s->event(s->data, JSON_END, s->depth, NULL, NULL, false, s->error);
}

static bool begin_string(struct json_stream *s, bool key)
{
	s->in_key = key;
	*(key ? &s->key_at : &s->value_at) = s->at;
	s->quoted = true;
	s->surrogate = 0;
	text_clear(key ? &s->key : &s->value);
	s->state = IN_STRING;
	return true;
}

static bool add(struct json_stream *s, char c)
{
	struct text *text = s->in_key ? &s->key : &s->value;

	if (s->longest > 0 && text->length >= s->longest)
		return fail_at(s, s->at, "a string of more than 1 MiB");
	text_add_char(text, c);
	return true;
}

static bool is_word_character(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c != '\0' && strchr("+-._", c) != NULL);
}

static bool begin_value(struct json_stream *s, const char *c)
{
	s->value_at = s->at;
	if (c != NULL && (*c == '{' || *c == '['))
		return open_value(s, *c == '{');
	if (c != NULL && *c == '"')
		return begin_string(s, false);
	if (c == NULL || !is_word_character(*c))
		return unexpected(s, c,
			s->depth == 0 && c != NULL ? "JSON (this begins like another format)"
						   : "a JSON value");
	s->quoted = s->in_key = false;
	text_clear(&s->value);
	s->state = IN_WORD;
	return add(s, *c);
}

/* Python writes NaN and Infinity into JSON; in a foreign file they pass as long as nothing reads
 * them as numbers. */
static bool is_word(const struct json_stream *s, const char *word)
{
	static const char *const words[] = {
		"true", "false", "null", "NaN", "Infinity", "-Infinity"};

	for (int i = 0; i < (s->foreign ? 6 : 3); i++) {
		if (strcmp(word, words[i]) == 0)
			return true;
	}
	return false;
}

/* The whole document is a word, or begins with one. */
static bool not_json(struct json_stream *s, const char *word)
{
	return error_at(s->error, EXIT_CODE_INPUT, s->name, s->value_at.line, s->value_at.column,
		"this is no JSON, expected { or [, got %.40s; is it YAML?", word);
}

static bool end_word(struct json_stream *s)
{
	const char *word = text_string(&s->value);

	if (!is_json_number(word) && !is_word(s, word))
		return s->depth == 0 ? not_json(s, word)
				     : error_at(s->error, EXIT_CODE_INPUT, s->name,
					       s->value_at.line, s->value_at.column,
					       "expected a JSON value, got %.40s; text needs "
					       "double quotes",
					       word);
	return tell(s, JSON_SCALAR);
}

static bool add_point(struct json_stream *s, unsigned point)
{
	if (point < 0x80)
		return add(s, (char)point);
	int shift = point < 0x800 ? 6 : point < 0x10000 ? 12 : 18;
	bool ok = add(s, (char)(0xf00u >> (shift / 6 + 1) | point >> shift));
	for (shift -= 6; ok && shift >= 0; shift -= 6)
		ok = add(s, (char)(0x80 | (point >> shift & 0x3f)));
	return ok;
}

/* After the four digits behind "\u": a character of its own, or half a pair. */
static bool end_unicode(struct json_stream *s)
{
	unsigned high = s->surrogate, point = s->escape;
	bool is_low = point >= 0xdc00 && point <= 0xdfff;
	struct json_place behind = {s->at.line, s->at.column + 1};

	s->surrogate = 0;
	s->state = IN_STRING;
	if ((high != 0) != is_low)
		return fail_at(s, behind, half_a_pair);
	if (point == 0)
		return fail_at(s, behind, "expected text, got a NUL character");
	if (point >= 0xd800 && point <= 0xdbff) {
		s->surrogate = point;
		return true;
	}
	return add_point(s, is_low ? 0x10000 + ((high - 0xd800) << 10) + (point - 0xdc00) : point);
}

static bool in_escape(struct json_stream *s, const char *c)
{
	static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
	const char *letter = c != NULL && *c != '\0' ? strchr(letters, *c) : NULL;

	if (c != NULL && *c == 'u') {
		s->escape = 0;
		s->escape_digits = 0;
		s->state = IN_UNICODE;
		return true;
	}
	if (s->surrogate != 0)
		return fail_at(s, (struct json_place){s->at.line, s->at.column - 1}, half_a_pair);
	if (letter == NULL)
		return unexpected(s, c, "one of \" \\ / b f n r t u after \\");
	s->state = IN_STRING;
	return add(s, meanings[letter - letters]);
}

static bool in_unicode(struct json_stream *s, const char *c)
{
	static const char digits[] = "0123456789abcdef";
	const char lower = c == NULL ? '\0' : *c >= 'A' && *c <= 'F' ? (char)(*c + 32) : *c;
	const char *digit = lower != '\0' ? strchr(digits, lower) : NULL;

	if (digit == NULL)
		return unexpected(s, c, "four hexadecimal digits after \\u");
	s->escape = s->escape << 4 | (unsigned)(digit - digits);
	return ++s->escape_digits < 4 || end_unicode(s);
}

static bool in_string(struct json_stream *s, const char *c)
{
	if (c != NULL && *c == '\\') {
		s->state = IN_ESCAPE;
		return true;
	}
	if (s->surrogate != 0)
		return fail_at(s, s->at, half_a_pair);
	if (c == NULL)
		return fail_at(
			s, s->in_key ? s->key_at : s->value_at, "string without a closing quote");
	if (*c == '"') {
		s->state = BEFORE_COLON;
		return s->in_key || tell(s, JSON_SCALAR);
	}
	if ((unsigned char)*c < ' ')
		return fail_at(s, s->at,
			"control character in a string, write it as an escape such as \\n or close "
			"the quote");
	return add(s, *c);
}

static bool after_value(struct json_stream *s, const char *c)
{
	bool map = in_map(s);

	if (s->depth == 0)
		return c == NULL || unexpected(s, c, "the end of the text");
	if (c != NULL && *c == ',') {
		s->state = BEFORE_NEXT;
		return true;
	}
	if (c != NULL && *c == (map ? '}' : ']'))
		return close_value(s);
	return unexpected(s, c, map ? "',' or '}'" : "',' or ']'");
}

/* A key or a value, or (where nothing stands before it) the end of the map or list. */
static bool before_next(struct json_stream *s, const char *c, bool first)
{
	bool map = in_map(s);

	if (c != NULL && *c == (map ? '}' : ']'))
		return first ? close_value(s)
			     : error_at(s->error, EXIT_CODE_INPUT, s->name, s->at.line,
				       s->at.column,
				       "expected another %s after ',', got '%c'; remove the comma",
				       map ? "key" : "value", *c);
	if (!map)
		return begin_value(s, c);
	if (c == NULL || *c != '"')
		return unexpected(s, c, "a key in double quotes");
	return begin_string(s, true);
}

static bool before_colon(struct json_stream *s, const char *c)
{
	if (c == NULL || *c != ':')
		return unexpected(s, c, "':' after the key");
	s->state = BEFORE_VALUE;
	return true;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* The next character; NULL is the end of the text. */
static bool feed(struct json_stream *s, const char *c)
{
	if (s->state == IN_WORD) {
		if (c != NULL && is_word_character(*c))
			return add(s, *c);
		if (!end_word(s))
			return false;
	}
	if (s->state < IN_STRING && c != NULL && is_blank(*c))
		return true;
	switch ((enum state)s->state) {
	case BEFORE_VALUE:
		return begin_value(s, c);
	case BEFORE_FIRST:
	case BEFORE_NEXT:
		return before_next(s, c, s->state == BEFORE_FIRST);
	case BEFORE_COLON:
		return before_colon(s, c);
	case IN_STRING:
		return in_string(s, c);
	case IN_ESCAPE:
		return in_escape(s, c);
	case IN_UNICODE:
		return in_unicode(s, c);
	case AFTER_VALUE:
	case IN_WORD:
		break;
	}
	return after_value(s, c);
}

bool json_stream_feed(
	struct json_stream *stream, const char *bytes, size_t length, struct error *error)
{
	stream->error = error;
	for (size_t i = 0; i < length; i++) {
		stream->left = length - i;
		if (!feed(stream, &bytes[i]))
			return false;
		if (bytes[i] == '\n')
			stream->at = (struct json_place){stream->at.line + 1, 1};
		else if (i + 1 == length || ((unsigned char)bytes[i + 1] & 0xc0) != 0x80)
			stream->at.column++;
	}
	return true;
}

bool json_stream_end(struct json_stream *stream, struct error *error)
{
	stream->error = error;
	return feed(stream, NULL);
}
