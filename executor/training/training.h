/* A rank of a training run. */
#ifndef EXECUTOR_TRAINING_H
#define EXECUTOR_TRAINING_H

#include "executor/training/open_gpu.h"

/* Runs the rank to the end of the job. False after a fault, which is recorded in the segment, or in
 * `error` for the caller to record. */
bool rank_train(struct segment *segment, struct error *error);

#endif
