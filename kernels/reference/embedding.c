/* Token and position tables, and the loss at the other end. */
#include <math.h>
#include <string.h>

#include "kernels/common/common.h"
#include "kernels/reference/reference.h"

static bool known(struct kernel_context *context, int64_t id, int64_t vocabulary)
{
	if (id >= 0 && id < vocabulary)
		return true;
	return error_set(&context->error, EXIT_CODE_INTERNAL,
		"token id %lld is outside the vocabulary of %lld", (long long)id,
		(long long)vocabulary);
}

void reference_embedding(struct kernel_context *context, const struct embedding *e)
{
	for (int64_t t = 0; t < e->tokens; t++) {
		int64_t id = e->ids[id_place(t, e->ids_stride > 0 ? e->length : 0, e->ids_stride)];
		bool in = known(context, id, e->vocabulary);

		for (int64_t j = 0; j < e->width; j++) {
			int64_t position = t % e->length * e->width + j;
			float x = in ? element_get(e->dtype, e->table, id * e->width + j) : 0.0f;
			if (e->positions)
				x += element_get(e->dtype, e->positions, position);
			element_put(e->dtype, e->out, t * e->width + j, x);
		}
	}
}

/* The row of its table that token t names, by its id or its position. */
static int64_t row_of(const struct embedding_backward *e, bool by_id, int64_t t)
{
	if (by_id)
		return e->ids[id_place(t, e->ids_stride > 0 ? e->length : 0, e->ids_stride)];
	return t % e->length;
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
			if (row_of(e, by_id, t) == row)
				sum += element_get(e->dtype, e->dout, t * e->width + j);
		if (e->gradient_dtype == DTYPE_BF16)
			sum += element_get(e->gradient_dtype, table, at);
		element_put(e->gradient_dtype, table, at, sum);
	}
}

static bool seen(const struct embedding_backward *e, int64_t t)
{
	for (int64_t u = 0; u < t; u++)
		if (row_of(e, true, u) == row_of(e, true, t))
			return true;
	return false;
}

static void zero_table(const struct embedding_backward *e, void *table, int64_t rows)
{
	memset(table, 0, (size_t)(rows * e->width * dtype_bytes(e->gradient_dtype)));
}

void reference_embedding_backward(
	struct kernel_context *context, const struct embedding_backward *e)
{
	if (e->dtable && !e->accumulate_table)
		zero_table(e, e->dtable, e->vocabulary);
	if (e->dpositions && !e->accumulate_positions)
		zero_table(e, e->dpositions, e->position_rows);
	for (int64_t t = 0; e->dtable && t < e->tokens; t++)
		if (known(context, row_of(e, true, t), e->vocabulary) && !seen(e, t))
			add_rows(e, e->dtable, true, row_of(e, true, t), t);
	for (int64_t t = 0; e->dpositions && t < e->tokens && t < e->length; t++)
		add_rows(e, e->dpositions, false, t, t);
}

static double log_sum_exp(enum dtype dtype, const void *x, int64_t n)
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
		bool counts = target >= 0 && known(context, target, c->vocabulary);
		double lse = log_sum_exp(c->dtype, x, c->vocabulary);

		c->losses[t] = counts ? (float)(lse - element_get(c->dtype, x, target)) : 0.0f;
		for (int64_t j = 0; j < c->vocabulary && !c->keep_logits; j++) {
			double d = exp(element_get(c->dtype, x, j) - lse) - (j == target);
			element_put(c->dtype, x, j, counts ? (float)(d * (double)c->scale) : 0.0f);
		}
	}
}
