/* "word>value" separated by blanks: a framework's word and ours. "word" alone is both, '*' at its
 * end is any rest. */
#ifndef FRAMEWORKS_COMMON_WORDS_H
#define FRAMEWORKS_COMMON_WORDS_H

#include "base/base.h"

struct word {
	const char *left, *right;
	size_t left_length, right_length;
	bool rest; /* the left side ends with '*', which does not count */
};

/* Takes the word at `*at`, and moves on; false at the end, and for NULL. */
bool word_next(const char **at, struct word *word);
bool word_matches(const struct word *word, const char *text, bool exact_case);
/* The first that matches, in its case; false: none. */
bool word_find(const char *words, const char *text, struct word *word);
char *word_left(struct arena *arena, const struct word *word);
/* The replacement of a text that matches: the right side, or the text itself after a '*'. */
const char *word_right(struct arena *arena, const struct word *word, const char *text);

#endif
