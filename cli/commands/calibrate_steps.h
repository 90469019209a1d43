/* What real steps take over what the model says, for `calibrate local`: on processors or on a GPU.
 */
#ifndef CLI_CALIBRATE_STEPS_H
#define CLI_CALIBRATE_STEPS_H

#include "topologies/topologies.h"

/* Trains some steps of small reference models on this machine and puts the ratios of measured and
 * predicted times into `topology`'s calibration, which must hold everything else. What cannot be
 * trained is left out, with a note: predictions are then those of the model. `report` may be NULL.
 */
void calibrate_steps(struct arena *arena, bool quick, void (*report)(const char *line, void *data),
	void *report_data, struct topology *topology);

#endif
