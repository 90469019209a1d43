/* Readers under damaged inputs: what is tried, how inputs are damaged, and what an answer must be.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include "base/base.h"

/* Inputs to start from, and of the accepted ones some. */
struct seed {
	const char *text; /* a NUL behind its length */
	size_t length;
};

struct seeds {
	struct arena arena;
	const char *root; /* of the source tree, which paths start from */
	int n, capacity;
	struct seed *of;
};

void seeds_add(struct seeds *seeds, const char *text, size_t length);
void seeds_finish(struct seeds *seeds);

/* An input format. */
struct target {
	const char *name;
	/* A NUL stands behind `length`. What was understood goes to `printed` where there is a
	 * writer. */
	bool (*read)(const struct target *target, struct arena *arena, const char *text,
		size_t length, struct text *printed, struct error *error);
	const char *paths;                       /* of seeds, separated by blanks; NULL */
	void (*make_seeds)(struct seeds *seeds); /* besides; NULL */
	const char *words;                       /* of the format, separated by blanks; NULL */
	const char *again; /* the target that reads what is printed; NULL: this one */
};

extern const struct target targets[];
extern const int n_targets;
/* These have one defect each, for the test of the judge. */
extern const struct target planted_targets[];
extern const int n_planted_targets;

/* NULL: none of that name, the planted ones among them. */
const struct target *target_find(const char *name);
/* False: a file of the seeds cannot be read. */
bool target_seeds(const struct target *target, struct seeds *seeds);

/* A name of a file, as messages have it. */
#define INPUT_NAME "input"

/* --- what an answer must be (judge.c) --- */

struct limits {
	double seconds; /* of processor time, of an input */
	long kib;       /* beyond the input */
};

extern const struct limits usual_limits;

enum { MESSAGE_BYTES = 640 }; /* beside the name of the file */

/* Reads the input, and again what is printed of it. NULL, or what is wrong with the answer. */
const char *judge(const struct target *target, const char *text, size_t length,
	const struct limits *limits, bool *accepted);

/* What a reader says besides, a line each: as a message is. EXIT_CODE_INTERNAL, which the judge
 * finds. */
bool judge_lines(const char *lines, struct error *error);

/* --- damage (mutate.c) --- */

uint64_t draw(uint64_t *state, uint64_t below);
/* A seed with one to eight edits; at most `most` bytes longer. */
void mutate(const struct target *target, const struct seeds *seeds, uint64_t *state, size_t most,
	struct text *input);

#endif
