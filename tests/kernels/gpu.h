/* The cases of this folder on a GPU: a problem is made on the host, its buffers go to the device
 * for the call and come back. Two programs use it, the parity test of suite gpu and bench/kernels.
 */
#ifndef TESTS_KERNELS_GPU_H
#define TESTS_KERNELS_GPU_H

#include "kernels/cuda/cuda.h"
#include "tests/kernels/problem.h"

struct gpu {
	struct kernel_context kernels; /* of the table "cuda"; stream and workspace are set */
	const struct cuda_api *api;
	char name[128];
	void *context;
	void *start, *end; /* events */
};

/* The first GPU; false with EXIT_CODE_ENVIRONMENT where there is none. */
bool gpu_open(struct gpu *gpu, struct error *error);
void gpu_close(struct gpu *gpu);

/* Device memory of that size with a copy of `from` (NULL: uninitialised); ends the program without
 * room. */
void *gpu_allocate(struct gpu *gpu, const void *from, int64_t bytes);
void gpu_read(struct gpu *gpu, void *to, const void *from, int64_t bytes);
void gpu_free(struct gpu *gpu, void *memory);

/* Whether the case has all that it touches in the problem's buffers. */
bool gpu_can_call(const struct kernel_case *kernel_case);
/* Calls the problem's kernel once, or `repeats` more times for the time of one, in s; 0 without. */
double gpu_call(struct gpu *gpu, struct problem *problem, int repeats);

#endif
