#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

void text_finish(struct text *text)
{
	free(text->data);
	*text = (struct text){0};
}

void text_clear(struct text *text)
{
	text->length = 0;
	if (text->data != NULL)
		text->data[0] = '\0';
}

const char *text_string(const struct text *text)
{
	return text->data != NULL ? text->data : "";
}

void text_reserve(struct text *text, size_t more)
{
	size_t needed;

	if (__builtin_add_overflow(text->length, more, &needed) || needed > SIZE_MAX / 2 - 64)
		base_out_of_memory(SIZE_MAX);
	if (needed < text->capacity)
		return;
	size_t capacity = text->capacity < 64 ? 64 : text->capacity * 2;
	if (capacity <= needed)
		capacity = needed + 1;
	char *data = realloc(text->data, capacity);
	if (data == NULL)
		base_out_of_memory(capacity);
	text->data = data;
	text->capacity = capacity;
}

/* Most of what is printed fits into a short buffer, so that it is formatted once. */
void text_vprintf(struct text *text, const char *format, va_list args)
{
	char buffer[256];
	va_list again;

	va_copy(again, args);
	int length = vsnprintf(buffer, sizeof(buffer), format, args);
	if (length < 0)
		base_out_of_memory(SIZE_MAX); /* longer than INT_MAX */
	if ((size_t)length < sizeof(buffer)) {
		text_add_bytes(text, buffer, (size_t)length);
	} else {
		text_reserve(text, (size_t)length);
		vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
		text->length += (size_t)length;
	}
	va_end(again);
}

void text_printf(struct text *text, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	text_vprintf(text, format, args);
	va_end(args);
}

void text_repeat(struct text *text, char c, int count)
{
	if (count <= 0)
		return;
	text_reserve(text, (size_t)count);
	memset(text->data + text->length, c, (size_t)count);
	text->length += (size_t)count;
	text->data[text->length] = '\0';
}

/* 17 significant digits always suffice for a double, 15 always survive; most numbers that people
 * write have a form of 15 digits. */
void text_number(struct text *text, double value)
{
	char buffer[32];

	if (!isfinite(value)) {
		text_add(text, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(buffer, sizeof(buffer), "%.*g", digits, value);
		if (strtod(buffer, NULL) == value)
			break;
	}
	text_add(text, buffer);
}

static const char two_digits[] =
	"00010203040506070809101112131415161718192021222324252627282930313233"
	"34353637383940414243444546474849505152535455565758596061626364656667"
	"6869707172737475767778798081828384858687888990919293949596979899";

void text_int(struct text *text, int64_t value)
{
	char digits[24], *end = digits + sizeof(digits), *first = end;
	uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

	for (; rest >= 100; rest /= 100)
		memcpy(first -= 2, two_digits + 2 * (rest % 100), 2);
	if (rest >= 10)
		memcpy(first -= 2, two_digits + 2 * rest, 2);
	else
		*--first = (char)('0' + rest);
	if (value < 0)
		*--first = '-';
	text_add_bytes(text, first, (size_t)(end - first));
}

static const char *skip_digits(const char *string)
{
	while (isdigit((unsigned char)*string))
		string++;
	return string;
}

/* [+-] digits [. digits] [e [+-] digits], with a digit on at least one side of the point. strtod
 * alone would take "0x1p3", "inf" and leading blanks too. */
static bool is_decimal(const char *string)
{
	const char *start = string + (*string == '+' || *string == '-');
	const char *end = skip_digits(start);
	int digits = (int)(end - start);

	if (*end == '.') {
		start = end + 1;
		end = skip_digits(start);
		digits += (int)(end - start);
	}
	if (digits == 0)
		return false;
	if (*end == 'e' || *end == 'E') {
		start = end + 1;
		start += *start == '+' || *start == '-';
		end = skip_digits(start);
		if (end == start)
			return false;
	}
	return *end == '\0';
}

bool is_json_number(const char *string)
{
	const char *start = string + (*string == '-'), *end = skip_digits(start);

	/* A decimal with digits on both sides of its point and no zero in front of others. */
	return end > start && (*start != '0' || end == start + 1) &&
	       (*end != '.' || isdigit((unsigned char)end[1])) && is_decimal(string);
}

bool parse_number(const char *string, double *value)
{
	if (!is_decimal(string))
		return false;
	double result = strtod(string, NULL);
	if (!isfinite(result))
		return false;
	*value = result;
	return true;
}

bool parse_int(const char *string, int64_t *value)
{
	bool negative = *string == '-';
	int64_t result = 0;

	string += *string == '+' || *string == '-';
	if (*string == '\0')
		return false;
	/* Collected as a negative number, because INT64_MIN has no positive twin. */
	for (; *string != '\0'; string++) {
		if (!isdigit((unsigned char)*string) ||
			__builtin_mul_overflow(result, 10, &result) ||
			__builtin_sub_overflow(result, *string - '0', &result))
			return false;
	}
	if (!negative && __builtin_sub_overflow((int64_t)0, result, &result))
		return false;
	*value = result;
	return true;
}

int utf8_decode(const char *string, size_t length, uint32_t *point)
{
	static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)string;

	if (length == 0)
		return 0;
	int bytes = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	*point = s[0];
	if (bytes <= 1)
		return bytes;
	if ((size_t)bytes > length)
		return 0;
	*point &= 0x7fu >> bytes;
	for (int i = 1; i < bytes; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*point = *point << 6 | (s[i] & 0x3f);
	}
	bool surrogate = *point >= 0xd800 && *point <= 0xdfff;
	bool valid = *point >= smallest[bytes] && *point <= 0x10ffff && !surrogate;
	return valid ? bytes : 0;
}
