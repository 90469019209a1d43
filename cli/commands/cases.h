/* `predict --cases`. */
#ifndef CLI_CASES_H
#define CLI_CASES_H

#include "cli/commands/commands.h"
#include "cli/question/question.h"

/* Writes one row of CSV for each row read. Options and operands of the command line hold for every
 * row that has no value of its own. EXIT_CODE_INPUT if a row was bad. */
bool predict_cases(
	struct invocation *invocation, const char *path, int threads, struct error *error);

#endif
