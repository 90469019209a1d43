/* The causal mask of the attention kernels on tensor cores. Scores are in the layout of mma
 * accumulators: a lane has columns 2 (l % 4) and the next of every 8, in rows l / 4 and 8 below. */
#ifndef KERNELS_CUDA_CAUSAL_CUH
#define KERNELS_CUDA_CAUSAL_CUH

#include "kernels/cuda/device/elements.cuh"

#define LOG2_E 1.4426950408889634f
#define MASKED (-1.0e30f) /* the score of a key that the query does not see */

/* Masks the keys past each query: rows are queries, columns keys, the first query `ahead` of the
 * first key. */
template <int N> DEVICE void apply_causal_mask(float (&s)[N][4], int ahead)
{
	int lane = (int)threadIdx.x % 32, most = ahead + lane / 4 - lane % 4 * 2;

#pragma unroll
	for (int n = 0; n < N; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (n * 8 + i % 2 - i / 2 * 8 > most)
				s[n][i] = MASKED;
		}
	}
}

#endif
