/* Measures the GPUs of this machine, by their own clocks. */
#ifndef EXECUTOR_CALIBRATION_GPU_H
#define EXECUTOR_CALIBRATION_GPU_H

#include "executor/job/job.h"

/* As executor_calibrate_gpus says. */
bool calibrate_gpus(const struct calibrate_options *options, struct arena *arena,
	struct topology *topology, struct error *error);

#endif
