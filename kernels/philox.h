/* Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): 128 random
 * bits that are a function of a counter and a key, so that who needs a number makes just that one.
 */
#ifndef KERNELS_PHILOX_H
#define KERNELS_PHILOX_H

#include <stdint.h>

enum { PHILOX_ROUNDS = 10 };

/* CUDA kernels say what their functions are before they include this. */
#ifndef PHILOX_FUNCTION
#define PHILOX_FUNCTION static inline
#endif

#define PHILOX_MULTIPLIER_0 0xD2511F53u
#define PHILOX_MULTIPLIER_1 0xCD9E8D57u
/* What a round adds to the key: the golden ratio and sqrt(3) - 1. */
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
