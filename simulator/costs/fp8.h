/* Private to costs/: what linear layers in fp8 or fp4 cost beside their products. */
#ifndef SIMULATOR_COSTS_FP8_H
#define SIMULATOR_COSTS_FP8_H

#include "simulator/costs/costs.h"
#include "simulator/devices/devices.h"

/* The casts that a leaf in fp8 makes in one pass: bytes read and written, and kernels. `product` is
 * the matrix product of its forward pass. */
struct fp8_casts {
	double bytes, kernels;
};
struct fp8_casts fp8_casts_of(const struct plan *plan, const struct model *model,
	enum device_generation generation, int module, const struct gemm_shape *product,
	enum pass pass);

/* The device with operands as the plan casts them. */
struct machine fp8_machine(const struct machine *machine, const struct plan *plan);

#endif
