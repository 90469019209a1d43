/* Private to compute: which experts a token goes to, and where its rows lie. */
#ifndef EXECUTOR_COMPUTE_ROUTES_H
#define EXECUTOR_COMPUTE_ROUTES_H

#include "executor/compute/leaf.h"

/* The experts to which the rank's own tokens go, over all experts. A row is one token for one of
 * its experts; rows are sorted by expert. */
struct routes {
	int64_t experts, per_token, tokens, parts;
	/* [tokens * per_token] For each token its experts in ascending order, and the row of each.
	 */
	int32_t *expert, *row;
	float *weight, *gradient; /* the routing weight; its gradient, from DOWN to the router */
	int32_t *token;           /* [rows] the token that a row is of */
	/* [experts * parts + 1] The first row of each part of an expert's tokens; the end. */
	int64_t *first;
	/* For a rank with only some experts: the first rows of what these compute (struct
	 * pieces). */
	int64_t *arrived;
};

/* The rows that the rank's experts compute, in pieces: by the rank that they come from, then by
 * expert, then by part. Piece (source * held + expert) * parts + part begins with row `first` of
 * that index. */
struct pieces {
	int64_t sources, held, parts;
	const int64_t *first;
};

static inline int64_t pieces_rows(const struct pieces *p)
{
	return p->first[p->sources * p->held * p->parts];
}

/* Is there no routing to read, as in a rehearsal? Rows are dealt out evenly then. */
bool routes_are_idle(const struct compute *compute);
/* The routes of the micro-batch and block that the leaf is in. NULL: compute->error is set. */
const struct routes *routes_find(const struct leaf *leaf);
/* The pieces of these routes. */
struct pieces routes_pieces(const struct leaf *leaf, const struct routes *routes);
/* How many rows of each expert and part another rank has for this one, kept until backward:
 * [held * parts]. */
int32_t *routes_counts(const struct leaf *leaf, int64_t source);

/* Fills rows with a copy of each token for each of its experts. */
void routes_dispatch(
	const struct leaf *leaf, const struct routes *r, void *rows, const void *tokens);
/* y = residual + the weighted sum of the results of a token's experts; in bf16 rounded once. */
void routes_combine(const struct leaf *leaf, const struct routes *r, void *y, const void *residual,
	const void *rows);
/* The backward of routes_combine: fills rows with the weighted gradient of the residual stream, and
 * computes the gradients of the weights from `made`, the results of the experts. */
void routes_spread(const struct leaf *leaf, const struct routes *r, void *rows, const void *made,
	const void *dy);
/* The backward of routes_dispatch: adds the gradients of a token's rows up in dx. */
void routes_gather_back(
	const struct leaf *leaf, const struct routes *r, void *dx, const void *rows);

#endif
