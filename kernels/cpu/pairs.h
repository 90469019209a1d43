/* One step of a product of bf16: a pair of terms, the odd one first, each with one rounding. */
#ifndef KERNELS_CPU_PAIRS_H
#define KERNELS_CPU_PAIRS_H

#include "kernels/cpu/elements.h"

INLINE vec odd_terms(uvec pairs)
{
	return (vec)(pairs & 0xffff0000);
}

INLINE vec even_terms(uvec pairs)
{
	return (vec)(pairs << 16);
}

#if defined(__AVX512BF16__)
INLINE vec add_pair(vec sum, uvec a, uvec b)
{
	return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#else
INLINE vec add_pair(vec sum, uvec a, uvec b)
{
	sum += odd_terms(a) * odd_terms(b);
	return sum + even_terms(a) * even_terms(b);
}
#endif

#endif
