/* Private to costs/: a collective's time, and what it takes from others. */
#ifndef SIMULATOR_COSTS_COLLECTIVES_H
#define SIMULATOR_COSTS_COLLECTIVES_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* Fills device and the loads of `cost`. */
void collective_cost(const struct machine *machine, const struct runtime *runtime,
	enum op_kind kind, const struct group *group, int64_t bytes, struct cost *cost);

#endif
