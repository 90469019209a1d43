/* Cross entropy, fused with its backward: one row of logits stays in cache for three passes. */
#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

INLINE float row_maximum(const enum dtype dtype, const void *x, int64_t n)
{
	vec top = splat(-INFINITY);

	for (int64_t j = 0; j < n; j += LANES) {
		vec v = load_as(dtype, x, j, n - j);
		if (n - j < LANES)
			v = select_vec(first_lanes(n - j), v, splat(-INFINITY));
		top = max_vec(v, top);
	}
	return max_lanes(top);
}

/* Sum of exp(x - top); with `keep` false, x becomes exp(x - top). bf16 would round it twice, so it
 * is computed again when it is scaled. */
INLINE double row_exponentials(const enum dtype dtype, void *x, int64_t n, float top, bool keep)
{
	double total = 0.0;

	/* Partial sums of 64 vectors in fp32, the rest in double: 10^5 terms keep their digits. */
	for (int64_t first = 0; first < n; first += 64 * LANES) {
		int64_t end = n < first + 64 * LANES ? n : first + 64 * LANES;
		vec sum = {0};

		for (int64_t j = first; j < end; j += LANES) {
			vec e = exp_vec(load_as(dtype, x, j, n - j) - top);
			if (!keep && dtype == DTYPE_FP32)
				store_as(dtype, x, j, e, n - j);
			sum += keep_some(e, n - j);
		}
		total += (double)sum_lanes(sum);
	}
	return total;
}

INLINE void scale_row(const enum dtype dtype, void *x, int64_t n, float top, float factor)
{
	for (int64_t j = 0; j < n; j += LANES) {
		vec e = load_as(dtype, x, j, n - j);

		if (dtype == DTYPE_BF16)
			e = exp_vec(e - top);
		store_as(dtype, x, j, e * factor, n - j);
	}
}

static bool counts(struct kernel_context *context, int64_t target, int64_t vocabulary)
{
	if (target < vocabulary)
		return target >= 0;
	return error_set(&context->error, EXIT_CODE_INTERNAL,
		"target %lld is outside the vocabulary of %lld", (long long)target,
		(long long)vocabulary);
}

INLINE void row(
	const enum dtype dtype, const struct cross_entropy *c, void *x, int64_t target, float *loss)
{
	float top = row_maximum(dtype, x, c->vocabulary), logit = element_get(dtype, x, target);
	double sum = row_exponentials(dtype, x, c->vocabulary, top, c->keep_logits);
	double factor = (double)c->scale / sum;

	*loss = (float)(log(sum) + (double)top - (double)logit);
	if (c->keep_logits)
		return;
	scale_row(dtype, x, c->vocabulary, top, (float)factor);
	if (dtype == DTYPE_BF16)
		element_put(dtype, x, target,
			(exp_vec(splat(logit - top)) * (float)factor)[0] - c->scale);
	else
		element_put(dtype, x, target, element_get(dtype, x, target) - c->scale);
}

/* --- a vocabulary in parts --- */

enum { PART_TOP, PART_SUM, PART_TARGET, PART_FIGURES };

INLINE void part_row(
	const enum dtype dtype, const struct cross_entropy *c, void *x, int64_t target, float *part)
{
	float top = row_maximum(dtype, x, c->vocabulary);

	part[PART_TOP] = top;
	part[PART_SUM] = (float)row_exponentials(dtype, x, c->vocabulary, top, true);
	part[PART_TARGET] = target < 0 ? -INFINITY : element_get(dtype, x, target);
}

/* Joins the parts of one token, in their order. */
static void join_parts(
	const struct cross_entropy *c, int64_t t, float *top, float *logit, double *sum)
{
	const float *first = c->parts + t * PART_FIGURES;
	int64_t stride = c->tokens * PART_FIGURES;

	*top = *logit = -INFINITY;
	*sum = 0.0;
	for (int64_t p = 0; p < c->n_parts; p++) {
		const float *part = first + p * stride;

		*top = fmaxf(*top, part[PART_TOP]);
		*logit = fmaxf(*logit, part[PART_TARGET]);
	}
	for (int64_t p = 0; p < c->n_parts; p++) {
		const float *part = first + p * stride;

		*sum += (double)part[PART_SUM] * exp((double)part[PART_TOP] - (double)*top);
	}
}

INLINE void exponentiate_row(const enum dtype dtype, void *x, int64_t n, float top, float factor)
{
	for (int64_t j = 0; j < n; j += LANES)
		store_as(dtype, x, j, exp_vec(load_as(dtype, x, j, n - j) - top) * factor, n - j);
}

INLINE void joined_row(
	const enum dtype dtype, const struct cross_entropy *c, void *x, int64_t target, int64_t t)
{
	float top, logit;
	double sum;

	join_parts(c, t, &top, &logit, &sum);
	double factor = (double)c->scale / sum;
	c->losses[t] = (float)(log(sum) + (double)top - (double)logit);
	exponentiate_row(dtype, x, c->vocabulary, top, (float)factor);
	if (target >= 0)
		element_put(dtype, x, target,
			(exp_vec(splat(logit - top)) * (float)factor)[0] - c->scale);
}

static void of_parts(const struct cross_entropy *c, void *x, int64_t target, int64_t t)
{
	if (c->part != NULL)
		BY_DTYPE(part_row, c->dtype, c, x, target, c->part + t * PART_FIGURES);
	else
		BY_DTYPE(joined_row, c->dtype, c, x, target, t);
}

void CPU(cross_entropy)(struct kernel_context *context, const struct cross_entropy *c)
{
	for (int64_t t = 0; t < c->tokens; t++) {
		void *x = element_at(c->dtype, c->logits, t * c->stride);
		int64_t target = c->targets[id_place(t, c->length, c->targets_stride)];

		if (c->part != NULL || c->parts != NULL) {
			of_parts(c, x, target, t);
			continue;
		}
		if (counts(context, target, c->vocabulary)) {
			BY_DTYPE(row, c->dtype, c, x, target, &c->losses[t]);
			continue;
		}
		c->losses[t] = 0.0f;
		if (!c->keep_logits)
			memset(x, 0, (size_t)(c->vocabulary * dtype_bytes(c->dtype)));
	}
}
