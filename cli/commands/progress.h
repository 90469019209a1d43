/* Shows the progress of training: a line on stderr that is rewritten on a terminal, a line every
 * ten seconds elsewhere, or one line of JSON for each step on stdout. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <time.h>

#include "executor/executor.h"

struct progress_output {
	bool json_lines;
	bool terminal;
	bool open; /* the last line on the terminal has no end yet */
	bool shown;
	struct timespec last; /* of the last line */
	struct timespec step; /* the beginning of the step */
	struct error lost;    /* the reason why a JSON line could not be written */
};

struct progress_output progress_output_start(bool json_lines);
/* executor_job.report; `data` is a struct progress_output. */
void progress_report(const struct progress *progress, void *data);
/* executor_job.alive: says how long a step has been running, if it takes long. */
void progress_alive(int64_t done, int64_t steps, void *data);
/* executor_job.stopping. */
void progress_stopping(void *data);
void progress_output_end(struct progress_output *output);

#endif
