/* Token and position tables. */
#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"

/* y = a, or a + b. */
INLINE void embed_row(const enum dtype dtype, void *y, const void *a, const void *b, int64_t width)
{
	for (int64_t j = 0; j < width; j += LANES) {
		int64_t rest = width - j;
		vec row = a ? load_as(dtype, a, j, rest) : (vec){0};

		if (b)
			row += load_as(dtype, b, j, rest);
		store_as(dtype, y, j, row, rest);
	}
}

void CPU(embedding)(struct kernel_context *context, const struct embedding *e)
{
	for (int64_t t = 0; t < e->tokens; t++) {
		int64_t id = e->ids[id_place(t, e->ids_stride > 0 ? e->length : 0, e->ids_stride)];
		const void *row = NULL, *position = NULL;

		bool others = e->of_part && id < 0;

		if (!others && embedding_knows(id, e->vocabulary, &context->error))
			row = element_of(e->dtype, e->table, id * e->width);
		if (e->positions)
			position = element_of(e->dtype, e->positions, t % e->length * e->width);
		BY_DTYPE(embed_row, e->dtype, element_at(e->dtype, e->out, t * e->width), row,
			position, e->width);
	}
}

INLINE void add_row_2(
	const enum dtype x_dtype, const enum dtype dtype, void *y, const void *x, int64_t width)
{
	for (int64_t j = 0; j < width; j += LANES) {
		int64_t rest = width - j;
		store_as(dtype, y, j, load_as(dtype, y, j, rest) + load_as(x_dtype, x, j, rest),
			rest);
	}
}

static void add_one(const struct embedding_backward *e, void *table, int64_t row, int64_t t)
{
	void *y = element_at(e->gradient_dtype, table, row * e->width);
	const void *x = element_of(e->dtype, e->dout, t * e->width);

	BY_DTYPES(add_row, e->gradient_dtype, e->dtype, y, x, e->width);
}

/* All tokens of that row from token `first` on, summed in the workspace. */
static void add_together(struct kernel_context *context, const struct embedding_backward *e,
	void *table, bool by_id, int64_t first)
{
	int64_t row = embedding_row(e, by_id, first);
	float *sum = context->workspace;

	memset(sum, 0, (size_t)e->width * sizeof(*sum));
	for (int64_t t = first; t < e->tokens; t++)
		if (embedding_row(e, by_id, t) == row)
			BY_DTYPES(add_row, DTYPE_FP32, e->dtype, sum,
				element_of(e->dtype, e->dout, t * e->width), e->width);
	BY_DTYPES(add_row, DTYPE_BF16, DTYPE_FP32, element_at(DTYPE_BF16, table, row * e->width),
		sum, e->width);
}

void CPU(embedding_backward)(struct kernel_context *context, const struct embedding_backward *e)
{
	const bool together = e->gradient_dtype == DTYPE_BF16;

	embedding_begin(e);
	for (int64_t t = 0; e->dtable && t < e->tokens; t++) {
		int64_t id = embedding_row(e, true, t);

		if ((e->of_part && id < 0) || !embedding_knows(id, e->vocabulary, &context->error))
			continue;
		if (!together)
			add_one(e, e->dtable, id, t);
		else if (!embedding_seen(e, t))
			add_together(context, e, e->dtable, true, t);
	}
	for (int64_t t = 0; e->dpositions && t < e->tokens; t++) {
		if (!together)
			add_one(e, e->dpositions, t % e->length, t);
		else if (t < e->length)
			add_together(context, e, e->dpositions, false, t);
	}
}
