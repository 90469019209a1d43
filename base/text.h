/* A growing string. All output of the folders below cli is made in one of these. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct text {
	char *data; /* NUL-terminated once anything was added; NULL when empty */
	size_t length;
	size_t capacity;
};

/* A zeroed text is a valid empty one. */
void text_finish(struct text *text);
void text_clear(struct text *text);
/* The C string, "" when empty. Valid until the text changes. */
const char *text_string(const struct text *text);

/* Room for `more` bytes and the NUL. */
void text_reserve(struct text *text, size_t more);

/* Inline, as schedules are printed in pieces of a few bytes. */
static inline void text_add_bytes(struct text *text, const char *bytes, size_t length)
{
	if (length >= text->capacity - text->length)
		text_reserve(text, length);
	if (length > 0)
		memcpy(text->data + text->length, bytes, length);
	text->length += length;
	text->data[text->length] = '\0';
}

static inline void text_add(struct text *text, const char *string)
{
	text_add_bytes(text, string, strlen(string));
}

static inline void text_add_char(struct text *text, char c)
{
	text_add_bytes(text, &c, 1);
}

void text_printf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_vprintf(struct text *text, const char *format, va_list args);
/* `count` copies of c. */
void text_repeat(struct text *text, char c, int count);

/* The shortest decimal that reads back as the same double ("0.1", "1e-05", "123456789");
 * independent of the locale. Non-finite values print as nan, inf, -inf. */
void text_number(struct text *text, double value);
void text_int(struct text *text, int64_t value);

/* Whether the whole string is what JSON calls a number:
 * -?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)? */
bool is_json_number(const char *string);

/* Reads a whole C-locale decimal; false when anything else than the number is there. Accepts no
 * hexadecimal, no "nan" or "inf", no leading or trailing blanks, no overflow. */
bool parse_number(const char *string, double *value);
bool parse_int(const char *string, int64_t *value);

/* The length (1 to 4) of the UTF-8 sequence that starts `string`, whose code point goes to
 * `*point`; 0 when there is none within `length` bytes (overlong forms and surrogates are none). */
int utf8_decode(const char *string, size_t length, uint32_t *point);

#endif
