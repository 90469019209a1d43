/* Priors: the rates expected of a device that was not measured. They are the figures of its
 * generation, scaled to its own power limit and number of multiprocessors. docs/cost-model.md,
 * Priors, has the sources and the formulas. */
#ifndef SIMULATOR_DEVICES_PRIORS_H
#define SIMULATOR_DEVICES_PRIORS_H

#include "simulator/devices/devices.h"

/* The clock of a product in a step is at most this share of its clock alone. */
#define PRIOR_MOST_CLOCK 0.95

struct prior {
	double gemm;                   /* rate of a large product alone / the datasheet's peak */
	double sustained_clock;        /* rate of products in a step / alone */
	double half_m, half_n, half_k; /* sizes at which the rate is half of that at large ones */
	/* Rate in a step / the peak (on a CPU: / gemm_flops). */
	struct attention_rates attention[ATTENTION_GENERATION_COUNT];
	double memory;          /* bandwidth reached / the datasheet's */
	double kernel_overhead; /* s */
	double multiprocessors; /* where the topology does not say */
};

/* The peak, FLOP/s, in the dtype that gemm_flops is measured in: on GPUs the half-precision one. */
double reference_peak(const struct device *device);

struct prior device_prior(const struct device *device);
/* The same for products of operands in `dtype`, which may have another peak. */
struct prior device_prior_in(const struct device *device, enum dtype dtype);

#endif
