#include "base/error.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { LONGEST_NAME = 63 };

/* Messages quote input files, so bytes that could break the one-line rule, steer a terminal or are
 * no UTF-8 are replaced. */
static void tidy_message(char *message)
{
	size_t left = strlen(message);

	while (left > 0) {
		uint32_t point;
		int length = utf8_decode(message, left, &point);
		bool harmless = length > 0 && point >= 0x20 && (point < 0x7f || point >= 0xa0);
		length = length > 0 ? length : 1;
		if (!harmless)
			memset(message, '?', (size_t)length);
		message += length;
		left -= (size_t)length;
	}
}

/* At a whole character. */
static void end_in_dots(struct error *error)
{
	size_t length = sizeof(error->message) - 4;

	while (length > 0 && ((unsigned char)error->message[length] & 0xc0) == 0x80)
		length--;
	strcpy(error->message + length, "...");
}

static void append(struct error *error, size_t start, const char *format, va_list args)
{
	size_t room = sizeof(error->message) - start;
	int length = vsnprintf(error->message + start, room, format, args);

	if (length < 0 || (size_t)length >= room)
		end_in_dots(error);
	tidy_message(error->message);
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

/* A word of at most LONGEST_NAME letters, folded. */
struct folded {
	char letters[LONGEST_NAME + 1];
	int length;
};

static struct folded fold_word(const char *word)
{
	struct folded folded;
	int n = 0;

	for (; word[n] != '\0'; n++)
		folded.letters[n] = (char)fold(word[n]);
	folded.length = n;
	return folded;
}

/* Levenshtein distance that also counts a swap of two neighbours as one edit (optimal string
 * alignment). */
static int edit_distance(const struct folded *a, const struct folded *b)
{
	int rows[3][LONGEST_NAME + 1];
	int *before = rows[0], *above = rows[1], *row = rows[2];

	for (int j = 0; j <= b->length; j++)
		above[j] = j;
	for (int i = 1; i <= a->length; i++) {
		const char *in_a = &a->letters[i - 1];
		row[0] = i;
		for (int j = 1; j <= b->length; j++) {
			const char *in_b = &b->letters[j - 1];
			int best = above[j - 1] + (*in_a != *in_b);
			if (above[j] + 1 < best)
				best = above[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			bool swapped = i > 1 && j > 1 && in_a[0] == in_b[-1] && in_a[-1] == in_b[0];
			if (swapped && before[j - 2] + 1 < best)
				best = before[j - 2] + 1;
			row[j] = best;
		}
		int *oldest = before;
		before = above;
		above = row;
		row = oldest;
	}
	return above[b->length];
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
	/* At least 2 edits may differ, but never most letters of a short word. */
	int best = (length / 3 > 2 ? length / 3 : length == 3 ? 1 : 2) + 1;

	if (length > LONGEST_NAME || names == NULL)
		return NULL;
	const char *const *all = names;
	const struct folded folded = fold_word(word);
	if (best > length)
		best = length;
	for (; *names != NULL; names++) {
		/* Every letter too many is an edit. */
		int name_length = (int)strlen(*names);
		if (name_length > LONGEST_NAME || abs(name_length - length) >= best)
			continue;
		const struct folded name = fold_word(*names);
		int distance = edit_distance(&folded, &name);
		if (distance < best) {
			best = distance;
			nearest = *names;
		}
	}
	return nearest != NULL ? nearest : begun_name(word, all);
}
