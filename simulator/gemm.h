/* Private to simulator/: matrix products on one device. */
#ifndef SIMULATOR_GEMM_H
#define SIMULATOR_GEMM_H

#include "simulator/machine.h"

/* Seconds of arithmetic of one (batched) product: tiles and waves on a GPU,
 * saturation on a CPU (docs/cost-model.md). Without launch and memory traffic. */
double gemm_arithmetic(const struct machine *machine, const struct gemm_shape *gemm);
/* Bytes that it has to move at least: two operands read, one result written. */
double gemm_flops(const struct gemm_shape *gemm);
double gemm_bytes(const struct gemm_shape *gemm, enum dtype dtype);

#endif
