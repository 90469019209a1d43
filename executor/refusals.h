/* What of a job is refused before anything is opened or started. */
#ifndef EXECUTOR_REFUSALS_H
#define EXECUTOR_REFUSALS_H

#include "executor/job/job.h"

bool job_is_on_gpu(const struct executor_job *job);

/* EXIT_CODE_USAGE: unknown names, too many steps, what the device or the transport cannot do,
 * a fault that hits nobody. */
bool job_is_executable(const struct executor_job *job, struct error *error);

/* EXIT_CODE_INPUT: the kernels lack something of the model. */
bool job_model_is_trainable(const struct executor_job *job, struct error *error);

#endif
