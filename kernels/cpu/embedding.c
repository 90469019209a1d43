/* Token and position tables. */
#include "kernels/cpu/cpu.h"

static bool known(struct kernel_context *context, int64_t id, int64_t vocabulary)
{
	if (id >= 0 && id < vocabulary)
		return true;
	return error_set(&context->error, EXIT_CODE_INTERNAL,
		"token id %lld is outside the vocabulary of %lld", (long long)id,
		(long long)vocabulary);
}

static void add_row(float *y, const float *x, int64_t width)
{
	for (int64_t j = 0; j < width; j += LANES) {
		int64_t rest = width - j;
		store_some(y + j, load_some(y + j, rest) + load_some(x + j, rest), rest);
	}
}

void CPU(embedding)(struct kernel_context *context, const struct embedding *e)
{
	size_t row_bytes = (size_t)e->width * sizeof(float);

	for (int64_t t = 0; t < e->tokens; t++) {
		float *out = e->out + t * e->width;

		if (known(context, e->ids[t], e->vocabulary))
			memcpy(out, e->table + e->ids[t] * e->width, row_bytes);
		else
			memset(out, 0, row_bytes);
		if (e->positions)
			add_row(out, e->positions + t % e->length * e->width, e->width);
	}
}

void CPU(embedding_backward)(struct kernel_context *context, const struct embedding_backward *e)
{
	if (!e->accumulate_table)
		memset(e->dtable, 0, (size_t)(e->vocabulary * e->width) * sizeof(float));
	if (e->dpositions && !e->accumulate_positions)
		memset(e->dpositions, 0, (size_t)(e->position_rows * e->width) * sizeof(float));
	for (int64_t t = 0; t < e->tokens; t++) {
		const float *dout = e->dout + t * e->width;

		if (known(context, e->ids[t], e->vocabulary))
			add_row(e->dtable + e->ids[t] * e->width, dout, e->width);
		if (e->dpositions)
			add_row(e->dpositions + t % e->length * e->width, dout, e->width);
	}
}
