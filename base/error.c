#include "base/error.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { LONGEST_NAME = 63 };

/* Messages quote input files, so bytes that are not UTF-8, or could break the one-line rule or
 * steer a terminal, are replaced, and a message that was cut ends in "..." at a whole character. */
static void tidy_message(struct error *error, bool cut)
{
	char *message = error->message;
	size_t length = strlen(message);
	uint32_t point;

	for (size_t i = 0, bytes; i < length; i += bytes) {
		bytes = (size_t)utf8_decode(message + i, length - i, &point);
		bool shown = bytes > 0 && point >= 0x20 && (point < 0x7f || point >= 0xa0);
		bytes = bytes > 0 ? bytes : 1;
		if (!shown)
			memset(message + i, '?', bytes);
	}
	if (!cut)
		return;
	length = sizeof(error->message) - 4;
	while (length > 0 && ((unsigned char)message[length] & 0xc0) == 0x80)
		length--;
	strcpy(message + length, "...");
}

static void append(struct error *error, size_t start, const char *format, va_list args)
{
	size_t room = sizeof(error->message) - start;
	int length = vsnprintf(error->message + start, room, format, args);

	tidy_message(error, length < 0 || (size_t)length >= room);
}

bool error_set(struct error *error, enum exit_code code, const char *format, ...)
{
	va_list args;

	if (error == NULL || error->code != EXIT_CODE_OK)
		return false;
	error->code = code;
	va_start(args, format);
	append(error, 0, format, args);
	va_end(args);
	return false;
}

bool error_at(struct error *error, enum exit_code code, const char *name, int line, int column,
	const char *format, ...)
{
	va_list args;
	char place[32] = "";

	if (error == NULL || error->code != EXIT_CODE_OK)
		return false;
	error->code = code;
	if (line > 0)
		snprintf(place, sizeof(place), ":%d:%d", line, column);

	/* A very long file name loses its beginning: its end and the message say more. */
	const size_t most = sizeof(error->message) / 3;
	size_t skip = strlen(name) > most ? strlen(name) - most : 0;
	while (((unsigned char)name[skip] & 0xc0) == 0x80)
		skip++;
	int length = snprintf(error->message, sizeof(error->message),
		"%s%s%s: ", skip > 0 ? "..." : "", name + skip, place);
	va_start(args, format);
	append(error, (size_t)length, format, args);
	va_end(args);
	return false;
}

void error_clear(struct error *error)
{
	if (error == NULL)
		return;
	error->code = EXIT_CODE_OK;
	error->message[0] = '\0';
}

/* "seq_len", "seq-len" and "Seq-Len" are the same word to somebody who mistyped it. */
static int fold(char c)
{
	return c == '_' ? '-' : tolower((unsigned char)c);
}

/* Levenshtein distance that also counts a swap of two neighbours as one edit (optimal string
 * alignment). Both words have at most LONGEST_NAME letters. */
static int edit_distance(const char *a, const char *b)
{
	int rows[3][LONGEST_NAME + 1];
	int *before = rows[0], *above = rows[1], *row = rows[2];
	int a_length = (int)strlen(a), b_length = (int)strlen(b);

	for (int j = 0; j <= b_length; j++)
		above[j] = j;
	for (int i = 1; i <= a_length; i++) {
		row[0] = i;
		for (int j = 1; j <= b_length; j++) {
			bool same = fold(a[i - 1]) == fold(b[j - 1]);
			int best = above[j - 1] + !same;
			if (above[j] + 1 < best)
				best = above[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			bool swapped = i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
				       fold(a[i - 2]) == fold(b[j - 1]);
			if (swapped && before[j - 2] + 1 < best)
				best = before[j - 2] + 1;
			row[j] = best;
		}
		int *oldest = before;
		before = above;
		above = row;
		row = oldest;
	}
	return above[b_length];
}

bool same_name(const char *a, const char *b)
{
	while (*a != '\0' && fold(*a) == fold(*b))
		a++, b++;
	return *a == '\0' && *b == '\0';
}

/* "nics" of "nics_per_node": a name that is a whole first word of one other, and of one only. */
static const char *begun_name(const char *word, const char *const *names)
{
	const char *found = NULL;
	size_t length = strlen(word);

	for (; length > 2 && *names != NULL; names++) {
		size_t same = 0;
		while (same < length && fold(word[same]) == fold((*names)[same]))
			same++;
		if (same < length || (*names)[length] == '\0' || fold((*names)[length]) != '-')
			continue;
		if (found != NULL)
			return NULL;
		found = *names;
	}
	return found;
}

const char *nearest_name(const char *word, const char *const *names)
{
	const char *nearest = NULL;
	int length = (int)strlen(word);
	/* At least 2 edits may differ, but never every letter. */
	int best = (length / 3 > 2 ? length / 3 : 2) + 1;

	if (length > LONGEST_NAME || names == NULL)
		return NULL;
	const char *const *all = names;
	if (best > length)
		best = length;
	for (; *names != NULL; names++) {
		if (strlen(*names) > LONGEST_NAME)
			continue;
		int distance = edit_distance(word, *names);
		if (distance < best) {
			best = distance;
			nearest = *names;
		}
	}
	return nearest != NULL ? nearest : begun_name(word, all);
}
