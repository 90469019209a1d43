/* Private to costs/: times of the kernels of `shardplan train --device cuda`, where a calibration
 * has measured them one by one. */
#ifndef SIMULATOR_COSTS_EXECUTOR_KERNELS_H
#define SIMULATOR_COSTS_EXECUTOR_KERNELS_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* Is this plan run by those kernels, and were they measured in its dtype? */
bool own_kernels(const struct machine *machine, const struct schedule *schedule);

/* The work of a leaf beside its matrix products. */
struct own_work {
	double arithmetic, memory; /* s of attention; s of everything else */
	double kernels;            /* number of launches */
};
struct own_work own_leaf(const struct machine *machine, const struct plan *plan,
	const struct model *model, int module, enum pass pass);

/* Seconds of the loss, forward and backward. */
double own_loss(const struct machine *machine, const struct schedule *schedule);

#endif
