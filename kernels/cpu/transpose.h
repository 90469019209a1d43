/* Transposes a block of LANES x LANES words of 4 bytes (floats, or pairs of bf16): rows of the
 * input are `from_bytes` apart. */
#ifndef KERNELS_CPU_TRANSPOSE_H
#define KERNELS_CPU_TRANSPOSE_H

#include "kernels/cpu/vector.h"

typedef float vec_half_aligned __attribute__((vector_size(4 * LANES), may_alias, aligned(2)));

#if defined(__clang__)
/* Clang has no shuffle by a vector of indices. */
INLINE void transpose_block(float *to, int64_t to_row, const void *from, int64_t from_bytes)
{
	for (int j = 0; j < LANES; j++) {
		vec row = *(const vec_half_aligned *)((const char *)from + j * from_bytes);

		for (int i = 0; i < LANES; i++)
			to[i * to_row + j] = row[i];
	}
}
#else
/* LANES x LANES transpose: log2(LANES) perfect shuffles of the rows i and i + LANES/2. */
INLINE void transpose_block(float *to, int64_t to_row, const void *from, int64_t from_bytes)
{
	vec row[LANES], next[LANES];
	ivec low, high;

	for (int i = 0; i < LANES; i++) {
		row[i] = *(const vec_half_aligned *)((const char *)from + i * from_bytes);
		low[i] = i / 2 + (i % 2) * LANES;
		high[i] = LANES / 2 + i / 2 + (i % 2) * LANES;
	}
#pragma GCC unroll 4
	for (int round = 1; round < LANES; round *= 2) {
#pragma GCC unroll 8
		for (int i = 0; i < LANES / 2; i++) {
			next[2 * i] = __builtin_shuffle(row[i], row[i + LANES / 2], low);
			next[2 * i + 1] = __builtin_shuffle(row[i], row[i + LANES / 2], high);
		}
#pragma GCC unroll 16
		for (int i = 0; i < LANES; i++)
			row[i] = next[i];
	}
	for (int i = 0; i < LANES; i++)
		store(to + i * to_row, row[i]);
}
#endif

#endif
