/* Token and position tables, and the loss at the other end. */
#include <math.h>

#include "kernels/common/common.h"
#include "tests/kernels/reference/reference.h"

void reference_embedding(struct kernel_context *context, const struct embedding *e)
{
	for (int64_t t = 0; t < e->tokens; t++) {
		int64_t id = e->ids[id_place(t, e->ids_stride > 0 ? e->length : 0, e->ids_stride)];
		bool in = embedding_knows(id, e->vocabulary, &context->error);

		for (int64_t j = 0; j < e->width; j++) {
			int64_t position = t % e->length * e->width + j;
			float x = in ? element_get(e->dtype, e->table, id * e->width + j) : 0.0f;
			if (e->positions)
				x += element_get(e->dtype, e->positions, position);
			element_put(e->dtype, e->out, t * e->width + j, x);
		}
	}
}

/* Row `row` of a table gets the rows of dout of the tokens that name it, from token `first` on. */
static void add_rows(
	const struct embedding_backward *e, void *table, bool by_id, int64_t row, int64_t first)
{
	for (int64_t j = 0; j < e->width; j++) {
		int64_t at = row * e->width + j;
		float sum = e->gradient_dtype == DTYPE_BF16
				    ? 0.0f
				    : element_get(e->gradient_dtype, table, at);

		for (int64_t t = first; t < e->tokens; t++)
			if (embedding_row(e, by_id, t) == row)
				sum += element_get(e->dtype, e->dout, t * e->width + j);
		if (e->gradient_dtype == DTYPE_BF16)
			sum += element_get(e->gradient_dtype, table, at);
		element_put(e->gradient_dtype, table, at, sum);
	}
}

void reference_embedding_backward(
	struct kernel_context *context, const struct embedding_backward *e)
{
	embedding_begin(e);
	for (int64_t t = 0; e->dtable && t < e->tokens; t++)
		if (embedding_knows(embedding_row(e, true, t), e->vocabulary, &context->error) &&
			!embedding_seen(e, t))
			add_rows(e, e->dtable, true, embedding_row(e, true, t), t);
	for (int64_t t = 0; e->dpositions && t < e->tokens && t < e->length; t++)
		add_rows(e, e->dpositions, false, t, t);
}

/* GCC 12 ends with an internal error (vect_transform_reduction) when it makes vectors of the
 * maximum for aarch64. The oracle need not be fast. */
#if defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__)
#define NO_VECTORS __attribute__((optimize("no-tree-vectorize")))
#else
#define NO_VECTORS
#endif

static NO_VECTORS double log_sum_exp(enum dtype dtype, const void *x, int64_t n)
{
	double top = -INFINITY, sum = 0.0;

	for (int64_t j = 0; j < n; j++)
		top = fmax(top, element_get(dtype, x, j));
	for (int64_t j = 0; j < n; j++)
		sum += exp(element_get(dtype, x, j) - top);
	return top + log(sum);
}

void reference_cross_entropy(struct kernel_context *context, const struct cross_entropy *c)
{
	for (int64_t t = 0; t < c->tokens; t++) {
		void *x = element_at(c->dtype, c->logits, t * c->stride);
		int64_t target = c->targets[id_place(t, c->length, c->targets_stride)];
		bool counts =
			target >= 0 && embedding_knows(target, c->vocabulary, &context->error);
		double lse = log_sum_exp(c->dtype, x, c->vocabulary);

		c->losses[t] = counts ? (float)(lse - element_get(c->dtype, x, target)) : 0.0f;
		for (int64_t j = 0; j < c->vocabulary && !c->keep_logits; j++) {
			double d = exp(element_get(c->dtype, x, j) - lse) - (j == target);
			element_put(c->dtype, x, j, counts ? (float)(d * (double)c->scale) : 0.0f);
		}
	}
}
