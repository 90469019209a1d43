/* Token and position tables, and the loss at the other end. */
#include <math.h>
#include <string.h>

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
		bool in = known(context, e->ids[t], e->vocabulary);

		for (int64_t j = 0; j < e->width; j++) {
			float x = in ? e->table[e->ids[t] * e->width + j] : 0.0f;
			if (e->positions)
				x += e->positions[t % e->length * e->width + j];
			e->out[t * e->width + j] = x;
		}
	}
}

static void add_row(float *y, const float *x, int64_t width)
{
	for (int64_t j = 0; j < width; j++)
		y[j] += x[j];
}

void reference_embedding_backward(
	struct kernel_context *context, const struct embedding_backward *e)
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

static double log_sum_exp(const float *x, int64_t n)
{
	double top = -INFINITY, sum = 0.0;

	for (int64_t j = 0; j < n; j++)
		top = fmax(top, x[j]);
	for (int64_t j = 0; j < n; j++)
		sum += exp(x[j] - top);
	return top + log(sum);
}

void reference_cross_entropy(struct kernel_context *context, const struct cross_entropy *c)
{
	for (int64_t t = 0; t < c->tokens; t++) {
		float *x = c->logits + t * c->stride;
		int64_t target = c->targets[t];
		bool counts = target >= 0 && known(context, target, c->vocabulary);
		double lse = log_sum_exp(x, c->vocabulary);

		c->losses[t] = counts ? (float)(lse - x[target]) : 0.0f;
		for (int64_t j = 0; j < c->vocabulary && !c->keep_logits; j++) {
			double d = exp(x[j] - lse) - (j == target);
			x[j] = counts ? (float)(d * (double)c->scale) : 0.0f;
		}
	}
}
