/* Structs that kernels of devices read too: C and CUDA C++ include this file, so it has plain types
 * of fixed layout only. */
#ifndef KERNELS_PLAIN_H
#define KERNELS_PLAIN_H

#include <stdint.h>

/* What an update multiplies with, which changes from step to step: keep = 1 - lr weight_decay,
 * step = lr / c1, root = sqrt(c2) (struct adamw). */
struct adamw_factors {
	float keep, step, root;
};

struct sgd_factors {
	float rate, decay;
};

/* A tensor that has a place in a flat array. */
struct pack_segment {
	void *tensor;
	int64_t offset, count; /* elements in the flat array */
};

#endif
