/* Private to costs/: what experts cost beside their products, in PyTorch's operations. */
#ifndef SIMULATOR_COSTS_EXPERTS_H
#define SIMULATOR_COSTS_EXPERTS_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* Adds to `cost` the PyTorch operations of a leaf of experts, and returns how many kernels the
 * issuing thread launches for them. */
double experts_operations(const struct machine *machine, const struct plan *plan,
	const struct model *model, int module, enum pass pass, struct cost *cost);

#endif
