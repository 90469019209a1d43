/* Causal attention, one query at a time. With p = exp(scale q k - lse) and delta = sum(dout out):
 *   dv_j += p dout;  ds = p (dout v_j - delta) scale;  dq += ds k_j;  dk_j += ds q. */
#include <math.h>

#include "kernels/common/common.h"
#include "tests/kernels/reference/reference.h"

static const void *head_row(
	const struct attention *a, const void *x, int64_t stride, int64_t row, int64_t head)
{
	return element_of(a->dtype, x, row * stride + head * a->head_dim);
}

static double dot(const struct attention *at, const void *a, const void *b)
{
	const float *x = a, *y = b;
	double sum = 0.0;

	for (int64_t i = 0; i < at->head_dim && at->dtype == DTYPE_FP32; i++)
		sum += (double)x[i] * y[i];
	for (int64_t i = 0; i < at->head_dim && at->dtype != DTYPE_FP32; i++)
		sum += (double)element_get(at->dtype, a, i) * element_get(at->dtype, b, i);
	return sum;
}

/* The row of k or v that query head `head` sees at `row`. */
static const void *key(const struct attention *a, int64_t row, int64_t head)
{
	return head_row(a, a->k, a->k_stride, row, head / (a->heads / a->kv_heads));
}

static const void *value(const struct attention *a, int64_t row, int64_t head)
{
	return head_row(a, a->v, a->v_stride, row, head / (a->heads / a->kv_heads));
}

static double score(const struct attention *a, int64_t row, int64_t other, int64_t head)
{
	const void *q = head_row(a, a->q, a->q_stride, row, head);

	return (double)a->scale * dot(a, q, key(a, other, head));
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
	int64_t out = row * a->out_stride + head * a->head_dim;
	double lse = log_sum_exp(a, first, row, head), *sum = context->workspace;

	for (int64_t d = 0; d < a->head_dim; d++)
		sum[d] = 0.0;
	for (int64_t j = first; j <= row; j++) {
		double p = exp(score(a, row, j, head) - lse);
		for (int64_t d = 0; d < a->head_dim; d++)
			sum[d] += p * element_get(a->dtype, value(a, j, head), d);
	}
	for (int64_t d = 0; d < a->head_dim; d++)
		element_put(a->dtype, a->out, out + d, (float)sum[d]);
	a->lse[row * a->heads + head] = (float)lse;
}

void reference_attention(struct kernel_context *context, const struct attention *a)
{
	for (int64_t row = 0; row < a->sequences * a->length; row++) {
		for (int64_t head = 0; head < a->heads; head++)
			attend(context, a, row / a->length * a->length, row, head);
	}
}

/* Sums grow in double, one row of dq, dk or dv at a time. */
static double score_gradient(
	const struct attention_backward *b, int64_t row, int64_t j, int64_t head, double *p)
{
	const struct attention *a = &b->forward;
	const void *dout = head_row(a, b->dout, b->dout_stride, row, head);
	const void *out = head_row(a, a->out, a->out_stride, row, head);

	*p = exp(score(a, row, j, head) - (double)a->lse[row * a->heads + head]);
	return *p * (dot(a, dout, value(a, j, head)) - dot(a, dout, out)) * (double)a->scale;
}

static void query_gradient(
	double *sum, const struct attention_backward *b, int64_t row, int64_t head)
{
	const struct attention *a = &b->forward;
	int64_t at = row * b->dq_stride + head * a->head_dim;
	double p;

	for (int64_t d = 0; d < a->head_dim; d++)
		sum[d] = 0.0;
	for (int64_t j = row / a->length * a->length; j <= row; j++) {
		double ds = score_gradient(b, row, j, head, &p);
		for (int64_t d = 0; d < a->head_dim; d++)
			sum[d] += ds * element_get(a->dtype, key(a, j, head), d);
	}
	for (int64_t d = 0; d < a->head_dim; d++)
		element_put(a->dtype, b->dq, at + d, (float)sum[d]);
}

/* dk and dv of key row j of one kv head, from all later queries of all heads that share it. */
static void key_gradient(double *sum, const struct attention_backward *b, int64_t j, int64_t kv)
{
	const struct attention *a = &b->forward;
	int64_t group = a->heads / a->kv_heads, end = (j / a->length + 1) * a->length;
	double *dk = sum, *dv = sum + a->head_dim, p;

	for (int64_t d = 0; d < 2 * a->head_dim; d++)
		sum[d] = 0.0;
	for (int64_t row = j; row < end; row++) {
		for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
			const void *q = head_row(a, a->q, a->q_stride, row, head);
			const void *dout = head_row(a, b->dout, b->dout_stride, row, head);
			double ds = score_gradient(b, row, j, head, &p);

			for (int64_t d = 0; d < a->head_dim; d++) {
				dk[d] += ds * element_get(a->dtype, q, d);
				dv[d] += p * element_get(a->dtype, dout, d);
			}
		}
	}
	for (int64_t d = 0; d < a->head_dim; d++) {
		int64_t at = kv * a->head_dim + d;
		element_put(a->dtype, b->dk, j * b->dk_stride + at, (float)dk[d]);
		element_put(a->dtype, b->dv, j * b->dv_stride + at, (float)dv[d]);
	}
}

void reference_attention_backward(
	struct kernel_context *context, const struct attention_backward *b)
{
	const struct attention *a = &b->forward;

	for (int64_t row = 0; row < a->sequences * a->length; row++) {
		for (int64_t head = 0; head < a->heads; head++)
			query_gradient(context->workspace, b, row, head);
		for (int64_t kv = 0; kv < a->kv_heads; kv++)
			key_gradient(context->workspace, b, row, kv);
	}
}
