/* Finds the experts that the tokens of a micro-batch go to, and the way back. A row is a token for
 * one of its experts. Rows lie one expert behind the other, and those of an expert in the order of
 * tokens. All of it follows from the router's probabilities, so nothing is kept for backward but
 * how many rows other ranks have. */
#include "executor/compute/routes.h"

#include <string.h>

static int64_t width_of(const struct leaf *leaf)
{
	return leaf->compute->model->architecture.hidden;
}

/* Counts the pieces that each rank sends to this one: their rows are told apart by expert and
 * part. */
static int64_t pieces_of_source(const struct compute *c)
{
	return c->model->architecture.experts / c->expert_ranks * gradient_parts(c);
}

/* Makes two sets of routes: one for the interpreting thread, one for the thread that exchanges
 * rows. */
void experts_init(struct compute *c)
{
	const struct architecture *a = &c->model->architecture;
	int64_t rows = c->tokens * a->experts_per_token, parts = gradient_parts(c);
	int64_t pieces = a->experts * parts, layers = a->layers;
	float *gradient = ARENA_ARRAY(&c->arena, float, rows);

	if (a->experts == 0)
		return;
	c->routes = ARENA_ARRAY(&c->arena, struct routes, 2);
	for (int i = 0; i < 2; i++)
		c->routes[i] = (struct routes){.experts = a->experts,
			.per_token = a->experts_per_token,
			.tokens = c->tokens,
			.parts = parts,
			.expert = ARENA_ARRAY(&c->arena, int32_t, rows),
			.row = ARENA_ARRAY(&c->arena, int32_t, rows),
			.weight = ARENA_ARRAY(&c->arena, float, rows),
			.gradient = gradient,
			.token = ARENA_ARRAY(&c->arena, int32_t, rows),
			.first = ARENA_ARRAY(&c->arena, int64_t, pieces + 1),
			.arrived = ARENA_ARRAY(&c->arena, int64_t, pieces + 1)};
	c->row_splits = ARENA_ARRAY(&c->arena, int64_t, 2 * c->expert_ranks);
	c->row_counts =
		ARENA_ARRAY(&c->arena, int32_t, c->schedule->plan.grad_accum * layers * pieces);
}

/* In a rehearsal no probabilities have been computed that could be read, so rows are dealt out
 * evenly. */
bool routes_are_idle(const struct compute *c)
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

/* Returns the likeliest expert that is not chosen yet; of equally likely ones, the first. */
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

/* Gives each row its place: counts first, then places one part of the tokens after the other in
 * each expert. */
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

const struct routes *routes_find(const struct leaf *leaf)
{
	const struct routes *r = &leaf->compute->routes[leaf->op->stream == STREAM_EXPERT];
	const float *probabilities = probabilities_of(leaf);

	if (probabilities == NULL)
		return NULL;
	for (int64_t t = 0; t < r->tokens; t++)
		choose(r, t,
			routes_are_idle(leaf->compute) ? NULL : probabilities + t * r->experts);
	place(r);
	return r;
}

int32_t *routes_counts(const struct leaf *leaf, int64_t source)
{
	const struct compute *c = leaf->compute;
	int64_t layer =
		leaf->op->micro_batch * c->model->architecture.layers + leaf_module(leaf)->layer;

	return c->row_counts + (layer * c->expert_ranks + source) * pieces_of_source(c);
}

/* Returns where the rows of all ranks lie. Where rows are dealt out evenly, each rank sends as many
 * as this one has itself. */
struct pieces routes_pieces(const struct leaf *leaf, const struct routes *r)
{
	const struct compute *c = leaf->compute;
	int64_t each = pieces_of_source(c), at = 0;
	const int64_t *own = r->first + c->expert_place * each;

	if (c->expert_ranks == 1)
		return (struct pieces){1, r->experts, r->parts, r->first};
	for (int s = 0; s < c->expert_ranks; s++) {
		const int32_t *counts = routes_counts(leaf, s);

		for (int64_t i = 0; i < each; i++, at++)
			r->arrived[at + 1] = r->arrived[at] +
					     (routes_are_idle(c) ? own[i + 1] - own[i] : counts[i]);
	}
	return (struct pieces){c->expert_ranks, each / r->parts, r->parts, r->arrived};
}

/* --- tokens and rows --- */

/* Computes out[i] (= | +=) factor * in[i]. */
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

void routes_dispatch(
	const struct leaf *leaf, const struct routes *r, void *rows, const void *tokens)
{
	const struct compute *c = leaf->compute;
	int64_t width = width_of(leaf);

	for (int64_t i = 0; i < r->tokens * r->per_token && !routes_are_idle(c); i++)
		memcpy(compute_at(c, rows, i * width), compute_at(c, tokens, r->token[i] * width),
			(size_t)(width * dtype_bytes(c->dtype)));
}

void routes_combine(const struct leaf *leaf, const struct routes *r, void *y, const void *residual,
	const void *rows)
{
	const struct compute *c = leaf->compute;
	int64_t width = width_of(leaf);

	for (int64_t t = 0; t < r->tokens && !routes_are_idle(c); t++)
		for (int64_t i = 0; i < width; i++) {
			float sum = 0;

			for (int64_t k = t * r->per_token; k < (t + 1) * r->per_token; k++)
				sum += r->weight[k] *
				       element_get(c->dtype, rows, r->row[k] * width + i);
			element_put(c->dtype, y, t * width + i,
				element_get(c->dtype, residual, t * width + i) + sum);
		}
}

void routes_spread(const struct leaf *leaf, const struct routes *r, void *rows, const void *made,
	const void *dy)
{
	const struct compute *c = leaf->compute;
	int64_t width = width_of(leaf);

	for (int64_t k = 0; k < r->tokens * r->per_token && !routes_are_idle(c); k++) {
		const void *d = compute_at(c, dy, k / r->per_token * width);

		r->gradient[k] =
			(float)dot(c->dtype, d, compute_at(c, made, r->row[k] * width), width);
		add_scaled(c->dtype, compute_at(c, rows, r->row[k] * width), d, width, r->weight[k],
			false);
	}
}

void routes_gather_back(const struct leaf *leaf, const struct routes *r, void *dx, const void *rows)
{
	const struct compute *c = leaf->compute;
	int64_t width = width_of(leaf);

	for (int64_t k = 0; k < r->tokens * r->per_token && !routes_are_idle(c); k++)
		add_scaled(c->dtype, compute_at(c, dx, k / r->per_token * width),
			compute_at(c, rows, r->row[k] * width), width, 1, k % r->per_token > 0);
}
