/* Structs that kernels of devices read too: C and CUDA C++ include this file, so it has plain types
 * of fixed layout only. */
#ifndef KERNELS_PLAIN_H
#define KERNELS_PLAIN_H

#include <stdint.h>

/* How what is kept in bf16 is rounded: stochastically (Gupta et al. 2015, "Deep learning with
 * limited numerical precision"), up with the probability of the distance to the value below, so
 * that the expected value is x and updates smaller than half a unit in the last place are not lost.
 * Element i of the call has number e = first + i, and takes its random bits from
 * Philox4x32-10({e / 2 low, e / 2 high, stream[0], stream[1]}, key): words e % 2 and 2 + e % 2. */
struct rounding {
	uint32_t key[2], stream[2];
	int64_t first;
};

/* What changes from step to step. An update multiplies with keep = 1 - lr weight_decay, step = lr /
 * c1 and root = sqrt(c2) (struct adamw); `draw` is stream[1] of its rounding. */
struct adamw_factors {
	float keep, step, root;
	uint32_t draw;
};

struct sgd_factors {
	float rate, decay;
	uint32_t draw;
};

/* A tensor that has a place in a flat array. */
struct pack_segment {
	void *tensor;
	int64_t offset, count; /* elements in the flat array */
};

#endif
