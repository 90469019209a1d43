/* A rank of a training run. */
#ifndef EXECUTOR_TRAINING_H
#define EXECUTOR_TRAINING_H

#include "executor/training/open_gpu.h"

/* To the end of the job; false after a fault (recorded in the segment, or in `error` for the caller
 * to record). */
bool rank_train(struct segment *segment, struct error *error);

#endif
