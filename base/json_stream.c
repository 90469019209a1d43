#include "base/json_stream.h"

#include <string.h>

enum state {
	BEFORE_VALUE,
	BEFORE_FIRST, /* of a map or list: a value or key, or its end */
	BEFORE_KEY,
	BEFORE_COLON,
	AFTER_VALUE,
	IN_STRING,
	IN_ESCAPE,
	IN_UNICODE,
	IN_LITERAL,
	DONE
};

enum { LONGEST = 1 << 20 };

void json_stream_init(
	struct json_stream *stream, const char *name, json_event_fn *event, void *data)
{
	*stream = (struct json_stream){.name = name,
		.event = event,
		.data = data,
		.state = BEFORE_VALUE,
		.line = 1,
		.empty = true};
}

void json_stream_finish(struct json_stream *stream)
{
	text_finish(&stream->key);
	text_finish(&stream->value);
}

static bool fail(struct json_stream *s, struct error *error, const char *what)
{
	return error_at(error, EXIT_CODE_INPUT, s->name, s->line, s->column, "%s", what);
}

static bool expected(struct json_stream *s, char c, struct error *error, const char *what)
{
	return error_at(error, EXIT_CODE_INPUT, s->name, s->line, s->column,
		"expected %s, got '%c'", what, c >= ' ' && c < 127 ? c : '?');
}

static bool in_map(const struct json_stream *s)
{
	return s->depth > 0 && s->is_map[s->depth - 1];
}

static bool tell(struct json_stream *s, enum json_event event, struct error *error)
{
	const char *key = in_map(s) ? text_string(&s->key) : NULL;
	const char *value = event == JSON_SCALAR ? text_string(&s->value) : NULL;

	return s->event(s->data, event, s->depth, key, value, s->quoted, error);
}

static void value_is_over(struct json_stream *s)
{
	s->state = s->depth > 0 ? AFTER_VALUE : DONE;
}

static bool open_value(struct json_stream *s, bool map, struct error *error)
{
	if (s->depth == JSON_STREAM_DEEPEST)
		return fail(s, error, "nested more than 64 deep");
	if (!tell(s, map ? JSON_MAP : JSON_LIST, error))
		return false;
	s->is_map[s->depth++] = map;
	s->state = BEFORE_FIRST;
	return true;
}

static bool close_value(struct json_stream *s, char c, struct error *error)
{
	if (s->depth == 0 || (c == '}') != in_map(s))
		return expected(s, c, error, "the end of what was opened");
	s->depth--;
	text_clear(&s->key);
	if (!s->event(s->data, JSON_END, s->depth, NULL, NULL, false, error))
		return false;
	value_is_over(s);
	return true;
}

static void begin_string(struct json_stream *s, bool key)
{
	s->in_key = key;
	s->quoted = true;
	text_clear(key ? &s->key : &s->value);
	s->state = IN_STRING;
}

static bool begin_value(struct json_stream *s, char c, struct error *error)
{
	if (c == '{' || c == '[')
		return open_value(s, c == '{', error);
	if (c == '"') {
		begin_string(s, false);
		return true;
	}
	if (c == '-' || (c >= '0' && c <= '9') || c == 't' || c == 'f' || c == 'n') {
		s->quoted = false;
		text_clear(&s->value);
		text_add_char(&s->value, c);
		s->state = IN_LITERAL;
		return true;
	}
	return expected(s, c, error, "a value");
}

static bool end_literal(struct json_stream *s, struct error *error)
{
	static const char *const words[] = {"true", "false", "null"};
	const char *value = text_string(&s->value);
	bool known = is_json_number(value);

	for (int i = 0; i < 3; i++)
		known = known || strcmp(value, words[i]) == 0;
	if (!known)
		return fail(s, error, "expected a number, true, false or null");
	if (!tell(s, JSON_SCALAR, error))
		return false;
	value_is_over(s);
	return true;
}

static bool end_string(struct json_stream *s, struct error *error)
{
	if (s->in_key) {
		s->state = BEFORE_COLON;
		return true;
	}
	if (!tell(s, JSON_SCALAR, error))
		return false;
	value_is_over(s);
	return true;
}

static bool add(struct json_stream *s, char c, struct error *error)
{
	struct text *text = s->in_key ? &s->key : &s->value;

	if (text->length >= LONGEST)
		return fail(s, error, "a string of more than 1 MiB");
	text_add_char(text, c);
	return true;
}

static bool add_point(struct json_stream *s, unsigned point, struct error *error)
{
	if (point < 0x80)
		return add(s, (char)(point != 0 ? point : '?'), error);
	if (point < 0x800)
		return add(s, (char)(0xc0 | point >> 6), error) &&
		       add(s, (char)(0x80 | (point & 63)), error);
	if (point < 0x10000)
		return add(s, (char)(0xe0 | point >> 12), error) &&
		       add(s, (char)(0x80 | (point >> 6 & 63)), error) &&
		       add(s, (char)(0x80 | (point & 63)), error);
	return add(s, (char)(0xf0 | point >> 18), error) &&
	       add(s, (char)(0x80 | (point >> 12 & 63)), error) &&
	       add(s, (char)(0x80 | (point >> 6 & 63)), error) &&
	       add(s, (char)(0x80 | (point & 63)), error);
}

static bool end_unicode(struct json_stream *s, struct error *error)
{
	unsigned high = s->surrogate, point = s->escape;

	s->surrogate = 0;
	s->state = IN_STRING;
	if (point >= 0xd800 && point < 0xdc00) {
		s->surrogate = point;
		return true;
	}
	if (point >= 0xdc00 && point < 0xe000)
		point = high != 0 ? 0x10000 + ((high - 0xd800) << 10) + (point - 0xdc00) : 0xfffd;
	return add_point(s, point, error);
}

static bool in_escape(struct json_stream *s, char c, struct error *error)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at = strchr(from, c);

	if (c == 'u') {
		s->escape = 0;
		s->escape_digits = 0;
		s->state = IN_UNICODE;
		return true;
	}
	if (at == NULL || c == '\0')
		return expected(s, c, error, "an escape");
	s->state = IN_STRING;
	return add(s, to[at - from], error);
}

static bool in_unicode(struct json_stream *s, char c, struct error *error)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c != '\0' ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;

	if (at == NULL)
		return expected(s, c, error, "a hexadecimal digit");
	s->escape = s->escape << 4 | (unsigned)(at - digits);
	return ++s->escape_digits < 4 || end_unicode(s, error);
}

static bool in_string(struct json_stream *s, char c, struct error *error)
{
	if (c == '"')
		return end_string(s, error);
	if (c == '\\') {
		s->state = IN_ESCAPE;
		return true;
	}
	if ((unsigned char)c < ' ')
		return fail(s, error, "a control character in a string");
	return add(s, c, error);
}

static bool after_value(struct json_stream *s, char c, struct error *error)
{
	if (c == ',') {
		s->state = in_map(s) ? BEFORE_KEY : BEFORE_VALUE;
		return true;
	}
	if (c == '}' || c == ']')
		return close_value(s, c, error);
	return expected(s, c, error, "',' or the end of the map or list");
}

static bool between(struct json_stream *s, char c, struct error *error)
{
	switch ((enum state)s->state) {
	case BEFORE_VALUE:
		return begin_value(s, c, error);
	case BEFORE_FIRST:
		if (c == '}' || c == ']')
			return close_value(s, c, error);
		if (!in_map(s))
			return begin_value(s, c, error);
		/* fall through */
	case BEFORE_KEY:
		if (c != '"')
			return expected(s, c, error, "a key");
		begin_string(s, true);
		return true;
	case BEFORE_COLON:
		if (c != ':')
			return expected(s, c, error, "':'");
		s->state = BEFORE_VALUE;
		return true;
	case AFTER_VALUE:
		return after_value(s, c, error);
	case IN_STRING:
	case IN_ESCAPE:
	case IN_UNICODE:
	case IN_LITERAL:
	case DONE:
		break;
	}
	return expected(s, c, error, "the end of the text");
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool feed(struct json_stream *s, char c, struct error *error)
{
	if (s->state == IN_STRING)
		return in_string(s, c, error);
	if (s->state == IN_ESCAPE)
		return in_escape(s, c, error);
	if (s->state == IN_UNICODE)
		return in_unicode(s, c, error);
	if (s->state == IN_LITERAL) {
		if (!is_blank(c) && c != ',' && c != '}' && c != ']')
			return s->value.length < 64 ? (text_add_char(&s->value, c), true)
						    : fail(s, error, "a number too long");
		if (!end_literal(s, error))
			return false;
	}
	if (is_blank(c))
		return true;
	s->empty = false;
	return between(s, c, error);
}

bool json_stream_feed(
	struct json_stream *stream, const char *bytes, size_t length, struct error *error)
{
	for (size_t i = 0; i < length; i++) {
		stream->column++;
		if (!feed(stream, bytes[i], error))
			return false;
		if (bytes[i] == '\n') {
			stream->line++;
			stream->column = 0;
		}
	}
	return true;
}

bool json_stream_end(struct json_stream *stream, struct error *error)
{
	if (stream->state == IN_LITERAL && stream->depth == 0 && !end_literal(stream, error))
		return false;
	if (stream->state == DONE)
		return true;
	return fail(stream, error,
		stream->empty ? "expected JSON, the text is empty"
			      : "the text ends in the middle of the document");
}
