/* The face of the CUDA table, and what it has beyond struct kernels.
 *
 * The table "cuda" works on device memory and enqueues on context->stream. The calling thread has a
 * CUDA context; the workspace is device memory too. `backend` is made by open and freed by close,
 * which must see the same CUDA context. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "kernels/common/common.h"
#include "kernels/cuda/api.h"

/* How fp32 matrices are multiplied: in fp32, or by tensor cores with 10 bits of mantissa. */
enum cuda_fp32 { CUDA_FP32_EXACT, CUDA_FP32_TF32 };

const struct kernels *kernels_cuda(void);

/* The products of fp32 that follow; CUDA_FP32_EXACT until then. */
void cuda_set_fp32(struct kernel_context *context, enum cuda_fp32 fp32);

/* For benchmarks: forgets all products and takes the i-th best proposal for those that come, or the
 * last that there is. */
void cuda_use_candidate(struct kernel_context *context, int i);

/* Waits for the stream, then sets the context's error to what the kernels met since the last call:
 * a token or a target outside of the vocabulary. True when there was none. */
bool cuda_faults(struct kernel_context *context);

#endif
