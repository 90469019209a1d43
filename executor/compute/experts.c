/* A mixture of experts. The router chooses experts for each token; rows, a token for each of its
 * experts, lie one expert behind the other, those of an expert in the order of tokens. An expert
 * computes its rows in one product, and a token gets their results weighed with the softmax over
 * the chosen ones. Which they are follows from the router's probabilities: nothing else is kept. */
#include "executor/compute/leaf.h"

#include <math.h>
#include <string.h>

struct routes {
	int64_t experts, per_token, tokens, parts;
	/* Of a token's experts, in the order of experts: [tokens * per_token] */
	int32_t *expert, *row;
	float *weight, *gradient; /* and that of the weight, from DOWN to the router */
	int32_t *token;           /* of a row */
	/* The row that a part of the tokens of an expert begins with, and the end. */
	int64_t *first;
};

static const struct architecture *architecture_of(const struct leaf *leaf)
{
	return &leaf->compute->model->architecture;
}

void experts_init(struct compute *c)
{
	const struct architecture *a = &c->model->architecture;
	int64_t rows = c->tokens * a->experts_per_token, parts = gradient_parts(c);

	if (a->experts == 0)
		return;
	c->routes = ARENA_NEW(&c->arena, struct routes);
	*c->routes = (struct routes){.experts = a->experts,
		.per_token = a->experts_per_token,
		.tokens = c->tokens,
		.parts = parts,
		.expert = ARENA_ARRAY(&c->arena, int32_t, rows),
		.row = ARENA_ARRAY(&c->arena, int32_t, rows),
		.weight = ARENA_ARRAY(&c->arena, float, rows),
		.gradient = ARENA_ARRAY(&c->arena, float, rows),
		.token = ARENA_ARRAY(&c->arena, int32_t, rows),
		.first = ARENA_ARRAY(&c->arena, int64_t, a->experts * parts + 1)};
}

/* --- routes --- */

/* Nothing has been computed that could be read: rows are dealt out evenly. */
static bool is_idle(const struct compute *c)
{
	return c->rehearsal || c->data == NULL;
}

static bool is_among(const int32_t *experts, int64_t n, int32_t expert)
{
	for (int64_t i = 0; i < n; i++)
		if (experts[i] == expert)
			return true;
	return false;
}

/* The likeliest expert that is not among them; of equals the first. */
static int32_t likeliest(
	const struct routes *r, const float *probabilities, const int32_t *chosen, int64_t n)
{
	int32_t best = -1;

	for (int32_t e = 0; e < r->experts; e++)
		if (!is_among(chosen, n, e) && (best < 0 || probabilities[e] > probabilities[best]))
			best = e;
	return best;
}

static void sort(int32_t *items, int64_t n)
{
	for (int64_t i = 1; i < n; i++)
		for (int64_t j = i; j > 0 && items[j] < items[j - 1]; j--) {
			int32_t before = items[j - 1];

			items[j - 1] = items[j];
			items[j] = before;
		}
}

static void choose(const struct routes *r, int64_t token, const float *probabilities)
{
	int32_t *expert = r->expert + token * r->per_token;
	float *weight = r->weight + token * r->per_token, sum = 0;

	for (int64_t i = 0; i < r->per_token; i++)
		expert[i] = probabilities != NULL
				    ? likeliest(r, probabilities, expert, i)
				    : (int32_t)((token * r->per_token + i) % r->experts);
	sort(expert, r->per_token);
	for (int64_t i = 0; i < r->per_token && probabilities != NULL; i++)
		sum += probabilities[expert[i]];
	for (int64_t i = 0; i < r->per_token && probabilities != NULL; i++)
		weight[i] = probabilities[expert[i]] / sum;
}

/* Counted first, then placed: a part of the tokens after the other, in each expert. */
static void place(const struct routes *r)
{
	int64_t each = r->tokens / r->parts * r->per_token, rows = r->tokens * r->per_token;

	memset(r->first, 0, (size_t)(r->experts * r->parts + 1) * sizeof(*r->first));
	for (int64_t i = 0; i < rows; i++)
		r->first[r->expert[i] * r->parts + i / each + 1]++;
	for (int64_t i = 0; i < r->experts * r->parts; i++)
		r->first[i + 1] += r->first[i];
	for (int64_t i = 0; i < rows; i++) {
		int64_t row = r->first[r->expert[i] * r->parts + i / each]++;

		r->row[i] = (int32_t)row;
		r->token[row] = (int32_t)(i / r->per_token);
	}
	memmove(r->first + 1, r->first, (size_t)(r->experts * r->parts) * sizeof(*r->first));
	r->first[0] = 0;
}

static float *probabilities_of(const struct leaf *leaf)
{
	return operand_saved(
		leaf, leaf_siblings(leaf)->of[MODULE_ROUTER], TENSOR_ROUTER_PROBABILITIES);
}

/* Of the micro-batch and block that the leaf is in. NULL: compute->error is set. */
static const struct routes *find_routes(const struct leaf *leaf)
{
	const struct routes *r = leaf->compute->routes;
	const float *probabilities = probabilities_of(leaf);

	if (probabilities == NULL)
		return NULL;
	for (int64_t t = 0; t < r->tokens; t++)
		choose(r, t, is_idle(leaf->compute) ? NULL : probabilities + t * r->experts);
	place(r);
	return r;
}

/* --- tokens and rows --- */

/* out[i] (= | +=) factor * in[i]. */
static void add_scaled(
	enum dtype dtype, void *out, const void *in, int64_t n, float factor, bool adds)
{
	for (int64_t i = 0; i < n; i++)
		element_put(dtype, out, i,
			(adds ? element_get(dtype, out, i) : 0) +
				factor * element_get(dtype, in, i));
}

static double dot(enum dtype dtype, const void *a, const void *b, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)element_get(dtype, a, i) * (double)element_get(dtype, b, i);
	return sum;
}

/* A copy of each token for each of its experts. */
static void dispatch(const struct leaf *leaf, void *rows, const void *tokens)
{
	const struct compute *c = leaf->compute;
	const struct routes *r = find_routes(leaf);
	int64_t width = architecture_of(leaf)->hidden;

	for (int64_t i = 0; r != NULL && i < r->tokens * r->per_token && !is_idle(c); i++)
		memcpy(compute_at(c, rows, i * width), compute_at(c, tokens, r->token[i] * width),
			(size_t)(width * dtype_bytes(c->dtype)));
}

/* y = residual + what a token's experts have made of it, weighed; in bf16 rounded once. */
static void combine(const struct leaf *leaf, const struct routes *r, void *y, const void *residual,
	const void *rows)
{
	const struct compute *c = leaf->compute;
	int64_t width = architecture_of(leaf)->hidden;

	for (int64_t t = 0; t < r->tokens && !is_idle(c); t++)
		for (int64_t i = 0; i < width; i++) {
			float sum = 0;

			for (int64_t k = t * r->per_token; k < (t + 1) * r->per_token; k++)
				sum += r->weight[k] *
				       element_get(c->dtype, rows, r->row[k] * width + i);
			element_put(c->dtype, y, t * width + i,
				element_get(c->dtype, residual, t * width + i) + sum);
		}
}

/* --- products --- */

/* Elements of the matrix of one expert. */
static int64_t matrix_of(const struct leaf *leaf)
{
	int64_t out, in;

	module_linear_shape(architecture_of(leaf), leaf_module(leaf)->kind, &out, &in);
	return out * in;
}

/* Of all rows, each with the matrix of its expert. */
static void multiply(const struct leaf *leaf, const struct routes *r, const struct gemm *all)
{
	const struct compute *c = leaf->compute;

	for (int64_t e = 0; e < r->experts; e++) {
		int64_t first = r->first[e * r->parts];
		struct gemm gemm = *all;

		gemm.m = r->first[(e + 1) * r->parts] - first;
		gemm.a = compute_at(c, gemm.a, first * gemm.lda);
		gemm.b = compute_at(c, gemm.b, e * matrix_of(leaf));
		gemm.c = compute_at(c, gemm.c, first * gemm.ldc);
		if (gemm.m > 0)
			c->kernels->gemm(c->context, &gemm);
	}
}

/* dW (= | +=) dy^T x of an expert, of one part of its rows. There may be none of them. */
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

static void matrix_gradients(const struct leaf *leaf, const struct routes *r, const void *dy)
{
	const struct compute *c = leaf->compute;
	int weight = leaf_parameter(leaf, 0);
	struct gemm gemm = leaf_weight_gradient(leaf, dy, operand_input(leaf), 0);

	for (int64_t p = 0; p < r->parts && leaf_trains(leaf, weight); p++) {
		void *gradient = gradient_begin(leaf, weight, &gemm.accumulate);

		for (int64_t e = 0; e < r->experts && gradient != NULL; e++) {
			int64_t at = e * r->parts + p;

			matrix_gradient(leaf, &gemm,
				element_at(c->gradient_dtype, gradient, e * matrix_of(leaf)),
				r->first[at], r->first[at + 1] - r->first[at]);
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

void forward_router(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	int64_t experts = architecture_of(leaf)->experts;
	float *probabilities = probabilities_of(leaf);
	void *rows = operand_saved(leaf, leaf->module, TENSOR_DISPATCHED);
	struct gemm gemm = leaf_product(leaf, probabilities);

	gemm.c_dtype = DTYPE_FP32;
	if (probabilities == NULL || rows == NULL)
		return;
	c->kernels->gemm(c->context, &gemm);
	for (int64_t t = 0; t < c->tokens && !is_idle(c); t++)
		softmax(probabilities + t * experts, experts);
	dispatch(leaf, rows, gemm.a);
}

void forward_experts_projection(const struct leaf *leaf)
{
	bool is_gate = leaf_module(leaf)->kind == MODULE_EXPERTS_GATE;
	const struct routes *r = find_routes(leaf);
	const struct gemm gemm = leaf_product(
		leaf, operand_saved(leaf, leaf->module, is_gate ? TENSOR_GATE : TENSOR_UP));

	if (r != NULL)
		multiply(leaf, r, &gemm);
}

void forward_experts_activation(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct siblings *s = leaf_siblings(leaf);
	const struct routes *r = c->routes;

	c->kernels->swiglu(c->context, c->dtype, operand_saved(leaf, leaf->module, TENSOR_PRODUCT),
		operand_saved(leaf, s->of[MODULE_EXPERTS_GATE], TENSOR_GATE),
		operand_saved(leaf, s->of[MODULE_EXPERTS_UP], TENSOR_UP),
		r->tokens * r->per_token * architecture_of(leaf)->expert_ffn);
}

/* Computed again without the sum: the router's gradient needs what experts have made. */
void forward_experts_down(const struct leaf *leaf)
{
	const struct siblings *s = leaf_siblings(leaf);
	const struct routes *r = find_routes(leaf);
	void *rows = operand_saved(leaf, leaf->module, TENSOR_EXPERT_OUT);
	const struct gemm gemm = leaf_product(leaf, rows);

	if (r == NULL || rows == NULL)
		return;
	multiply(leaf, r, &gemm);
	if (leaf->op->kind != OP_RECOMPUTE)
		combine(leaf, r, operand_residual_out(leaf),
			operand_saved(leaf, s->of[MODULE_ATTENTION_OUTPUT], TENSOR_RESIDUAL_MIDDLE),
			rows);
}

/* --- backward --- */

/* Of what experts have made, the residual stream's gradient, weighed; and of the weights. */
static void spread(const struct leaf *leaf, const struct routes *r, void *rows, const void *made,
	const void *dy)
{
	const struct compute *c = leaf->compute;
	int64_t width = architecture_of(leaf)->hidden;

	for (int64_t k = 0; k < r->tokens * r->per_token && !is_idle(c); k++) {
		const void *d = compute_at(c, dy, k / r->per_token * width);

		r->gradient[k] =
			(float)dot(c->dtype, d, compute_at(c, made, r->row[k] * width), width);
		add_scaled(c->dtype, compute_at(c, rows, r->row[k] * width), d, width, r->weight[k],
			false);
	}
}

void backward_experts_down(const struct leaf *leaf)
{
	const struct routes *r = find_routes(leaf);
	void *rows = operand_work(leaf, TENSOR_D_DISPATCHED);
	const void *dy = operand_work(leaf, TENSOR_D_RESIDUAL);
	const void *made = operand_saved(leaf, leaf->module, TENSOR_EXPERT_OUT);
	const struct gemm gemm =
		leaf_input_gradient(leaf, rows, operand_work(leaf, TENSOR_D_PRODUCT));

	if (r == NULL || rows == NULL || dy == NULL || made == NULL)
		return;
	spread(leaf, r, rows, made, dy);
	matrix_gradients(leaf, r, rows);
	multiply(leaf, r, &gemm);
}

void backward_experts_activation(const struct leaf *leaf)
{
	const struct compute *c = leaf->compute;
	const struct siblings *s = leaf_siblings(leaf);
	const struct routes *r = c->routes;
	int64_t width = architecture_of(leaf)->expert_ffn;

	c->kernels->swiglu_backward(c->context,
		&(struct swiglu_backward){.rows = r->tokens * r->per_token,
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
 * have been read. */
void backward_experts_projection(const struct leaf *leaf)
{
	bool is_gate = leaf_module(leaf)->kind == MODULE_EXPERTS_GATE;
	const struct routes *r = find_routes(leaf);
	const void *dy = operand_work(leaf, is_gate ? TENSOR_D_GATE : TENSOR_D_UP);
	struct gemm gemm = leaf_input_gradient(leaf, dy, operand_work(leaf, TENSOR_D_DISPATCHED));

	if (r == NULL || dy == NULL)
		return;
	gemm.accumulate = is_gate;
	matrix_gradients(leaf, r, dy);
	multiply(leaf, r, &gemm);
}

/* Gradients of logits, of the softmax over a token's experts. The others have none. */
static void logit_gradients(const struct leaf *leaf, const struct routes *r, void *logits)
{
	const struct compute *c = leaf->compute;

	if (is_idle(c))
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

/* The gradient of what the experts and the router read. */
static void gather_back(const struct leaf *leaf, const struct routes *r, void *dx, const void *rows)
{
	const struct compute *c = leaf->compute;
	int64_t width = architecture_of(leaf)->hidden;

	for (int64_t k = 0; k < r->tokens * r->per_token && !is_idle(c); k++)
		add_scaled(c->dtype, compute_at(c, dx, k / r->per_token * width),
			compute_at(c, rows, r->row[k] * width), width, 1, k % r->per_token > 0);
}

/* Gradients of logits lie where the probabilities were, which nobody reads behind them. */
void backward_router(const struct leaf *leaf)
{
	const struct routes *r = find_routes(leaf);
	void *logits = probabilities_of(leaf), *dx = operand_work(leaf, TENSOR_D_NORM);
	const void *rows = operand_work(leaf, TENSOR_D_DISPATCHED);

	if (r == NULL || dx == NULL || rows == NULL)
		return;
	logit_gradients(leaf, r, logits);
	gather_back(leaf, r, dx, rows);
	leaf_project_backward(leaf, logits, dx, true);
}
