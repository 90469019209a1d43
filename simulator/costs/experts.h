/* Private to costs/: what Megatron-Core's experts do beside their kernels. */
#ifndef SIMULATOR_COSTS_EXPERTS_H
#define SIMULATOR_COSTS_EXPERTS_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* PyTorch's own operations of an experts' leaf; returns them as kernels that the issuing thread
 * launches. */
double experts_operations(const struct machine *machine, const struct plan *plan,
	const struct model *model, int module, enum pass pass, struct cost *cost);

#endif
