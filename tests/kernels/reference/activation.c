/* gelu and swiglu. */
#include <math.h>

#include "kernels/common/common.h"
#include "tests/kernels/reference/reference.h"

static const double SQRT_2_OVER_PI = 0.79788456080286535588;
static const double SQRT_1_OVER_2 = 0.70710678118654752440;
static const double SQRT_1_OVER_2PI = 0.39894228040143267794;
static const double CUBIC = 0.044715;

/* 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), which does not cancel for large negative u. */
static double half_tanh(double x)
{
	return 1.0 / (1.0 + exp(-2.0 * SQRT_2_OVER_PI * (x + CUBIC * x * x * x)));
}

static double gelu(enum gelu kind, double x)
{
	if (kind == GELU_ERF)
		return 0.5 * x * erfc(-x * SQRT_1_OVER_2);
	return x * half_tanh(x);
}

static double gelu_slope(enum gelu kind, double x)
{
	double s, inner;

	if (kind == GELU_ERF)
		return 0.5 * erfc(-x * SQRT_1_OVER_2) + x * SQRT_1_OVER_2PI * exp(-0.5 * x * x);
	s = half_tanh(x);
	inner = 2.0 * SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * x * x);
	return s + x * s * (1.0 - s) * inner;
}

void reference_gelu(struct kernel_context *context, enum dtype dtype, enum gelu kind, void *y,
	const void *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		element_put(dtype, y, i, (float)gelu(kind, element_get(dtype, x, i)));
}

void reference_gelu_backward(struct kernel_context *context, enum dtype dtype, enum gelu kind,
	void *dx, const void *dy, const void *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		element_put(dtype, dx, i,
			(float)(element_get(dtype, dy, i) *
				gelu_slope(kind, element_get(dtype, x, i))));
}

static double sigmoid(double x)
{
	return 1.0 / (1.0 + exp(-x));
}

void reference_swiglu(struct kernel_context *context, enum dtype dtype, void *y, const void *gate,
	const void *up, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++) {
		double g = element_get(dtype, gate, i), u = element_get(dtype, up, i);

		element_put(dtype, y, i, (float)(g * sigmoid(g) * u));
	}
}

void reference_swiglu_backward(struct kernel_context *context, const struct swiglu_backward *w)
{
	(void)context;
	for (int64_t i = 0; i < w->rows * w->width; i++) {
		double d = element_get(w->dtype, w->dy, i), g = element_get(w->dtype, w->gate, i);
		double u = element_get(w->dtype, w->up, i), s = sigmoid(g);
		int64_t to = i / w->width * w->stride + i % w->width;

		element_put(w->dtype, w->dgate, to, (float)(d * u * s * (1.0 + g * (1.0 - s))));
		element_put(w->dtype, w->dup, to, (float)(d * g * s));
	}
}
