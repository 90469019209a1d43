/* Vectors of elements of either type, fp32 or bf16: arithmetic sees fp32. */
#ifndef KERNELS_CPU_ELEMENTS_H
#define KERNELS_CPU_ELEMENTS_H

#include "base/base.h"
#include "kernels/cpu/vector.h"

typedef uint32_t uvec __attribute__((vector_size(4 * LANES), may_alias));
typedef uint16_t hvec __attribute__((vector_size(2 * LANES), may_alias));
typedef uint16_t hvec_unaligned __attribute__((vector_size(2 * LANES), may_alias, aligned(2)));

/* bf16 is the upper half of fp32. */
INLINE vec widen(hvec x)
{
	return (vec)(__builtin_convertvector(x, uvec) << 16);
}

/* Rounds to nearest even; a NaN stays one. */
INLINE hvec narrow(vec x)
{
	uvec bits = (uvec)x, nan = (uvec)(x != x);
	uvec rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

	return __builtin_convertvector((~nan & rounded) | (nan & (bits >> 16 | 0x40)), hvec);
}

INLINE vec load_bf16(const uint16_t *p, int64_t n)
{
	if (__builtin_expect(n >= LANES, 1))
		return widen(*(const hvec_unaligned *)p);
	uint16_t lane[LANES] = {0};
	memcpy(lane, p, (size_t)n * sizeof(*p));
	return widen(*(const hvec_unaligned *)lane);
}

INLINE void store_bf16(uint16_t *p, vec v, int64_t n)
{
	if (__builtin_expect(n >= LANES, 1)) {
		*(hvec_unaligned *)p = narrow(v);
		return;
	}
	uint16_t lane[LANES];
	*(hvec_unaligned *)lane = narrow(v);
	memcpy(p, lane, (size_t)n * sizeof(*p));
}

/* The same from element i of an array of either type: `dtype` is a constant where it is called. */
INLINE vec load_as(const enum dtype dtype, const void *p, int64_t i, int64_t n)
{
	return dtype == DTYPE_BF16 ? load_bf16((const uint16_t *)p + i, n)
				   : load_some((const float *)p + i, n);
}

INLINE void store_as(const enum dtype dtype, void *p, int64_t i, vec v, int64_t n)
{
	if (dtype == DTYPE_BF16)
		store_bf16((uint16_t *)p + i, v, n);
	else
		store_some((float *)p + i, v, n);
}

/* The value after it has been stored. */
INLINE vec round_as(const enum dtype dtype, vec v)
{
	return dtype == DTYPE_BF16 ? widen(narrow(v)) : v;
}

/* Makes `dtype` a constant inside of an inlined function. */
#define BY_DTYPE(function, dtype, ...)                                                             \
	((dtype) == DTYPE_BF16 ? function(DTYPE_BF16, __VA_ARGS__)                                 \
			       : function(DTYPE_FP32, __VA_ARGS__))
/* For two types; fp32 operands have fp32 results. */
#define BY_DTYPES(function, first, second, ...)                                                    \
	((first) == DTYPE_FP32 ? BY_DTYPE(function##_2, second, DTYPE_FP32, __VA_ARGS__)           \
			       : BY_DTYPE(function##_2, second, DTYPE_BF16, __VA_ARGS__))

#endif
