/* Included by kernels of devices too, in C and CUDA C++, so it has only plain types of fixed
 * layout, and short functions. */
#ifndef KERNELS_PLAIN_H
#define KERNELS_PLAIN_H

#include <stdint.h>

#include "kernels/plain/fp8.h"

/* How what is kept in bf16 is rounded: stochastically (Gupta et al. 2015, "Deep learning with
 * limited numerical precision"), up with the probability of the distance to the value below, so
 * that the expected value is x and updates smaller than half a unit in the last place are not lost.
 * Element i of the call has number e = first + i, and takes its random bits from
 * Philox4x32-10({e / 2 low, e / 2 high, stream[0], stream[1]}, key): words e % 2 and 2 + e % 2. */
struct rounding {
	uint32_t key[2], stream[2];
	int64_t first;
};

/* The values that change from step to step. An update multiplies with keep = 1 - lr weight_decay,
 * step = lr / c1 and root = sqrt(c2) (struct adamw); `draw` is stream[1] of its rounding. */
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

/* Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): 128 random
 * bits that are a function of a counter and a key, so that any number can be made by itself.
 */
enum { PHILOX_ROUNDS = 10 };

#ifdef __CUDACC__
#define PHILOX_FUNCTION __device__ __forceinline__
#else
#define PHILOX_FUNCTION static inline
#endif

#define PHILOX_MULTIPLIER_0 0xD2511F53u
#define PHILOX_MULTIPLIER_1 0xCD9E8D57u
/* The constants that a round adds to the key: the golden ratio and sqrt(3) - 1. */
#define PHILOX_WEYL_0 0x9E3779B9u
#define PHILOX_WEYL_1 0xBB67AE85u

PHILOX_FUNCTION void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
	uint32_t k0 = key[0], k1 = key[1];

	for (int round = 0; round < PHILOX_ROUNDS; round++) {
		uint64_t p0 = (uint64_t)PHILOX_MULTIPLIER_0 * c0;
		uint64_t p1 = (uint64_t)PHILOX_MULTIPLIER_1 * c2;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)p1;
		c3 = (uint32_t)p0;
		k0 += PHILOX_WEYL_0;
		k1 += PHILOX_WEYL_1;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

#endif
