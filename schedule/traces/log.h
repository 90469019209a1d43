/* The figures that a training log prints, step after step: torchtitan, Megatron-LM, the Trainer of
 * transformers, progress bars, and JSON whose keys name them. */
#ifndef SCHEDULE_LOG_H
#define SCHEDULE_LOG_H

#include "schedule/traces/activity.h"

/* Medians; 0 = the log does not say. A tenth of the steps, the first ones, warm up and are not
 * counted. */
struct log_figures {
	double step_time; /* s */
	double mfu;       /* 0..1, of whatever convention the log uses */
	double tokens_per_s_per_gpu;
	int n_steps;   /* lines with the figure that was found first in this order, all of them */
	double spread; /* of step times: standard deviation over mean; NAN below two */
};

/* Returns false when the log has none of these. */
bool log_read(const char *text, struct log_figures *figures);

#endif
