/* Private to costs/: what linear layers in fp8 cost beside their products. */
#ifndef SIMULATOR_COSTS_FP8_H
#define SIMULATOR_COSTS_FP8_H

#include "schedule/schedule.h"

/* The casts that a leaf in fp8 makes in one pass: bytes read and written, and kernels. `product` is
 * the matrix product of its forward pass. */
struct fp8_casts {
	double bytes, kernels;
};
struct fp8_casts fp8_casts_of(const struct plan *plan, const struct model *model,
	enum device_generation generation, int module, const struct gemm_shape *product,
	enum pass pass);

/* The rate of products, as a part of that of products with a scale a tensor. */
double fp8_product_rate(const struct plan *plan);

#endif
