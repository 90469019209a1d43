#include "base/content.h"

#include <string.h>
#include <strings.h>

#include "base/checked.h"

/* People give a file of another kind when a name was completed wrongly, or a download went wrong.
 * A parser would name its first byte or a rule of YAML, which says nothing of the mistake. */
static const struct kind {
	const char *begins;
	const char *name;
} kinds[] = {
	{"<!doctype html", "an HTML page"},
	{"<html", "an HTML page"},
	{"<svg", "an SVG picture"},
	{"<?xml", "XML"},
	{"%PDF", "a PDF"},
	{"\x89PNG", "a PNG picture"},
	{"\xff\xd8\xff", "a JPEG picture"},
	{"\x1f\x8b", "a gzip file; unpack it"},
	{"PK\x03\x04", "a zip archive, as .xlsx and .pt files are"},
	{"\x7f\x45LF", "a program"},
};

const char *content_kind(const char *text, size_t length)
{
	for (int i = 0; i < COUNT_OF(kinds); i++) {
		size_t n = strlen(kinds[i].begins);
		if (length >= n && strncasecmp(text, kinds[i].begins, n) == 0)
			return kinds[i].name;
	}
	return NULL;
}
