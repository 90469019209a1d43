/* Lines and words of what terminals and job logs hold. */
#include <string.h>

#include "topologies/import/draft.h"

/* "\033[4m": an escape sequence ends with a letter. */
static const char *skip_escape(const char *at, const char *end)
{
	if (at < end && *at == '[') {
		at++;
		while (at < end && !((*at >= 'A' && *at <= 'Z') || (*at >= 'a' && *at <= 'z')))
			at++;
		return at < end ? at + 1 : at;
	}
	return at;
}

/* mpirun --tag-output writes "[1,0]<stdout>:" before each line. */
static void drop_tag(char *line)
{
	char *text = line + strspn(line, " \t");
	char *end = *text == '[' ? strstr(text, ">:") : NULL;

	if (end != NULL && strncmp(text + 1 + strspn(text + 1, "0123456789,"), "]<std", 5) == 0)
		memmove(line, end + 2, strlen(end + 2) + 1);
}

bool lines_next(struct lines *lines, char *buffer, size_t size)
{
	size_t length = 0;

	if (lines->at >= lines->end)
		return false;
	lines->whole = false;
	lines->number++;
	while (lines->at < lines->end) {
		char c = *lines->at++;

		if (c == '\n') {
			lines->whole = true;
			break;
		}
		if (c == '\033')
			lines->at = skip_escape(lines->at, lines->end);
		else if (c != '\r' && c != '\0' && length + 1 < size)
			buffer[length++] = c;
	}
	buffer[length] = '\0';
	drop_tag(buffer);
	return true;
}

int split_words(char *line, char **words, int max)
{
	int n = 0;

	for (char *at = line; n < max;) {
		at += strspn(at, " \t");
		if (*at == '\0')
			break;
		words[n++] = at;
		at += strcspn(at, " \t");
		if (*at != '\0')
			*at++ = '\0';
	}
	return n;
}
