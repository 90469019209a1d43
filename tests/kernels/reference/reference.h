/* The reference kernels: loops that follow the formulas, sums in double, no tiling. The judge of
 * every other table. */
#ifndef TESTS_KERNELS_REFERENCE_REFERENCE_H
#define TESTS_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/common/common.h"

const struct kernels *kernels_reference(void);

void reference_gemm(struct kernel_context *, const struct gemm *);
#define X(name, parameters) void reference_##name parameters;
KERNELS(X)
#undef X
/* With factors of another step than the struct's. */
void reference_adamw_with(const struct adamw *, struct adamw_factors);

#endif
