/* `predict` for one case and for many. */
#ifndef CLI_PREDICT_H
#define CLI_PREDICT_H

#include "cli/command.h"
#include "cli/question.h"

/* One case: what was asked, resolved and evaluated. */
bool predict_case(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, struct asked *asked, struct evaluation *evaluation,
	struct error *error);

/* --cases FILE.csv: one CSV row out per row in. Options and operands of the command line hold for
 * every row that does not say otherwise. EXIT_CODE_INPUT when a row was bad. */
bool predict_cases(struct invocation *invocation, const char *path, struct error *error);

#endif
