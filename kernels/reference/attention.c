/* Causal attention, one query at a time. With p = exp(scale q k - lse) and delta = sum(dout out):
 *   dv_j += p dout;  ds = p (dout v_j - delta) scale;  dq += ds k_j;  dk_j += ds q. */
#include <math.h>

#include "kernels/reference/reference.h"

static const float *head_row(
	const float *x, int64_t stride, int64_t row, int64_t head, int64_t width)
{
	return x + row * stride + head * width;
}

static double dot(const float *a, const float *b, int64_t n)
{
	double sum = 0.0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)a[i] * b[i];
	return sum;
}

/* The row of k or v that query head `head` sees at `row`. */
static const float *key(const struct attention *a, int64_t row, int64_t head)
{
	return head_row(a->k, a->k_stride, row, head / (a->heads / a->kv_heads), a->head_dim);
}

static const float *value(const struct attention *a, int64_t row, int64_t head)
{
	return head_row(a->v, a->v_stride, row, head / (a->heads / a->kv_heads), a->head_dim);
}

static double score(const struct attention *a, int64_t row, int64_t other, int64_t head)
{
	const float *q = head_row(a->q, a->q_stride, row, head, a->head_dim);

	return (double)a->scale * dot(q, key(a, other, head), a->head_dim);
}

static double log_sum_exp(const struct attention *a, int64_t first, int64_t row, int64_t head)
{
	double top = -INFINITY, sum = 0.0;

	for (int64_t j = first; j <= row; j++)
		top = fmax(top, score(a, row, j, head));
	for (int64_t j = first; j <= row; j++)
		sum += exp(score(a, row, j, head) - top);
	return top + log(sum);
}

/* The output row is summed in double in the workspace. */
static void attend(struct kernel_context *context, const struct attention *a, int64_t first,
	int64_t row, int64_t head)
{
	float *out = a->out + row * a->out_stride + head * a->head_dim;
	double lse = log_sum_exp(a, first, row, head), *sum = context->workspace;

	for (int64_t d = 0; d < a->head_dim; d++)
		sum[d] = 0.0;
	for (int64_t j = first; j <= row; j++) {
		double p = exp(score(a, row, j, head) - lse);
		for (int64_t d = 0; d < a->head_dim; d++)
			sum[d] += p * value(a, j, head)[d];
	}
	for (int64_t d = 0; d < a->head_dim; d++)
		out[d] = (float)sum[d];
	a->lse[row * a->heads + head] = (float)lse;
}

void reference_attention(struct kernel_context *context, const struct attention *a)
{
	for (int64_t row = 0; row < a->sequences * a->length; row++) {
		for (int64_t head = 0; head < a->heads; head++)
			attend(context, a, row / a->length * a->length, row, head);
	}
}

static void zero_rows(float *x, int64_t stride, int64_t rows, int64_t width)
{
	for (int64_t i = 0; i < rows; i++) {
		for (int64_t j = 0; j < width; j++)
			x[i * stride + j] = 0.0f;
	}
}

/* What the pair (query row, key row j) of one head adds to the three gradients. */
static void pair_backward(
	const struct attention_backward *b, int64_t row, int64_t j, int64_t head, double delta)
{
	const struct attention *a = &b->forward;
	int64_t kv = head / (a->heads / a->kv_heads) * a->head_dim;
	const float *q = head_row(a->q, a->q_stride, row, head, a->head_dim);
	const float *dout = head_row(b->dout, b->dout_stride, row, head, a->head_dim);
	double p = exp(score(a, row, j, head) - (double)a->lse[row * a->heads + head]);
	double ds = p * (dot(dout, value(a, j, head), a->head_dim) - delta) * (double)a->scale;

	for (int64_t d = 0; d < a->head_dim; d++) {
		b->dv[j * b->dv_stride + kv + d] += (float)(p * dout[d]);
		b->dk[j * b->dk_stride + kv + d] += (float)(ds * q[d]);
		b->dq[row * b->dq_stride + head * a->head_dim + d] +=
			(float)(ds * key(a, j, head)[d]);
	}
}

void reference_attention_backward(
	struct kernel_context *context, const struct attention_backward *b)
{
	const struct attention *a = &b->forward;
	int64_t rows = a->sequences * a->length;

	(void)context;
	zero_rows(b->dq, b->dq_stride, rows, a->heads * a->head_dim);
	zero_rows(b->dk, b->dk_stride, rows, a->kv_heads * a->head_dim);
	zero_rows(b->dv, b->dv_stride, rows, a->kv_heads * a->head_dim);
	for (int64_t row = 0; row < rows; row++) {
		for (int64_t head = 0; head < a->heads; head++) {
			double delta =
				dot(head_row(b->dout, b->dout_stride, row, head, a->head_dim),
					head_row(a->out, a->out_stride, row, head, a->head_dim),
					a->head_dim);
			for (int64_t j = row / a->length * a->length; j <= row; j++)
				pair_backward(b, row, j, head, delta);
		}
	}
}
