// All kernels as one image: each part is included, and named by its own file.
#include "kernels/cuda/pace.cuh"
#include "kernels/cuda/flat.cuh"
#include "kernels/cuda/exact.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/tokens.cuh"
#include "kernels/cuda/embedding.cuh"
#include "kernels/cuda/attention_plain.cuh"
#include "kernels/cuda/attention_tensor.cuh"
