/* Flat arrays and the reduction over ranks. */
#include "kernels/cpu/cpu.h"

void CPU(add)(struct kernel_context *context, float *y, const float *a, const float *b, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i += LANES)
		store_some(y + i, load_some(a + i, n - i) + load_some(b + i, n - i), n - i);
}

void CPU(scale)(struct kernel_context *context, float *y, float factor, int64_t n)
{
	(void)context;
	for (int64_t i = 0; i < n; i += LANES)
		store_some(y + i, load_some(y + i, n - i) * factor, n - i);
}

/* The tree is walked once per strip: a strip of every source stays in the first-level cache while
 * it is summed. Partial sums lie on a stack of strips, one per level of the tree. */
enum { STRIP = 1024, TREE_DEPTH = 13 };

struct strips {
	const float *const *sources;
	int64_t first, count;
	float *stack; /* TREE_DEPTH strips */
};

static void sum_pair(float *y, const float *a, const float *b, int64_t n)
{
	for (int64_t i = 0; i < n; i += LANES)
		store_some(y + i, load_some(a + i, n - i) + load_some(b + i, n - i), n - i);
}

/* Where the sum of sources [first, first + count) of this strip lies: in the source itself when it
 * is one, else on the stack at `depth`. */
static const float *sum_tree(const struct strips *strips, int first, int count, int depth)
{
	float *sum = strips->stack + depth * STRIP;
	const float *left, *right;
	int half = 1;

	if (count == 1)
		return strips->sources[first] + strips->first;
	while (2 * half < count)
		half *= 2;
	left = sum_tree(strips, first, half, depth);
	right = sum_tree(strips, first + half, count - half, depth + 1);
	sum_pair(sum, left, right, strips->count);
	return sum;
}

void CPU(tree_reduce)(
	struct kernel_context *context, float *y, const float *const *sources, int count, int64_t n)
{
	struct strips strips = {.sources = sources, .stack = context->workspace};

	for (strips.first = 0; strips.first < n; strips.first += STRIP) {
		const float *sum;

		strips.count = n - strips.first < STRIP ? n - strips.first : STRIP;
		sum = sum_tree(&strips, 0, count, 0);
		memmove(y + strips.first, sum, (size_t)strips.count * sizeof(float));
	}
}
