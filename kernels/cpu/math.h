/* Transcendental functions on vectors. Our own polynomials (Chebyshev fits, relative error below
 * 2^-25 before rounding), so that the bits depend on no libm and every lane goes the same way. NaN
 * in, NaN out. */
#ifndef KERNELS_CPU_MATH_H
#define KERNELS_CPU_MATH_H

#include "kernels/cpu/vector.h"

/* exp(x + small): x = n ln 2 + r with |r| <= ln(2)/2 (Cody and Waite: n * 0.693359375 is exact),
 * then 2^n in two factors so that results run down to the smallest subnormal. `small` lets a caller
 * pass what x could not hold; |small| <= 0.05. x is clamped to [-104, 88.72]: no overflow to
 * infinity. */
INLINE vec exp_sum_vec(vec x, vec small)
{
	const float round = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
	vec n, r, p;
	ivec i, half;

	x = min_vec(splat(88.72283f), max_vec(splat(-104.0f), x));
	n = (x * 1.44269504f + round) - round;
	r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
	r += small;
	p = splat(0.001392768462f);
	p = p * r + 0.008364380693f;
	p = p * r + 0.04166654542f;
	p = p * r + 0.1666656963f;
	p = p * r + 0.5f;
	p = p * (r * r) + r + 1.0f;
	i = __builtin_convertvector(n, ivec);
	half = i >> 1;
	return p * (vec)((half + 127) << 23) * (vec)((i - half + 127) << 23);
}

INLINE vec exp_vec(vec x)
{
	return exp_sum_vec(x, (vec){0});
}

INLINE vec sigmoid_vec(vec x)
{
	return 1.0f / (1.0f + exp_vec(-x));
}

/* The normal distribution: *density = exp(-x^2/2), returns Phi(x). With z = |x|/sqrt(2), erfc(z) =
 * exp(-z^2) t Q(t), t = 1/(1 + 0.4 z). The square is split so that the tail keeps its digits. */
INLINE vec normal_vec(vec x, vec *density)
{
	vec size = min_vec(splat(14.5f), abs_vec(x));
	vec high = (vec)((ivec)size & ~0xfff), low = size - high;
	vec e = exp_sum_vec(-0.5f * high * high, -0.5f * low * (size + high));
	vec t = 1.0f / (1.0f + 0.282842712f * size);
	vec q, tail;

	q = splat(-0.01648980936f);
	q = q * t + 0.06651204429f;
	q = q * t + -0.04757517483f;
	q = q * t + -0.1371102364f;
	q = q * t + 0.2080382241f;
	q = q * t + -0.07273013261f;
	q = q * t + 0.1833960952f;
	q = q * t + 0.1542919704f;
	q = q * t + 0.2105923281f;
	q = q * t + 0.225386732f;
	q = q * t + 0.225687958f;
	tail = 0.5f * e * t * q;
	*density = e;
	return select_vec(x < 0.0f, tail, 1.0f - tail);
}

#endif
