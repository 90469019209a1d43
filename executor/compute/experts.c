/* A mixture of experts. The router chooses experts for each token. An expert computes its rows in
 * one product for each rank that they come from, and a token gets their results weighed with the
 * softmax over the chosen experts. rows.c sends rows between ranks. */
#include "executor/compute/routes.h"

#include <math.h>
#include <string.h>

static const struct architecture *architecture_of(const struct leaf *leaf)
{
	return &leaf->compute->model->architecture;
}

static float *probabilities_of(const struct leaf *leaf)
{
	return operand_saved(
		leaf, leaf_siblings(leaf)->of[MODULE_ROUTER], TENSOR_ROUTER_PROBABILITIES);
}

/* --- products --- */

/* Returns the elements of the matrix of one expert. */
static int64_t matrix_of(const struct leaf *leaf)
{
	int64_t out, in;

	module_linear_shape(architecture_of(leaf), leaf_module(leaf)->kind, &out, &in);
	return out * in;
}

/* Multiplies all rows, each with the matrix of its expert. */
static void multiply(const struct leaf *leaf, const struct pieces *p, const struct gemm *all)
{
	const struct compute *c = leaf->compute;

	for (int64_t i = 0; i < p->sources * p->held; i++) {
		int64_t first = p->first[i * p->parts];
		struct gemm gemm = *all;

		gemm.m = p->first[(i + 1) * p->parts] - first;
		gemm.a = compute_at(c, gemm.a, first * gemm.lda);
		gemm.b = compute_at(c, gemm.b, i % p->held * matrix_of(leaf));
		gemm.c = compute_at(c, gemm.c, first * gemm.ldc);
		if (gemm.m > 0)
			c->kernels->gemm(c->context, &gemm);
	}
}

/* Computes dW (=
 * +=) dy^T x of an expert, for one part of its rows. There may be no rows. */
static void matrix_gradient(const struct leaf *leaf, const struct gemm *of_rows, void *gradient,
	int64_t first, int64_t rows)
{
	const struct compute *c = leaf->compute;
	struct gemm gemm = *of_rows;

	gemm.c = gradient;
	gemm.k = rows;
	gemm.a = compute_at(c, gemm.a, first * gemm.lda);
	gemm.b = compute_at(c, gemm.b, first * gemm.ldb);
	if (rows > 0)
		c->kernels->gemm(c->context, &gemm);
	else if (!gemm.accumulate)
		c->kernels->zero(c->context, c->gradient_dtype, gradient, gemm.m * gemm.n);
}

/* One term of a sum comes from a part of one rank's tokens. */
static void matrix_gradients(const struct leaf *leaf, const struct pieces *p, const void *dy)
{
	const struct compute *c = leaf->compute;
	int weight = leaf_parameter(leaf, 0);
	struct gemm gemm = leaf_weight_gradient(leaf, dy, operand_input(leaf), 0);

	for (int64_t t = 0; t < p->sources * p->parts && leaf_trains(leaf, weight); t++) {
		int64_t first = t / p->parts * p->held * p->parts + t % p->parts;
		void *gradient = gradient_begin(leaf, weight, &gemm.accumulate);

		for (int64_t e = 0; e < p->held && gradient != NULL; e++) {
			int64_t at = first + e * p->parts;

			matrix_gradient(leaf, &gemm,
				element_at(c->gradient_dtype, gradient, e * matrix_of(leaf)),
				p->first[at], p->first[at + 1] - p->first[at]);
		}
		gradient_end(leaf, weight);
	}
}

/* --- forward --- */

static void softmax(float *x, int64_t n)
{
	float most = x[0], sum = 0;

	for (int64_t i = 1; i < n; i++)
		most = fmaxf(most, x[i]);
	for (int64_t i = 0; i < n; i++)
		sum += x[i] = expf(x[i] - most);
	for (int64_t i = 0; i < n; i++)
		x[i] /= sum;
}

/* Rows for experts of other ranks are sent. */
static void dispatch(const struct leaf *leaf, const void *tokens)
{
	const struct routes *r = routes_find(leaf);

	if (leaf->compute->expert_ranks > 1 || r == NULL)
		return;
	void *rows = operand_saved(leaf, leaf->module, TENSOR_DISPATCHED);
	if (rows != NULL)
		routes_dispatch(leaf, r, rows, tokens);
}

void forward_router(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	int64_t experts = architecture_of(leaf)->experts;
	float *probabilities = probabilities_of(leaf);
	struct gemm gemm = leaf_product(leaf, probabilities);

	gemm.c_dtype = DTYPE_FP32;
	if (probabilities == NULL)
		return;
	c->kernels->gemm(c->context, &gemm);
	for (int64_t t = 0; t < c->tokens && !routes_are_idle(c); t++)
		softmax(probabilities + t * experts, experts);
	dispatch(leaf, gemm.a);
}

/* Copies what has come from other ranks to where backward finds it. */
static void keep_rows(const struct leaf *leaf, const struct pieces *p)
{
	const struct compute *c = leaf->compute;
	const void *rows = operand_rows(leaf, false);
	void *kept = (void *)operand_input(leaf);
	int64_t bytes = pieces_rows(p) * architecture_of(leaf)->hidden * dtype_bytes(c->dtype);

	if (rows != NULL && kept != NULL && !c->rehearsal)
		memcpy(kept, rows, (size_t)bytes);
}

void forward_experts_projection(const struct leaf *leaf)
{
	bool is_gate = leaf_module(leaf)->kind == MODULE_EXPERTS_GATE;
	const struct routes *r = routes_find(leaf);
	const struct gemm gemm = leaf_product(
		leaf, operand_saved(leaf, leaf->module, is_gate ? TENSOR_GATE : TENSOR_UP));

	if (r == NULL)
		return;
	const struct pieces p = routes_pieces(leaf, r);
	if (is_gate && leaf->compute->expert_ranks > 1)
		keep_rows(leaf, &p);
	multiply(leaf, &p, &gemm);
}

void forward_experts_activation(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct siblings *s = leaf_siblings(leaf);
	const struct pieces p = routes_pieces(leaf, c->routes);

	c->kernels->swiglu(c->context, c->dtype, operand_saved(leaf, leaf->module, TENSOR_PRODUCT),
		operand_saved(leaf, s->of[MODULE_EXPERTS_GATE], TENSOR_GATE),
		operand_saved(leaf, s->of[MODULE_EXPERTS_UP], TENSOR_UP),
		pieces_rows(&p) * architecture_of(leaf)->expert_ffn);
}

/* Recomputation leaves the sum out, because the router's gradient needs what experts have made. */
void forward_experts_down(const struct leaf *leaf)
{
	const struct siblings *s = leaf_siblings(leaf);
	bool here = leaf->compute->expert_ranks == 1;
	const struct routes *r = routes_find(leaf);
	void *rows = here ? operand_saved(leaf, leaf->module, TENSOR_EXPERT_OUT)
			  : operand_rows(leaf, true);
	const struct gemm gemm = leaf_product(leaf, rows);

	if (r == NULL || rows == NULL)
		return;
	const struct pieces p = routes_pieces(leaf, r);
	multiply(leaf, &p, &gemm);
	if (here && leaf->op->kind != OP_RECOMPUTE)
		routes_combine(leaf, r, operand_residual_out(leaf),
			operand_saved(leaf, s->of[MODULE_ATTENTION_OUTPUT], TENSOR_RESIDUAL_MIDDLE),
			rows);
}

/* --- backward --- */

/* The gradients were made here, or by the ranks that the rows belong to. */
static void *result_gradients(const struct leaf *leaf, const struct routes *r)
{
	if (leaf->compute->expert_ranks > 1)
		return operand_rows(leaf, false);
	void *rows = operand_work(leaf, TENSOR_D_DISPATCHED);
	const void *dy = operand_work(leaf, TENSOR_D_RESIDUAL);
	const void *made = operand_saved(leaf, leaf->module, TENSOR_EXPERT_OUT);

	if (rows == NULL || dy == NULL || made == NULL)
		return NULL;
	routes_spread(leaf, r, rows, made, dy);
	return rows;
}

void backward_experts_down(const struct leaf *leaf)
{
	const struct routes *r = routes_find(leaf);
	const void *rows = r != NULL ? result_gradients(leaf, r) : NULL;

	if (rows == NULL)
		return;
	const struct gemm gemm =
		leaf_input_gradient(leaf, rows, operand_work(leaf, TENSOR_D_PRODUCT));
	const struct pieces p = routes_pieces(leaf, r);
	matrix_gradients(leaf, &p, rows);
	multiply(leaf, &p, &gemm);
}

void backward_experts_activation(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct siblings *s = leaf_siblings(leaf);
	const struct pieces p = routes_pieces(leaf, c->routes);
	int64_t width = architecture_of(leaf)->expert_ffn;

	c->kernels->swiglu_backward(c->context,
		&(struct swiglu_backward){.rows = pieces_rows(&p),
			.width = width,
			.stride = width,
			.dy = operand_work(leaf, TENSOR_D_PRODUCT),
			.gate = operand_saved(leaf, s->of[MODULE_EXPERTS_GATE], TENSOR_GATE),
			.up = operand_saved(leaf, s->of[MODULE_EXPERTS_UP], TENSOR_UP),
			.dgate = operand_work(leaf, TENSOR_D_GATE),
			.dup = operand_work(leaf, TENSOR_D_UP),
			.dtype = c->dtype});
}

/* Of up, which comes first in backward, then of gate: to where gradients of results were, which
 * have been read, or what is sent back. */
void backward_experts_projection(const struct leaf *leaf)
{
	bool is_gate = leaf_module(leaf)->kind == MODULE_EXPERTS_GATE;
	bool here = leaf->compute->expert_ranks == 1;
	const struct routes *r = routes_find(leaf);
	const void *dy = operand_work(leaf, is_gate ? TENSOR_D_GATE : TENSOR_D_UP);
	void *dx = here ? operand_work(leaf, TENSOR_D_DISPATCHED) : operand_rows(leaf, true);
	struct gemm gemm = leaf_input_gradient(leaf, dy, dx);

	if (r == NULL || dy == NULL || dx == NULL)
		return;
	gemm.accumulate = is_gate;
	const struct pieces p = routes_pieces(leaf, r);
	matrix_gradients(leaf, &p, dy);
	multiply(leaf, &p, &gemm);
}

/* Computes gradients of the logits from the softmax over a token's experts. Other experts have
 * none. */
static void logit_gradients(const struct leaf *leaf, const struct routes *r, void *logits)
{
	const struct compute *c = leaf->compute;

	if (routes_are_idle(c))
		return;
	memset(logits, 0, (size_t)(r->tokens * r->experts * dtype_bytes(c->dtype)));
	for (int64_t t = 0; t < r->tokens; t++) {
		int64_t begin = t * r->per_token, end = begin + r->per_token;
		double mean = 0;

		for (int64_t k = begin; k < end; k++)
			mean += (double)r->weight[k] * (double)r->gradient[k];
		for (int64_t k = begin; k < end; k++)
			element_put(c->dtype, logits, t * r->experts + r->expert[k],
				(float)((double)r->weight[k] * ((double)r->gradient[k] - mean)));
	}
}

/* Gradients of logits go where the probabilities were, which nobody reads any more. */
void backward_router(const struct leaf *leaf)
{
	const struct routes *r = routes_find(leaf);
	void *logits = probabilities_of(leaf), *dx = operand_work(leaf, TENSOR_D_NORM);
	const void *rows = leaf->compute->expert_ranks > 1
				   ? operand_rows(leaf, false)
				   : operand_work(leaf, TENSOR_D_DISPATCHED);

	if (r == NULL || dx == NULL || rows == NULL)
		return;
	logit_gradients(leaf, r, logits);
	routes_gather_back(leaf, r, dx, rows);
	leaf_project_backward(leaf, logits, dx, true);
}
