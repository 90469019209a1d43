/* Where `train --resume` goes on from. */
#ifndef CLI_RESUMPTION_H
#define CLI_RESUMPTION_H

#include "cli/options/options.h"
#include "executor/executor.h"

struct resumption {
	struct checkpoint_info from; /* folder NULL: from the start */
	const char *weights;         /* a start from the beginning begins with them; NULL: random */
	bool finished;               /* all steps are done, and nothing is left to train */
};

/* Finds it and says what was found; what was not given becomes as in the run that goes on. Where
 * --resume and --checkpoint are one folder, the same command starts, goes on and ends a run:
 * nothing there yet is a start, and no step left to do is no error. */
bool resumption_find(const struct arguments *arguments, struct arena *arena,
	const struct model *model, struct training *training, struct resumption *resumption,
	struct error *error);

/* Says what will keep the run from ending in the bits of an undisturbed one. */
void resumption_note(const struct resumption *resumption, const struct training *training,
	const struct plan *plan);

#endif
