// All kernels as one image: each part is included, and named by its own file.
#include "kernels/cuda/pace.cuh"
