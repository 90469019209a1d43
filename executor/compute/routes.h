/* Private to compute: which experts a token goes to, and where its rows lie. */
#ifndef EXECUTOR_COMPUTE_ROUTES_H
#define EXECUTOR_COMPUTE_ROUTES_H

#include "executor/compute/leaf.h"

/* Of the rank's own tokens, for all experts. */
struct routes {
	int64_t experts, per_token, tokens, parts;
	/* Of a token's experts, in the order of experts: [tokens * per_token] */
	int32_t *expert, *row;
	float *weight, *gradient; /* and that of the weight, from DOWN to the router */
	int32_t *token;           /* of a row */
	/* The row that a part of the tokens of an expert begins with, and the end. */
	int64_t *first;
	/* Of what the rank's experts compute, where it has some of them: as in struct pieces. */
	int64_t *arrived;
};

/* Rows that the rank's experts compute: from each rank those of one expert behind those of the
 * other, of each expert part by part. Piece (source * held + expert) * parts + part begins with row
 * `first` of it. */
struct pieces {
	int64_t sources, held, parts;
	const int64_t *first;
};

static inline int64_t pieces_rows(const struct pieces *p)
{
	return p->first[p->sources * p->held * p->parts];
}

/* Nothing has been computed that could be read: rows are dealt out evenly. */
bool routes_are_idle(const struct compute *compute);
/* Of the micro-batch and block that the leaf is in. NULL: compute->error is set. */
const struct routes *routes_find(const struct leaf *leaf);
/* Likewise; `routes` are those. */
struct pieces routes_pieces(const struct leaf *leaf, const struct routes *routes);
/* How many rows of each expert and part another rank has for this one, kept until backward:
 * [held * parts]. */
int32_t *routes_counts(const struct leaf *leaf, int64_t source);

/* A copy of each token for each of its experts. */
void routes_dispatch(
	const struct leaf *leaf, const struct routes *r, void *rows, const void *tokens);
/* y = residual + what a token's experts have made of it, weighed; in bf16 rounded once. */
void routes_combine(const struct leaf *leaf, const struct routes *r, void *y, const void *residual,
	const void *rows);
/* Of what experts have made, the residual stream's gradient, weighed; and of the weights. */
void routes_spread(const struct leaf *leaf, const struct routes *r, void *rows, const void *made,
	const void *dy);
/* The gradient of what the experts and the router read. */
void routes_gather_back(
	const struct leaf *leaf, const struct routes *r, void *dx, const void *rows);

#endif
