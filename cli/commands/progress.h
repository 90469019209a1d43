/* How a training run shows that it lives: a line on stderr that is written over on a terminal, a
 * line at least every ten seconds elsewhere, or one JSON line per step on stdout. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <time.h>

#include "executor/executor.h"

struct progress_output {
	bool json_lines;
	bool terminal;
	bool open; /* a line on the terminal has no end yet */
	bool shown;
	struct timespec last; /* line */
	struct timespec step; /* its beginning */
	struct error lost;    /* why a JSON line could not be written */
};

struct progress_output progress_output_start(bool json_lines);
/* executor_job.report; `data` is a struct progress_output. */
void progress_report(const struct progress *progress, void *data);
/* executor_job.alive: says how long a step has been running that takes long */
void progress_alive(int64_t done, int64_t steps, void *data);
/* executor_job.stopping */
void progress_stopping(void *data);
void progress_output_end(struct progress_output *output);

#endif
