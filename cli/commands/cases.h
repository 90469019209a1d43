/* `predict --cases`. */
#ifndef CLI_CASES_H
#define CLI_CASES_H

#include "cli/commands/commands.h"
#include "cli/question/question.h"

/* One CSV row out per row in. Options and operands of the command line hold for every row that does
 * not say otherwise. EXIT_CODE_INPUT when a row was bad. */
bool predict_cases(
	struct invocation *invocation, const char *path, int threads, struct error *error);

#endif
