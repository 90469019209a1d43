/* One step of a product of bf16: a pair of terms, the odd one first, each with one rounding. */
#ifndef KERNELS_CPU_PAIRS_H
#define KERNELS_CPU_PAIRS_H

#include "kernels/cpu/elements.h"

#if defined(__AVX512BF16__)
INLINE vec add_pair(vec sum, uvec a, uvec b)
{
	return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#else
INLINE vec add_pair(vec sum, uvec a, uvec b)
{
	sum += (vec)(a & 0xffff0000) * (vec)(b & 0xffff0000);
	return sum + (vec)(a << 16) * (vec)(b << 16);
}
#endif

#endif
