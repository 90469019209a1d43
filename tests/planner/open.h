/* Questions that leave levers open, as the command line asks them. */
#ifndef TESTS_PLANNER_OPEN_H
#define TESTS_PLANNER_OPEN_H

#include "support.h"

struct open {
	struct arena arena;
	struct question question;
};

/* Options are names and values by turns. The caller finishes the arena, which holds everything. */
void open_begin(struct open *open, const char *model, const char *topology, int n,
	const char *const *options);
#define BEGIN(open, model, topology, ...)                                                          \
	open_begin(open, model, topology,                                                          \
		(int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)),                \
		(const char *const[]){__VA_ARGS__})

/* Seconds of a step over its tokens. */
double token_time(const struct candidate *candidate);

#endif
