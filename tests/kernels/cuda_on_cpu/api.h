/* A driver and a cuBLASLt whose GPU is this CPU (machine.h), and a cuDNN (fake_cudnn.h): what the
 * table of kernels/cuda calls, and nothing more. */
#ifndef TESTS_KERNELS_CUDA_ON_CPU_API_H
#define TESTS_KERNELS_CUDA_ON_CPU_API_H

#include "kernels/cuda/api.h"

/* For cuda_api_use. */
extern const struct cuda_api cuda_on_cpu;

/* What was called since the program began. */
struct cuda_calls {
	int64_t launches, products, heuristics, allocations, frees;
	int64_t hopper_launches; /* of these, of CUDA_HOPPER_KERNELS */
	int64_t blocks;          /* of the last launch */
	int64_t multiprocessors; /* that the last product may count on; 0: all */
	int64_t algorithm;       /* of the last product: 42 is the first proposal's */
	int e5m2;                /* of the last product: 1 its A, 2 its B, as cuBLASLt has them */
	size_t version;          /* set by a test: of cuBLASLt; 0: 13.0 */
	bool without_epilogues;  /* set by a test: cuBLASLt has no algorithm for any */
};
extern struct cuda_calls cuda_calls;

#endif
