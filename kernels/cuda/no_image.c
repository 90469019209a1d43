/* Stands in for the embedded kernels where the build had no nvcc. */
#include "kernels/cuda/api.h"

const unsigned char cuda_image[1];
const int64_t cuda_image_bytes = 0;
const char *const cuda_image_compiler = "";
