/* Vectors of LANES floats, by GCC's vector extension: the compiler lowers them to what the level
 * has.
 *
 * Element-wise kernels use these for every element, the tail included (load_some pads), so that an
 * element gets the same bits wherever it stands. No fused multiply-add here except in files that
 * are compiled with -ffp-contract=fast (gemm, attention), whose laws do not speak of offsets. */
#ifndef KERNELS_CPU_VECTOR_H
#define KERNELS_CPU_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), may_alias));
typedef float vec_unaligned __attribute__((vector_size(4 * LANES), may_alias, aligned(4)));

INLINE vec load(const float *p)
{
	return *(const vec_unaligned *)p;
}

INLINE void store(float *p, vec v)
{
	*(vec_unaligned *)p = v;
}

INLINE vec splat(float x)
{
	return x - (vec){0};
}

/* The first min(n, LANES) elements, then zeros; n > 0. */
INLINE vec load_some(const float *p, int64_t n)
{
	if (__builtin_expect(n >= LANES, 1))
		return load(p);
	float lane[LANES] = {0};
	memcpy(lane, p, (size_t)n * sizeof(float));
	return load(lane);
}

INLINE void store_some(float *p, vec v, int64_t n)
{
	if (__builtin_expect(n >= LANES, 1)) {
		store(p, v);
		return;
	}
	float lane[LANES];
	store(lane, v);
	memcpy(p, lane, (size_t)n * sizeof(float));
}

/* Lanes of a where the mask is all ones, else of b. */
INLINE vec select_vec(ivec mask, vec a, vec b)
{
	return (vec)((mask & (ivec)a) | (~mask & (ivec)b));
}

/* All ones in the first n lanes; n may exceed LANES. */
INLINE ivec first_lanes(int64_t n)
{
	ivec lane;

	for (int i = 0; i < LANES; i++)
		lane[i] = i;
	return lane < (int32_t)(n < LANES ? n : LANES);
}

/* Zeros the lanes from n on, so that padding does not count in a sum. */
INLINE vec keep_some(vec v, int64_t n)
{
	return n >= LANES ? v : (vec)((ivec)v & first_lanes(n));
}

/* a > b ? a : b, so b when either is NaN. */
INLINE vec max_vec(vec a, vec b)
{
#if defined(__AVX512F__)
	return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
	return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE__)
	return (vec)_mm_max_ps((__m128)a, (__m128)b);
#else
	return select_vec(a > b, a, b);
#endif
}

/* a < b ? a : b, so b when either is NaN. */
INLINE vec min_vec(vec a, vec b)
{
#if defined(__AVX512F__)
	return (vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
	return (vec)_mm256_min_ps((__m256)a, (__m256)b);
#elif defined(__SSE__)
	return (vec)_mm_min_ps((__m128)a, (__m128)b);
#else
	return select_vec(a < b, a, b);
#endif
}

INLINE vec sqrt_vec(vec a)
{
#if defined(__AVX512F__)
	return (vec)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX__)
	return (vec)_mm256_sqrt_ps((__m256)a);
#elif defined(__SSE__)
	return (vec)_mm_sqrt_ps((__m128)a);
#else
	for (int i = 0; i < LANES; i++)
		a[i] = sqrtf(a[i]);
	return a;
#endif
}

INLINE vec abs_vec(vec a)
{
	return (vec)((ivec)a & 0x7fffffff);
}

/* Sums and maxima over the lanes, by halving: one fixed order. */
INLINE float sum_lanes(vec v)
{
	float lane[LANES];
	store(lane, v);
	for (int width = LANES / 2; width > 0; width /= 2) {
		for (int i = 0; i < width; i++)
			lane[i] += lane[i + width];
	}
	return lane[0];
}

INLINE float max_lanes(vec v)
{
	float lane[LANES];
	store(lane, v);
	for (int width = LANES / 2; width > 0; width /= 2) {
		for (int i = 0; i < width; i++)
			lane[i] = lane[i] > lane[i + width] ? lane[i] : lane[i + width];
	}
	return lane[0];
}

#endif
