/* What is expected of the arithmetic of a device that was not measured: the figures of its
 * generation, carried over to its own power limit and multiprocessors. Sources and laws:
 * docs/cost-model.md, Priors. */
#ifndef SIMULATOR_DEVICES_PRIORS_H
#define SIMULATOR_DEVICES_PRIORS_H

#include "simulator/devices/devices.h"

/* In a step a product runs at most at so much of the clock that it has alone. */
#define PRIOR_MOST_CLOCK 0.95

struct prior {
	double gemm;            /* a product alone, at large shapes, of the datasheet's peak */
	double sustained_clock; /* rate of products in a step / alone */
	double half_m, half_n, half_k; /* elements */
	/* In a step, of the peak (on a CPU: of gemm_flops). */
	struct attention_rates attention[ATTENTION_GENERATION_COUNT];
	double memory;          /* of the datasheet's bandwidth */
	double kernel_overhead; /* s */
	double multiprocessors; /* where the topology does not say */
};

/* The dtype that gemm_flops is measured in: the half-precision one on GPUs. FLOP/s. */
double reference_peak(const struct device *device);

struct prior device_prior(const struct device *device);
/* The same where products have operands of a dtype with another peak. */
struct prior device_prior_in(const struct device *device, enum dtype dtype);

#endif
