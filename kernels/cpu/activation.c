/* gelu and swiglu. tanh form: 0.5 (1 + tanh u) = sigmoid(2u), which keeps its digits for large
 * negative u where 1 + tanh u cancels. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

static const float TWO_SQRT_2_OVER_PI = 1.59576912f;
static const float CUBIC = 0.044715f;
static const float SQRT_1_OVER_2PI = 0.398942280f;

INLINE vec gelu_tanh(vec x)
{
	return x * sigmoid_vec(TWO_SQRT_2_OVER_PI * (x + CUBIC * (x * x) * x));
}

INLINE vec gelu_erf(vec x)
{
	vec density;

	return x * normal_vec(x, &density);
}

/* The slope is 0 or 1 in fp32 long before |x| = 30; the clamp keeps x^3 and its like finite. */
INLINE vec clamp_slope(vec x)
{
	return min_vec(splat(30.0f), max_vec(splat(-30.0f), x));
}

INLINE vec gelu_tanh_slope(vec x)
{
	vec s, inner;

	x = clamp_slope(x);
	s = sigmoid_vec(TWO_SQRT_2_OVER_PI * (x + CUBIC * (x * x) * x));
	inner = TWO_SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * (x * x));
	return s + x * s * (1.0f - s) * inner;
}

INLINE vec gelu_erf_slope(vec x)
{
	vec density, phi;

	x = clamp_slope(x);
	phi = normal_vec(x, &density);
	return phi + x * (SQRT_1_OVER_2PI * density);
}

void CPU(gelu)(struct kernel_context *context, enum gelu kind, float *y, const float *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i += LANES) {
		vec a = load_some(x + i, n - i);
		store_some(y + i, kind == GELU_ERF ? gelu_erf(a) : gelu_tanh(a), n - i);
	}
}

void CPU(gelu_backward)(struct kernel_context *context, enum gelu kind, float *dx, const float *dy,
	const float *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i += LANES) {
		vec a = load_some(x + i, n - i), d = load_some(dy + i, n - i);
		store_some(dx + i, d * (kind == GELU_ERF ? gelu_erf_slope(a) : gelu_tanh_slope(a)),
			n - i);
	}
}

void CPU(swiglu)(
	struct kernel_context *context, float *y, const float *gate, const float *up, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i += LANES) {
		vec g = load_some(gate + i, n - i), u = load_some(up + i, n - i);
		store_some(y + i, g * sigmoid_vec(g) * u, n - i);
	}
}

void CPU(swiglu_backward)(struct kernel_context *context, float *dgate, float *dup, const float *dy,
	const float *gate, const float *up, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i += LANES) {
		vec d = load_some(dy + i, n - i), u = load_some(up + i, n - i);
		vec g = load_some(gate + i, n - i), s = sigmoid_vec(g);

		store_some(dgate + i, d * u * s * (1.0f + g * (1.0f - s)), n - i);
		store_some(dup + i, d * g * s, n - i);
	}
}
