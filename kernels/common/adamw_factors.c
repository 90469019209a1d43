#include <math.h>

#include "kernels/common/arguments.h"

struct adamw_factors adamw_factors(const struct adamw *a)
{
	return (struct adamw_factors){.keep = (float)(1.0 - a->lr * a->weight_decay),
		.step = (float)(a->lr / a->bias_correction1),
		.root = (float)sqrt(a->bias_correction2),
		.draw = a->rounding.stream[1]};
}
