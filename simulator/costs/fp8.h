/* Private to costs/: what linear layers in fp8 take beside their products. */
#ifndef SIMULATOR_COSTS_FP8_H
#define SIMULATOR_COSTS_FP8_H

#include "schedule/schedule.h"

/* Memory traffic of the casts that a converted leaf makes in a pass, bytes, and kernels. `product`
 * is that of its forward pass. */
struct fp8_casts {
	double bytes, kernels;
};
struct fp8_casts fp8_casts_of(const struct plan *plan, const struct model *model,
	enum device_generation generation, int module, const struct gemm_shape *product,
	enum pass pass);

#endif
