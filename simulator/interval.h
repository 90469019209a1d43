/* Private to simulator/: how sure a predicted step time is. */
#ifndef SIMULATOR_INTERVAL_H
#define SIMULATOR_INTERVAL_H

#include "simulator/simulator.h"

/* Fills step_time_low, step_time_high and uncertainty_source of a prediction that has its step time
 * and bounds. Simulates once more for each cause, unless options->quick_interval. */
void interval(const struct schedule *schedule, int class, const struct simulation_options *options,
	struct arena *scratch, struct arena *arena, struct prediction *prediction);

#endif
