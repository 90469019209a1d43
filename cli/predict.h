/* `predict` for one case and for many. */
#ifndef CLI_PREDICT_H
#define CLI_PREDICT_H

#include "cli/command.h"
#include "cli/question.h"

/* One case: what was asked, with defaults filled in. */
bool predict_ask(struct arena *arena, const char *model, const char *topology,
	const struct arguments *arguments, struct asked *asked, struct plan *plan,
	struct error *error);

/* --cases FILE.csv: one CSV row out per row in. Options and operands of the command line hold for
 * every row that does not say otherwise. EXIT_CODE_INPUT when a row was bad. */
bool predict_cases(struct invocation *invocation, const char *path, struct error *error);

#endif
