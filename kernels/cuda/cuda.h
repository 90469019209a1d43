/* The face of the CUDA table, and what it has beyond struct kernels.
 *
 * The table "cuda" works on device memory and enqueues on context->stream. The calling thread has a
 * CUDA context; the workspace is device memory too. `backend` is made by open and freed by close,
 * which must see the same CUDA context. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "kernels/common/common.h"
#include "kernels/cuda/api.h"

const struct kernels *kernels_cuda(void);

/* For benchmarks: forgets all products and takes the i-th best proposal for those that come, or the
 * last that there is. */
void cuda_use_candidate(struct kernel_context *context, int i);

/* Waits for the stream, then sets the context's error to what the kernels met since the last call:
 * a token or a target outside of the vocabulary. True when there was none. */
bool cuda_faults(struct kernel_context *context);

#endif
