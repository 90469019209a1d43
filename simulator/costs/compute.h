/* Private to costs/: what compute and memory-bound operations cost. */
#ifndef SIMULATOR_COSTS_COMPUTE_H
#define SIMULATOR_COSTS_COMPUTE_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* Does backward add to the gradients of an earlier micro-batch? Counted only where the CPU that
 * issues operations computes them too. */
bool compute_adds_gradients(const struct schedule *schedule, const struct op *op);
/* FORWARD, RECOMPUTE or BACKWARD over the leaves of `op`, in `model`, the part of the model that a
 * rank holds. Fills device, flops, arithmetic and memory; returns what the host launches: kernels,
 * and graphs of them. */
double compute_range_cost(const struct machine *machine, const struct schedule *schedule,
	const struct model *model, const struct op *op, struct cost *cost);
double compute_loss_cost(const struct machine *machine, const struct schedule *schedule,
	const struct model *model, struct cost *cost);
/* The sum of squares of `bytes` of fp32 gradients. */
double compute_norm_cost(const struct machine *machine, const struct schedule *schedule,
	double bytes, struct cost *cost);
/* `bytes` read and written at `bandwidth` by `kernels` kernels. */
void traffic_cost(const struct machine *machine, double bytes, double bandwidth, double kernels,
	struct cost *cost);

#endif
