/* Flat arrays and the reduction over ranks. */
#include <string.h>

#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"

/* zero and copy are what the C library does best. */
void CPU(zero)(struct kernel_context *context, enum dtype dtype, void *y, int64_t n)
{
	(void)context;
	if (n > 0)
		memset(y, 0, (size_t)(n * dtype_bytes(dtype)));
}

void CPU(copy)(struct kernel_context *context, enum dtype dtype, void *y, const void *x, int64_t n)
{
	(void)context;
	if (n > 0)
		memmove(y, x, (size_t)(n * dtype_bytes(dtype)));
}

INLINE void add(const enum dtype dtype, void *y, const void *a, const void *b, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		store_as(dtype, y, i, load_as(dtype, a, i, n - i) + load_as(dtype, b, i, n - i),
			n - i);
}

void CPU(add)(struct kernel_context *context, enum dtype dtype, void *y, const void *a,
	const void *b, int64_t n)
{
	(void)context;
	BY_DTYPE(add, dtype, y, a, b, n);
}

INLINE void accumulate_2(
	const enum dtype x_dtype, const enum dtype y_dtype, void *y, const void *x, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		store_as(y_dtype, y, i,
			load_as(y_dtype, y, i, n - i) + load_as(x_dtype, x, i, n - i), n - i);
}

void CPU(accumulate)(struct kernel_context *context, enum dtype y_dtype, void *y,
	enum dtype x_dtype, const void *x, int64_t n)
{
	(void)context;
	BY_DTYPES(accumulate, y_dtype, x_dtype, y, x, n);
}

INLINE void convert_2(
	const enum dtype x_dtype, const enum dtype y_dtype, void *y, const void *x, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		store_as(y_dtype, y, i, load_as(x_dtype, x, i, n - i), n - i);
}

void CPU(convert)(struct kernel_context *context, enum dtype y_dtype, void *y, enum dtype x_dtype,
	const void *x, int64_t n)
{
	(void)context;
	BY_DTYPES(convert, y_dtype, x_dtype, y, x, n);
}

void CPU(scale)(struct kernel_context *context, float *y, float factor, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i += LANES)
		store_some(y + i, load_some(y + i, n - i) * factor, n - i);
}

void CPU(sum)(struct kernel_context *context, struct exact_sum *total, const float *x, int64_t n)
{
	(void)context;
	exact_sum_add_floats(total, x, n);
}

void CPU(clip)(struct kernel_context *context, float *y, int64_t n, const struct exact_sum *squares,
	double most)
{
	double factor = exact_sum_clip_factor(squares, most);

	if (factor < 1)
		CPU(scale)(context, y, (float)factor, n);
}

/* The tree is walked once per strip: a strip of every source stays in the first-level cache while
 * it is summed. Partial sums are on a stack of strips, one per level of the tree. bf16 sources are
 * widened on the way; a sum is fp32 on the stack, rounded to bf16. */
enum { STRIP = 1024, TREE_DEPTH = 13 };

struct strips {
	const void *const *sources;
	int64_t first, count;
	float *stack; /* TREE_DEPTH strips */
};

/* One of a pair of nodes: a source (of `dtype`), or a sum on the stack. */
struct tree_node {
	const void *data;
	int64_t first;
	bool source;
};

INLINE vec node_load(const enum dtype dtype, const struct tree_node *node, int64_t i, int64_t n)
{
	return node->source ? load_as(dtype, node->data, node->first + i, n)
			    : load_some((const float *)node->data + i, n);
}

INLINE void sum_pair(const enum dtype dtype, float *y, const struct tree_node *a,
	const struct tree_node *b, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES) {
		vec sum = node_load(dtype, a, i, n - i) + node_load(dtype, b, i, n - i);
		store_some(y + i, round_as(dtype, sum), n - i);
	}
}

/* The sum of sources [first, first + count) of this strip: the source itself when it is one, else
 * on the stack at `depth`. */
static struct tree_node sum_tree(
	enum dtype dtype, const struct strips *strips, int first, int count, int depth)
{
	float *sum = strips->stack + depth * STRIP;
	struct tree_node left, right;
	int half = 1;

	if (count == 1)
		return (struct tree_node){strips->sources[first], strips->first, true};
	while (2 * half < count)
		half *= 2;
	left = sum_tree(dtype, strips, first, half, depth);
	right = sum_tree(dtype, strips, first + half, count - half, depth + 1);
	BY_DTYPE(sum_pair, dtype, sum, &left, &right, strips->count);
	return (struct tree_node){sum, 0, false};
}

/* y may be a source: the strip is stored when all of it has been read. */
INLINE void store_strip(
	const enum dtype dtype, void *y, const struct tree_node *sum, int64_t first, int64_t count)
{
	for (int64_t i = 0; i < count; i += LANES)
		store_as(dtype, y, first + i, node_load(dtype, sum, i, count - i), count - i);
}

void CPU(tree_reduce)(struct kernel_context *context, enum dtype dtype, void *y,
	const void *const *sources, int count, int64_t n)
{
	struct strips strips = {.sources = sources, .stack = context->workspace};

	for (strips.first = 0; strips.first < n; strips.first += STRIP) {
		struct tree_node sum;

		strips.count = n - strips.first < STRIP ? n - strips.first : STRIP;
		sum = sum_tree(dtype, &strips, 0, count, 0);
		BY_DTYPE(store_strip, dtype, y, &sum, strips.first, strips.count);
	}
}
