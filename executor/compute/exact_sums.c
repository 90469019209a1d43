/* Sums gradients exactly. Every term is rounded to a multiple of 2^-GRADIENT_QUANTUM_BITS once, and
 * terms are added as integers. Since nothing is rounded later, the order does not matter. (The idea
 * of a fixed grid is that of reproducible summation by pre-rounding. The grid is absolute, because
 * gradients of a loss of order one have a known scale.) */
#include "executor/compute/leaf.h"

#include <math.h>
#include <string.h>

bool compute_sums_exactly(const struct compute *compute)
{
	return compute->schedule->plan.gradient_sums == SUMS_EXACT;
}

int64_t gradient_parts(const struct compute *compute)
{
	return compute_sums_exactly(compute) ? compute->sequences : 1;
}

/* The scratch lies behind the tensors that backward works with. The parameters of a leaf come one
 * behind the other. */
static float *scratch(const struct leaf *leaf, int parameter)
{
	const struct compute *c = leaf->compute;
	const struct model *model = c->model;
	char *work = (char *)operand_role(leaf, BUFFER_BACKWARD_WORK);
	if (work == NULL)
		return NULL;
	float *at = (float *)(work + c->work_bytes);
	/* A tied parameter is alone there. */
	for (int p = leaf_module(leaf)->first_parameter;
		p < parameter && leaf_module(leaf)->tied_parameter < 0; p++)
		at += model->parameters[p].trainable ? model->parameters[p].elements : 0;
	return at;
}

void *gradient_begin(const struct leaf *leaf, int parameter, bool *more)
{
	struct compute *c = leaf->compute;

	*more = !compute_sums_exactly(c) && !c->fresh[parameter];
	if (compute_sums_exactly(c))
		return scratch(leaf, parameter);
	c->fresh[parameter] = false;
	return operand_gradient(leaf, parameter);
}

/* False when a term is not finite, or so large that the sum might overflow. */
static bool add_terms(int64_t *sum, const float *terms, int64_t n, double limit)
{
	const double grid = ldexp(1, GRADIENT_QUANTUM_BITS);
	bool fit = true;

	for (int64_t i = 0; i < n; i++) {
		double term = grid * (double)terms[i];

		fit &= fabs(term) <= limit; /* this is false for NaN */
		sum[i] += fabs(term) <= limit ? llrint(term) : 0;
	}
	return fit;
}

void gradient_end(const struct leaf *leaf, int parameter)
{
	struct compute *c = leaf->compute;
	const struct plan *plan = &c->schedule->plan;
	int64_t n = c->model->parameters[parameter].elements;
	/* A tied weight has two terms a sequence, or a chunk of one. */
	double limit = ldexp(1, 62) / (2 * (double)(plan->global_batch * max_i64(c->chunks, 1)));

	if (!compute_sums_exactly(c))
		return;
	int64_t *sum = operand_gradient(leaf, parameter);
	const float *terms = scratch(leaf, parameter);
	if (sum == NULL || terms == NULL || c->rehearsal || c->data == NULL)
		return;
	if (!add_terms(sum, terms, n, limit))
		c->overflow = true;
}

/* Rounds in place: the i-th fp32 lies before the i-th integer, so it has been read by then. */
void gradient_round(struct compute *compute, int buffer)
{
	char *bytes = buffers_address(compute->buffers, buffer);
	int64_t n = compute->program->buffers[buffer].bytes / (int64_t)sizeof(int64_t);
	const double quantum = ldexp(1, -GRADIENT_QUANTUM_BITS);

	for (int64_t i = 0; i < n; i++) {
		int64_t sum;
		memcpy(&sum, bytes + i * (int64_t)sizeof(sum), sizeof(sum));
		float value = (float)(quantum * (double)sum);
		memcpy(bytes + i * (int64_t)sizeof(value), &value, sizeof(value));
	}
}

void gradient_add(int64_t *sum, const int64_t *more, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] += more[i];
}
