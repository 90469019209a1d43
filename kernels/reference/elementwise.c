/* Flat arrays, reductions over sources, exact sums. */
#include <string.h>

#include "kernels/reference/reference.h"

void reference_add(
	struct kernel_context *context, float *y, const float *a, const float *b, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		y[i] = a[i] + b[i];
}

void reference_scale(struct kernel_context *context, float *y, float factor, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		y[i] *= factor;
}

void reference_zero(struct kernel_context *context, float *y, int64_t n)
{
	(void)context;
	if (n > 0)
		memset(y, 0, (size_t)n * sizeof(float));
}

void reference_copy(struct kernel_context *context, float *y, const float *x, int64_t n)
{
	(void)context;
	if (n > 0)
		memmove(y, x, (size_t)n * sizeof(float));
}

/* The sum of element i of sources first..first+count-1, by the declared tree. */
static float tree_sum(const float *const *sources, int count, int64_t i)
{
	int left = 1;

	if (count == 1)
		return sources[0][i];
	while (2 * left < count)
		left *= 2;
	return tree_sum(sources, left, i) + tree_sum(sources + left, count - left, i);
}

void reference_tree_reduce(
	struct kernel_context *context, float *y, const float *const *sources, int count, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		y[i] = tree_sum(sources, count, i);
}

void reference_sum_squares(
	struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		exact_sum_add(sum, (double)x[i] * (double)x[i]);
}

void reference_sum(struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		exact_sum_add(sum, x[i]);
}

void reference_clip(struct kernel_context *context, float *y, int64_t n,
	const struct exact_sum *squares, double most)
{
	double factor = exact_sum_clip_factor(squares, most);

	if (factor < 1)
		reference_scale(context, y, (float)factor, n);
}
