/* Ratios of the measured times of real steps to those predicted, for `calibrate local`, on
 * processors or a GPU. */
#ifndef CLI_CALIBRATE_STEPS_H
#define CLI_CALIBRATE_STEPS_H

#include "topologies/topologies.h"

/* Trains some steps of small models on this machine, and stores the ratios of measured and
 * predicted times in `topology`'s calibration, which must be complete otherwise. A model that
 * cannot be trained is left out with a note; predictions then use the unscaled model. `report` may
 * be NULL. */
void calibrate_steps(struct arena *arena, bool quick, void (*report)(const char *line, void *data),
	void *report_data, struct topology *topology);

#endif
