/* The face of kernels/: the arithmetic of a training step, behind one table of functions.
 *
 *   const struct kernels *kernels = kernels_cpu();
 *   struct kernel_context context = {.workspace = block,
 *           .workspace_bytes = KERNELS_WORKSPACE_BYTES};
 *   if (!kernels->open(&context, &error))
 *           return false;
 *   kernels->gemm(&context, &(struct gemm){.m = tokens, .n = width, .k = hidden, ...});
 *   kernels->close(&context); */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "kernels/common/common.h"

const struct kernels *kernels_cpu(void); /* the fastest that was built in */
/* Every table of the CPU that was built in, NULL-terminated; and the one of that name, or NULL.
 * "cuda" is known by name only: it works on device memory (kernels/cuda/cuda.h). */
const struct kernels *const *kernels_all(void);
const struct kernels *kernels_by_name(const char *name);
/* One table more, found by its name and listed last: tests bring their oracle. Before any rank or
 * thread starts. */
void kernels_add(const struct kernels *table);

#endif
