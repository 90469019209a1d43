/* One value for a whole row of things, or runs of values along it: "full", "8xfull+24xnone".
 *
 *     text  = word | run {"+" run}
 *     run   = count "x" word
 *
 * A count is a whole number from 1 up to RUNS_COUNT_MAX; a word is a number, or letters, digits and
 * '-' after a letter. A text is in normal form when no neighbours have the same word and a row of
 * one value is the bare word.
 */
#ifndef BASE_RUNS_H
#define BASE_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

enum { RUNS_COUNT_MAX = 1 << 24 };

struct value_run {
	int64_t count; /* 0: the whole row, however long */
	const char *word;
	int length; /* of the word */
};

/* The run at *cursor, which moves behind it and its '+'. False at the end of the text, and when no
 * run stands there; then the cursor stays. */
bool runs_next(const char **cursor, struct value_run *run);
/* Is the text of this form, with at least one run? */
bool runs_valid(const char *text);
/* Things that the runs count together; 0 for a bare word, which says nothing about their number. */
int64_t runs_total(const char *text);
bool run_is(const struct value_run *run, const char *word);

/* Normal forms, from `arena`: of a row of `n` words; of a valid text, with `from` (may be NULL)
 * replaced by `to`. */
const char *runs_print(struct arena *arena, const char *const *words, int64_t n);
const char *runs_normalise(struct arena *arena, const char *text, const char *from, const char *to);

#endif
