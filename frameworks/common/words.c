#include "frameworks/common/words.h"

#include <string.h>
#include <strings.h>

bool word_next(const char **at, struct word *word)
{
	if (*at == NULL || **at == '\0')
		return false;
	size_t length = strcspn(*at, " "), left = strcspn(*at, ">");
	bool both = left >= length;

	left = both ? length : left;
	word->left = *at;
	word->rest = left > 0 && (*at)[left - 1] == '*';
	word->left_length = left - word->rest;
	word->right = both ? *at : *at + left + 1;
	word->right_length = both ? word->left_length : length - left - 1;
	*at += length + ((*at)[length] == ' ');
	return true;
}

bool word_matches(const struct word *word, const char *text, bool exact_case)
{
	if (!word->rest && strlen(text) != word->left_length)
		return false;
	return (exact_case ? strncmp : strncasecmp)(text, word->left, word->left_length) == 0;
}

bool word_find(const char *words, const char *text, struct word *word)
{
	while (word_next(&words, word)) {
		if (word_matches(word, text, true))
			return true;
	}
	return false;
}

char *word_left(struct arena *arena, const struct word *word)
{
	return arena_strndup(arena, word->left, word->left_length);
}

const char *word_right(struct arena *arena, const struct word *word, const char *text)
{
	return word->rest && word->right == word->left
		       ? text
		       : arena_strndup(arena, word->right, word->right_length);
}
