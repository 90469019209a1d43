/* Flat arrays, reductions over sources, exact sums. */
#include <string.h>

#include "kernels/common/common.h"
#include "tests/kernels/reference/reference.h"

void reference_add(struct kernel_context *context, enum dtype dtype, void *y, const void *a,
	const void *b, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		element_put(dtype, y, i, element_get(dtype, a, i) + element_get(dtype, b, i));
}

void reference_accumulate(struct kernel_context *context, enum dtype y_dtype, void *y,
	enum dtype x_dtype, const void *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		element_put(y_dtype, y, i, element_get(y_dtype, y, i) + element_get(x_dtype, x, i));
}

void reference_convert(struct kernel_context *context, enum dtype y_dtype, void *y,
	enum dtype x_dtype, const void *x, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		element_put(y_dtype, y, i, element_get(x_dtype, x, i));
}

void reference_scale(struct kernel_context *context, float *y, float factor, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		y[i] *= factor;
}

void reference_zero(struct kernel_context *context, enum dtype dtype, void *y, int64_t n)
{
	(void)context;
	if (n > 0)
		memset(y, 0, (size_t)(n * dtype_bytes(dtype)));
}

void reference_copy(
	struct kernel_context *context, enum dtype dtype, void *y, const void *x, int64_t n)
{
	(void)context;
	if (n > 0)
		memmove(y, x, (size_t)(n * dtype_bytes(dtype)));
}

/* The sum of element i of sources first..first+count-1, by the declared tree. */
static float tree_sum(enum dtype dtype, const void *const *sources, int count, int64_t i)
{
	int left = 1;
	float sum;

	if (count == 1)
		return element_get(dtype, sources[0], i);
	while (2 * left < count)
		left *= 2;
	sum = tree_sum(dtype, sources, left, i) + tree_sum(dtype, sources + left, count - left, i);
	return dtype == DTYPE_BF16 ? bf16_to_float(bf16_from_float(sum)) : sum;
}

void reference_tree_reduce(struct kernel_context *context, enum dtype dtype, void *y,
	const void *const *sources, int count, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i++)
		element_put(dtype, y, i, tree_sum(dtype, sources, count, i));
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
