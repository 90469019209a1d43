/* Private to simulator/: what was measured of matrix products of single shapes. */
#ifndef SIMULATOR_PRODUCT_H
#define SIMULATOR_PRODUCT_H

#include "simulator/machine.h"

/* Seconds of a product by the model: of its arithmetic, and of what is not hidden of its memory
 * traffic. */
double product_model(const struct machine *machine, double arithmetic, double memory);

/* Fills in machine->products from the calibration; the rest is there. */
void product_init(struct machine *machine);

/* By how much a product of this shape takes longer than by the model, as those around it do: at a
 * measured shape what was measured, far from all of them 1. The mean of the measured ratios'
 * logarithms weighted by 1 / distance^2 in the logarithms of m, n and k (Shepard 1968), in which 1
 * has the weight of a shape at a distance of a factor of two. */
double product_ratio(const struct machine *machine, const struct gemm_shape *gemm);

/* No product is faster than by the model times this; at most 1. */
double product_least_ratio(const struct machine *machine);

#endif
