/* Measures what a core and a GPU compute and move, and what collectives between ranks cost. */
#ifndef EXECUTOR_CALIBRATION_H
#define EXECUTOR_CALIBRATION_H

#include "executor/calibration/bench.h"
#include "executor/calibration/kernel_case.h"

/* GEMM, attention, memory bandwidth and collectives: of this machine, or of a cluster. */
bool calibrate_host(const struct calibrate_options *options, struct arena *arena,
	struct calibration *calibration, struct error *error);
/* The cluster that was calibrated, as executor_describe_cluster says. */
bool describe_cluster(const struct launcher *launcher, const struct calibration *calibration,
	struct arena *arena, struct topology **topology, struct error *error);

/* Seconds of a product that is always the same, on all cores: a quarter of a second's median.
 * 0: it could not be measured. */
double calibrate_yardstick(void);

/* A rank that times collectives, by the host's clock or its GPU's, until the end of the job, as
 * rank_train does. */
bool rank_time_collectives(struct segment *segment, struct error *error);

#endif
