/* Breaks sentences at blanks for a terminal, behind a label. */
#include <string.h>

#include "reports/text/screen.h"

/* The columns of a word: bytes that continue a UTF-8 character take none. */
static int columns_of(const char *word, size_t length)
{
	int columns = 0;

	for (size_t i = 0; i < length; i++)
		columns += ((unsigned char)word[i] & 0xc0) != 0x80;
	return columns;
}

int put_line(const char *label, int indent, const char *sentence, int width, struct text *text)
{
	int column = columns_of(label, strlen(label)), lines = 1;
	bool fresh = true; /* no word of the sentence is on the line yet */

	text_add(text, label);
	text_repeat(text, ' ', indent - column);
	column = column > indent ? column : indent;
	while (*sentence != '\0') {
		size_t length = strcspn(sentence, " ");
		int columns = columns_of(sentence, length);
		if (!fresh && width > 0 && column + 1 + columns > width) {
			text_add_char(text, '\n');
			text_repeat(text, ' ', indent);
			column = indent;
			fresh = true;
			lines++;
		}
		text_add(text, fresh ? "" : " ");
		text_add_bytes(text, sentence, length);
		column += columns + !fresh;
		fresh = false;
		sentence += length;
		sentence += strspn(sentence, " ");
	}
	text_add_char(text, '\n');
	return lines;
}

void put_lines(const char *lines, int indent, const struct style *style, struct text *text)
{
	int width =
		style->width > 0 && style->width < SCREEN_COLUMNS ? style->width : SCREEN_COLUMNS;
	struct arena scratch = {0};

	while (*lines != '\0') {
		size_t length = strcspn(lines, "\n"), label = (size_t)indent;

		label = label < length ? label : length;
		if (length == 0)
			text_add_char(text, '\n');
		else
			put_line(arena_strndup(&scratch, lines, label), indent,
				arena_strndup(&scratch, lines + label, length - label), width,
				text);
		lines += length + (lines[length] == '\n');
	}
	arena_finish(&scratch);
}

/* The length up to the next comma or semicolon that is followed by a blank and not in
 * parentheses. */
static size_t clause_length(const char *sentence)
{
	size_t length = 0;
	int depth = 0;

	for (; sentence[length] != '\0'; length++) {
		depth += (sentence[length] == '(') - (sentence[length] == ')');
		if (depth == 0 && strchr(",;", sentence[length]) != NULL &&
			sentence[length + 1] == ' ')
			break;
	}
	return length;
}

void add_clauses(const char *sentence, int columns, struct text *text)
{
	size_t taken = clause_length(sentence);

	while (sentence[taken] != '\0') {
		size_t next = taken + 1 + clause_length(sentence + taken + 1);
		if (columns_of(sentence, next) > columns)
			break;
		taken = next;
	}
	text_add_bytes(text, sentence, taken);
}
