/* Matrix products by a library, for the tables "cpu-onednn" and "cpu-cblas". The built-in product
 * is the default: it allocates nothing and its bits depend on row, column and k only, which no
 * library here promises. */
#ifndef KERNELS_CPU_LIBRARY_H
#define KERNELS_CPU_LIBRARY_H

#include "kernels/common/common.h"

/* Load the library: false with EXIT_CODE_ENVIRONMENT where it is not installed. */
bool onednn_open(struct error *error);
bool cblas_open(struct error *error);

/* False when the library cannot do this one (no implementation, too large for its integers or for
 * the workspace): the caller then takes the built-in product. */
bool onednn_gemm(struct kernel_context *, const struct gemm *);
void onednn_prepare(struct kernel_context *, const struct gemm *);
void onednn_close(struct kernel_context *);

bool cblas_gemm(struct kernel_context *, const struct gemm *);

#endif
