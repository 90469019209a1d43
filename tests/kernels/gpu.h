/* The cases of this folder on a GPU: a problem is made on the host, its buffers go to the device
 * for the call and come back. Two programs use it, the parity test of suite gpu and bench/kernels.
 */
#ifndef TESTS_KERNELS_GPU_H
#define TESTS_KERNELS_GPU_H

#include "kernels/cuda/backend.h"
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

/* Has the case all that it touches in the problem's buffers? */
bool gpu_can_call(const struct kernel_case *kernel_case);
/* Calls the problem's kernel once; operands go to the GPU for it and come back. */
void gpu_call(struct gpu *gpu, struct problem *problem);

/* For benchmarks: the case's problem with operands that are made on the GPU, where they stay. Their
 * random numbers repeat after a while. */
void gpu_problem_init(struct gpu *gpu, struct problem *problem,
	const struct kernel_case *kernel_case, const int64_t *dim);
void gpu_problem_finish(struct gpu *gpu, struct problem *problem);
/* Seconds of one call, by the GPU's events around as many as fill GPU_TIMED seconds, 3 at least. */
#define GPU_TIMED 0.02
double gpu_seconds(struct gpu *gpu, struct problem *problem);

#endif
