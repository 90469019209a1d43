/* gelu and swiglu. */
#include <math.h>

#include "kernels/reference/reference.h"

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

void reference_gelu(
	struct kernel_context *context, enum gelu kind, float *y, const float *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		y[i] = (float)gelu(kind, x[i]);
}

void reference_gelu_backward(struct kernel_context *context, enum gelu kind, float *dx,
	const float *dy, const float *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		dx[i] = (float)(dy[i] * gelu_slope(kind, x[i]));
}

static double sigmoid(double x)
{
	return 1.0 / (1.0 + exp(-x));
}

void reference_swiglu(
	struct kernel_context *context, float *y, const float *gate, const float *up, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		y[i] = (float)(gate[i] * sigmoid(gate[i]) * up[i]);
}

void reference_swiglu_backward(struct kernel_context *context, float *dgate, float *dup,
	const float *dy, const float *gate, const float *up, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++) {
		double d = dy[i], g = gate[i], u = up[i], s = sigmoid(g);

		dgate[i] = (float)(d * u * s * (1.0 + g * (1.0 - s)));
		dup[i] = (float)(d * g * s);
	}
}
