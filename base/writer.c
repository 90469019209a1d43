#include "base/writer.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"
#include "base/units.h"

static void add_escape(struct text *text, uint32_t point)
{
	switch (point) {
	case '"':
		text_add(text, "\\\"");
		break;
	case '\\':
		text_add(text, "\\\\");
		break;
	case '\n':
		text_add(text, "\\n");
		break;
	case '\r':
		text_add(text, "\\r");
		break;
	case '\t':
		text_add(text, "\\t");
		break;
	default:
		text_printf(text, "\\u%04x", (unsigned)point);
		break;
	}
}

/* U+007F..U+009F and U+FEFF are legal in JSON but not in YAML or not visible. */
static bool needs_escape(uint32_t point, bool html)
{
	if (point < 0x20 || point == '"' || point == '\\')
		return true;
	if ((point >= 0x7f && point < 0xa0) || point == 0x2028 || point == 0x2029 ||
		point == 0xfeff || point == 0xfffe || point == 0xffff)
		return true;
	return html && (point == '<' || point == '>' || point == '&');
}

static void add_quoted(struct text *text, const char *string, bool html)
{
	size_t left = strlen(string);

	text_add_char(text, '"');
	while (left > 0) {
		uint32_t point;
		int length = utf8_decode(string, left, &point);
		if (length == 0)
			text_add(text, "\xef\xbf\xbd"); /* U+FFFD stands for a broken byte */
		else if (needs_escape(point, html))
			add_escape(text, point);
		else
			text_add_bytes(text, string, (size_t)length);
		string += length > 0 ? length : 1;
		left -= (size_t)(length > 0 ? length : 1);
	}
	text_add_char(text, '"');
}

void json_escape(struct text *text, const char *string)
{
	add_quoted(text, string, true);
}

/* Words that YAML 1.2 or, for readers of old, YAML 1.1 takes for something else than a string. */
static bool is_reserved(const char *string)
{
	static const char *const words[] = {
		"null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"};

	for (int i = 0; i < COUNT_OF(words); i++) {
		if (strcasecmp(string, words[i]) == 0)
			return true;
	}
	return false;
}

/* True only for text that every YAML reader takes for a plain string; quoting more is harmless.
 * With a digit in front there must be a letter that no notation of a number or date uses. */
static bool is_plain(const char *string)
{
	size_t length = strlen(string);
	bool letter = false;

	if (!isalnum((unsigned char)string[0]) && string[0] != '/' && string[0] != '_')
		return false;
	if (is_reserved(string))
		return false;
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)string[i];
		bool last = i + 1 == length;
		if (c == ' ' && (last || string[i + 1] == ' '))
			return false;
		if (c == ':' && (last || string[i + 1] == ' ' || isdigit((unsigned char)string[0])))
			return false;
		if (c >= 0x80 || (!isalnum(c) && strchr(" _-./+():", c) == NULL))
			return false;
		letter = letter || (isalpha(c) && strchr("abcdefABCDEFxXoO", c) == NULL);
	}
	return letter || !isdigit((unsigned char)string[0]);
}

void yaml_escape(struct text *text, const char *string)
{
	if (is_plain(string))
		text_add(text, string);
	else
		add_quoted(text, string, false);
}

static bool is_yaml(const struct writer *writer)
{
	return writer->format == WRITER_YAML;
}

static void new_line(struct writer *writer)
{
	if (writer->format == WRITER_JSON_COMPACT)
		return;
	text_add_char(writer->text, '\n');
	text_repeat(writer->text, ' ', 2 * (is_yaml(writer) ? writer->depth : writer->depth + 1));
}

/* Everything up to the value: separator, line, "- " or key. */
static void begin_entry(struct writer *writer, const char *key)
{
	bool first = writer->first[writer->depth];

	assert(writer->list[writer->depth] == (key == NULL));
	if (!is_yaml(writer) && !first)
		text_add_char(writer->text, ',');
	/* The first key of a map in a list stands on the line of its dash, and a document needs no
	 * line in front. */
	bool here = writer->pending_dash ||
		    (is_yaml(writer) && writer->depth == 0 && first && !writer->after_comment);
	if (!here)
		new_line(writer);
	writer->first[writer->depth] = false;
	writer->pending_dash = false;
	writer->after_comment = false;
	if (key == NULL) {
		text_add(writer->text, is_yaml(writer) ? "-" : "");
		return;
	}
	if (is_yaml(writer))
		yaml_escape(writer->text, key);
	else
		json_escape(writer->text, key);
	text_add_char(writer->text, ':');
}

/* The blank between what begin_entry left and a value on the same line. */
static void begin_value(struct writer *writer, const char *key)
{
	begin_entry(writer, key);
	bool blank = is_yaml(writer) || (key != NULL && writer->format == WRITER_JSON);
	text_add(writer->text, blank ? " " : "");
}

static void push(struct writer *writer, bool list)
{
	writer->depth++;
	assert(writer->depth < COUNT_OF(writer->first));
	writer->first[writer->depth] = true;
	writer->list[writer->depth] = list;
}

static void begin(struct writer *writer, const char *key, bool list)
{
	if (is_yaml(writer)) {
		begin_entry(writer, key);
		/* In a list the nested entries start right after the dash. */
		if (key == NULL)
			text_add_char(writer->text, ' ');
		writer->pending_dash = key == NULL;
	} else {
		begin_value(writer, key);
		text_add_char(writer->text, list ? '[' : '{');
	}
	push(writer, list);
}

/* An empty YAML collection has to be spelled out, or it would read as null. */
static void end_yaml(struct writer *writer, bool list)
{
	if (!writer->first[writer->depth])
		return;
	if (writer->after_comment)
		new_line(writer);
	else if (!writer->pending_dash && writer->depth > 0)
		text_add_char(writer->text, ' ');
	writer->pending_dash = false;
	writer->after_comment = false;
	text_add(writer->text, list ? "[]" : "{}");
}

static void end(struct writer *writer, bool list)
{
	bool empty = writer->first[writer->depth];

	assert(writer->list[writer->depth] == list);
	if (is_yaml(writer))
		end_yaml(writer, list);
	writer->depth--;
	if (is_yaml(writer))
		return;
	if (!empty)
		new_line(writer);
	text_add_char(writer->text, list ? ']' : '}');
}

void writer_init(struct writer *writer, struct text *text, enum writer_format format)
{
	*writer = (struct writer){.text = text, .format = format};
	writer->first[0] = true;
	if (!is_yaml(writer))
		text_add_char(text, '{');
}

void writer_finish(struct writer *writer)
{
	assert(writer->depth == 0);
	end(writer, false);
	text_add_char(writer->text, '\n');
}

void writer_begin_map(struct writer *writer, const char *key)
{
	begin(writer, key, false);
}

void writer_end_map(struct writer *writer)
{
	assert(writer->depth > 0);
	end(writer, false);
}

void writer_begin_list(struct writer *writer, const char *key)
{
	begin(writer, key, true);
}

void writer_end_list(struct writer *writer)
{
	end(writer, true);
}

void writer_string(struct writer *writer, const char *key, const char *value)
{
	begin_value(writer, key);
	if (value == NULL)
		text_add(writer->text, "null");
	else if (is_yaml(writer))
		yaml_escape(writer->text, value);
	else
		json_escape(writer->text, value);
}

void writer_int(struct writer *writer, const char *key, int64_t value)
{
	begin_value(writer, key);
	text_int(writer->text, value);
}

/* Readers of YAML 1.1 (PyYAML) take "1e-05" for a string and "1.0e-05" for a number. */
static void add_yaml_number(struct text *text, double value)
{
	size_t start = text->length;
	struct text number = {0};

	text_number(&number, value);
	const char *string = text_string(&number);
	const char *exponent = strchr(string, 'e');
	if (exponent == NULL || strchr(string, '.') != NULL)
		text_add(text, string);
	else
		text_printf(text, "%.*s.0%s", (int)(exponent - string), string, exponent);
	text_finish(&number);
	assert(text->length > start);
}

void writer_number(struct writer *writer, const char *key, double value)
{
	begin_value(writer, key);
	if (!isfinite(value))
		text_add(writer->text, "null");
	else if (is_yaml(writer))
		add_yaml_number(writer->text, value);
	else
		text_number(writer->text, value);
}

void writer_bool(struct writer *writer, const char *key, bool value)
{
	begin_value(writer, key);
	text_add(writer->text, value ? "true" : "false");
}

void writer_quantity(struct writer *writer, const char *key, int kind, double value)
{
	if (!is_yaml(writer) || !isfinite(value)) {
		writer_number(writer, key, value);
		return;
	}
	begin_value(writer, key);
	unit_print(writer->text, (enum unit_kind)kind, value);
}

void writer_bytes(struct writer *writer, const char *key, int64_t bytes)
{
	begin_value(writer, key);
	if (is_yaml(writer))
		unit_print_bytes(writer->text, bytes);
	else
		text_int(writer->text, bytes);
}

void writer_comment(struct writer *writer, const char *comment)
{
	if (!is_yaml(writer))
		return;
	do {
		size_t length = strcspn(comment, "\n");
		bool here = writer->pending_dash ||
			    (writer->depth == 0 && writer->first[0] && !writer->after_comment);
		if (!here)
			new_line(writer);
		text_add(writer->text, length > 0 ? "# " : "#");
		text_add_bytes(writer->text, comment, length);
		writer->pending_dash = false;
		writer->after_comment = true;
		comment += length;
	} while (*comment++ == '\n');
}
