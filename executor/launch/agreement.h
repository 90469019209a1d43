/* The settings that all ranks of a job must have been started with alike, as texts to compare: the
 * values of options, and digests of files. */
#ifndef EXECUTOR_LAUNCH_AGREEMENT_H
#define EXECUTOR_LAUNCH_AGREEMENT_H

#include "executor/ranks/ranks.h"

enum { AGREEMENT_SETTINGS = 27, AGREEMENT_BYTES = 48 };

struct agreement {
	char values[AGREEMENT_SETTINGS][AGREEMENT_BYTES];
};

/* Reads the files from this process's point of view. */
void agreement_of(const struct segment *segment, struct agreement *agreement);
/* EXIT_CODE_USAGE with the first difference between two ranks and both values. `name` is that of
 * the launcher. */
bool agreement_check(const char *name, int first, const struct agreement *a, int second,
	const struct agreement *b, struct error *error);

#endif
