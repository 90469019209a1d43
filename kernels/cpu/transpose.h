/* Transposes a block of LANES x LANES words of 4 bytes (floats, or pairs of bf16): rows of the
 * input are `from_bytes` apart. */
#ifndef KERNELS_CPU_TRANSPOSE_H
#define KERNELS_CPU_TRANSPOSE_H

#include "kernels/cpu/vector.h"

typedef float vec_half_aligned __attribute__((vector_size(4 * LANES), may_alias, aligned(2)));

#if defined(__AVX__)
/* Four words of every fourth row, those of the first in the lowest quarter: what is left to do is
 * to transpose 4 x 4 words in each quarter. Loads do half of the work, beside the shuffles. */
INLINE vec quarters(const char *from, int64_t bytes)
{
#if defined(__AVX512F__)
	__m512 v = _mm512_castps128_ps512(_mm_loadu_ps((const float *)from));

	v = _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(from + 4 * bytes)), 1);
	v = _mm512_insertf32x4(v, _mm_loadu_ps((const float *)(from + 8 * bytes)), 2);
	return (vec)_mm512_insertf32x4(v, _mm_loadu_ps((const float *)(from + 12 * bytes)), 3);
#else
	__m256 v = _mm256_castps128_ps256(_mm_loadu_ps((const float *)from));

	return (vec)_mm256_insertf128_ps(v, _mm_loadu_ps((const float *)(from + 4 * bytes)), 1);
#endif
}

#if defined(__AVX512F__)
#define UNPACK(part, type, a, b)                                                                   \
	((vec)_mm512_unpack##part##_p##type((__m512##type)(a), (__m512##type)(b)))
typedef __m512 __m512s;
#else
#define UNPACK(part, type, a, b)                                                                   \
	((vec)_mm256_unpack##part##_p##type((__m256##type)(a), (__m256##type)(b)))
typedef __m256 __m256s;
#endif

INLINE void transpose_block(float *to, int64_t to_row, const void *from, int64_t from_bytes)
{
#pragma GCC unroll 4
	for (int i = 0; i < LANES; i += 4) {
		const char *at = (const char *)from + i * (int64_t)sizeof(float);
		vec a = quarters(at, from_bytes), b = quarters(at + from_bytes, from_bytes);
		vec c = quarters(at + 2 * from_bytes, from_bytes);
		vec d = quarters(at + 3 * from_bytes, from_bytes);
		vec ab = UNPACK(lo, s, a, b), cd = UNPACK(lo, s, c, d);

		store(to + i * to_row, UNPACK(lo, d, ab, cd));
		store(to + (i + 1) * to_row, UNPACK(hi, d, ab, cd));
		ab = UNPACK(hi, s, a, b);
		cd = UNPACK(hi, s, c, d);
		store(to + (i + 2) * to_row, UNPACK(lo, d, ab, cd));
		store(to + (i + 3) * to_row, UNPACK(hi, d, ab, cd));
	}
}
#else
INLINE void transpose_block(float *to, int64_t to_row, const void *from, int64_t from_bytes)
{
	for (int j = 0; j < LANES; j++) {
		vec row = *(const vec_half_aligned *)((const char *)from + j * from_bytes);

		for (int i = 0; i < LANES; i++)
			to[i * to_row + j] = row[i];
	}
}
#endif

#endif
