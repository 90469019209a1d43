/* Private to costs/: what the kernels of `shardplan train --device cuda` take, where a
 * calibration has measured them one by one. */
#ifndef SIMULATOR_COSTS_EXECUTOR_KERNELS_H
#define SIMULATOR_COSTS_EXECUTOR_KERNELS_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* They run this plan, in its dtype, and were measured. */
bool own_kernels(const struct machine *machine, const struct schedule *schedule);

/* Of a leaf, beside its products; a kernel each for those that are counted in `kernels`. */
struct own_work {
	double arithmetic, memory; /* s: of attention; of everything else */
	double kernels;
};
struct own_work own_leaf(const struct machine *machine, const struct plan *plan,
	const struct model *model, int module, enum pass pass);

/* Seconds of the loss, both passes. */
double own_loss(const struct machine *machine, const struct schedule *schedule);

#endif
