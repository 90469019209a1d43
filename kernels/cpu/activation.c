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

INLINE void gelu(const enum dtype dtype, enum gelu kind, void *y, const void *x, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES) {
		vec a = load_as(dtype, x, i, n - i);
		store_as(dtype, y, i, kind == GELU_ERF ? gelu_erf(a) : gelu_tanh(a), n - i);
	}
}

void CPU(gelu)(struct kernel_context *context, enum dtype dtype, enum gelu kind, void *y,
	const void *x, int64_t n)
{
	(void)context;
	BY_DTYPE(gelu, dtype, kind, y, x, n);
}

INLINE void gelu_backward(
	const enum dtype dtype, enum gelu kind, void *dx, const void *dy, const void *x, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES) {
		vec a = load_as(dtype, x, i, n - i), d = load_as(dtype, dy, i, n - i);
		vec slope = kind == GELU_ERF ? gelu_erf_slope(a) : gelu_tanh_slope(a);

		store_as(dtype, dx, i, d * slope, n - i);
	}
}

void CPU(gelu_backward)(struct kernel_context *context, enum dtype dtype, enum gelu kind, void *dx,
	const void *dy, const void *x, int64_t n)
{
	(void)context;
	BY_DTYPE(gelu_backward, dtype, kind, dx, dy, x, n);
}

INLINE void swiglu(const enum dtype dtype, void *y, const void *gate, const void *up, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES) {
		vec g = load_as(dtype, gate, i, n - i), u = load_as(dtype, up, i, n - i);
		store_as(dtype, y, i, g * sigmoid_vec(g) * u, n - i);
	}
}

void CPU(swiglu)(struct kernel_context *context, enum dtype dtype, void *y, const void *gate,
	const void *up, int64_t n)
{
	(void)context;
	BY_DTYPE(swiglu, dtype, y, gate, up, n);
}

/* n elements, which lie `from` on in what is read and `to` on in what is written. */
INLINE void swiglu_row_backward(const enum dtype dtype, const struct swiglu_backward *s,
	int64_t from, int64_t to, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES) {
		vec d = load_as(dtype, s->dy, from + i, n - i);
		vec u = load_as(dtype, s->up, from + i, n - i);
		vec g = load_as(dtype, s->gate, from + i, n - i), sigmoid = sigmoid_vec(g);

		store_as(dtype, s->dgate, to + i, d * u * sigmoid * (1.0f + g * (1.0f - sigmoid)),
			n - i);
		store_as(dtype, s->dup, to + i, d * g * sigmoid, n - i);
	}
}

INLINE void swiglu_backward(const enum dtype dtype, const struct swiglu_backward *s)
{
	if (s->stride == s->width) {
		swiglu_row_backward(dtype, s, 0, 0, s->rows * s->width);
		return;
	}
	for (int64_t r = 0; r < s->rows; r++)
		swiglu_row_backward(dtype, s, r * s->width, r * s->stride, s->width);
}

void CPU(swiglu_backward)(struct kernel_context *context, const struct swiglu_backward *s)
{
	(void)context;
	BY_DTYPE(swiglu_backward, s->dtype, s);
}
