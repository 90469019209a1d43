/* The kernels of the CUDA image, compiled for the machine of this folder. */
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_tensor.cuh"
#include "kernels/cuda/embedding.cuh"
#include "kernels/cuda/exact.cuh"
#include "kernels/cuda/flat.cuh"
#include "kernels/cuda/norms.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/tokens.cuh"
