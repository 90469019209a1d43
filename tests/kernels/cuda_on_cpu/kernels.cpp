/* The kernels of the CUDA image, compiled for the machine of this folder: what stands for CUDA's
 * intrinsics comes first. */
#include "tests/kernels/cuda_on_cpu/hopper.h"
#include "tests/kernels/cuda_on_cpu/intrinsics.h"

#include "kernels/cuda/attention_hopper.cuh"
#include "kernels/cuda/attention_hopper_backward.cuh"
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/embedding.cuh"
#include "kernels/cuda/exact.cuh"
#include "kernels/cuda/flat.cuh"
#include "kernels/cuda/norms.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/tokens.cuh"
#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/updates.cuh"
