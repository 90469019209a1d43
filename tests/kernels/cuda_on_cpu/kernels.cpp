/* The kernels of the CUDA image, compiled for the machine of this folder: what stands for CUDA's
 * intrinsics comes first. */
#include "tests/kernels/cuda_on_cpu/hopper.h"
#include "tests/kernels/cuda_on_cpu/intrinsics.h"

#include "kernels/cuda/device/attention_hopper.cuh"
#include "kernels/cuda/device/attention_hopper_backward.cuh"
#include "kernels/cuda/device/attention_plain.cuh"
#include "kernels/cuda/device/attention_tensor.cuh"
#include "kernels/cuda/device/embedding.cuh"
#include "kernels/cuda/device/exact.cuh"
#include "kernels/cuda/device/flat.cuh"
#include "kernels/cuda/device/fp8.cuh"
#include "kernels/cuda/device/norms.cuh"
#include "kernels/cuda/device/rows.cuh"
#include "kernels/cuda/device/tokens.cuh"
#include "kernels/cuda/device/loss.cuh"
#include "kernels/cuda/device/updates.cuh"
