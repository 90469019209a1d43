#include "base/escape.h"

#include <string.h>

#include "base/checked.h"

/* Text that would act on the reader's screen instead of being shown: controls (C0, C1), line and
 * paragraph separators, direction overrides, invisible marks. */
static bool acts(uint32_t point)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = {{0x00, 0x1f}, {0x7f, 0x9f}, {0x61c, 0x61c}, {0x200b, 0x200f},
		{0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
		{0xe0000, 0xe007f}};

	for (int i = 0; i < COUNT_OF(ranges); i++) {
		if (point >= ranges[i].first && point <= ranges[i].last)
			return true;
	}
	return false;
}

static void add_code(struct text *text, uint32_t point)
{
	text_printf(text, "\\u%04x", (unsigned)point);
}

/* Walks the characters. What acts, is written as its code, a byte that is no UTF-8 as
 * U+FFFD; the rest goes to `add`. */
static void walk(struct text *text, const char *string,
	void (*add)(struct text *text, uint32_t point, const char *bytes, int length))
{
	size_t left = string != NULL ? strlen(string) : 0;

	while (left > 0) {
		uint32_t point;
		int length = utf8_decode(string, left, &point);
		if (length == 0)
			add_code(text, 0xfffd);
		else if (acts(point))
			add_code(text, point);
		else
			add(text, point, string, length);
		string += length > 0 ? length : 1;
		left -= (size_t)(length > 0 ? length : 1);
	}
}

static void add_plain(struct text *text, uint32_t point, const char *bytes, int length)
{
	(void)point;
	text_add_bytes(text, bytes, (size_t)length);
}

static void add_ascii_point(struct text *text, uint32_t point, const char *bytes, int length)
{
	if (point < 0x80)
		text_add_bytes(text, bytes, (size_t)length);
	else
		add_code(text, point);
}

static void add_html_point(struct text *text, uint32_t point, const char *bytes, int length)
{
	if (point < 0x80 && strchr("<>&\"'`", (int)point) != NULL)
		text_printf(text, "&#%u;", (unsigned)point);
	else
		text_add_bytes(text, bytes, (size_t)length);
}

static void add_markdown_point(struct text *text, uint32_t point, const char *bytes, int length)
{
	if (point < 0x80 && strchr("<>&", (int)point) != NULL) {
		text_printf(text, "&#%u;", (unsigned)point);
		return;
	}
	if (point < 0x80 && strchr("\\`*_{}[]()#|~!@", (int)point) != NULL)
		text_add_char(text, '\\');
	text_add_bytes(text, bytes, (size_t)length);
}

void add_terminal(struct text *text, const char *string)
{
	walk(text, string, add_plain);
}

void add_ascii(struct text *text, const char *string)
{
	walk(text, string, add_ascii_point);
}

void add_html(struct text *text, const char *string)
{
	walk(text, string, add_html_point);
}

void add_markdown(struct text *text, const char *string)
{
	walk(text, string, add_markdown_point);
}
