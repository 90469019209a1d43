/* Private to compute: attention over the tokens of all context ranks, by each method. */
#ifndef EXECUTOR_COMPUTE_CONTEXT_H
#define EXECUTOR_COMPUTE_CONTEXT_H

#include "executor/compute/leaf.h"

struct context_calls {
	/* The data that the rank gives to an exchange, put together there. */
	void *(*given)(const struct leaf *leaf);
	void (*attention)(const struct leaf *leaf, const struct attention *attention);
	void (*backward)(const struct leaf *leaf, const struct attention_backward *backward);
	/* Results that came for the rank's tokens, to where they are saved; NULL: they are there.
	 */
	void (*take_results)(const struct leaf *leaf);
	/* Gradients that came, to where the backward of the projections reads them. */
	void (*take_gradients)(const struct leaf *leaf, const struct attention_backward *gradients);
};
extern const struct context_calls context_by_gather, context_by_heads, context_by_ring;

/* --- chunks.c --- */

int64_t context_place(const struct compute *compute);
int64_t context_ranks(const struct compute *compute);
/* The position in its sequence at which the first (chunk even) or second chunk of a rank begins. */
int64_t context_first_position(const struct compute *compute, int64_t place, int64_t chunk);
/* The rank that has a chunk of every sequence, and the row at which the chunk of one sequence
 * begins in that rank's block: chunks of all sequences lie one behind the other there. */
int64_t context_rank_of(const struct compute *compute, int64_t chunk);
int64_t context_row_of(const struct compute *compute, int64_t sequence, int64_t chunk);
/* Elements of the keys of one token. A block has the keys of all of the rank's tokens, then their
 * values. */
int64_t context_key_width(const struct leaf *leaf);
/* Copies `width` elements for each of the rank's tokens, from rows that lie `from` elements apart
 * to rows that lie `to` elements apart. Copies nothing in a rehearsal. */
void context_copy(const struct leaf *leaf, void *out, int64_t to, const void *in, int64_t from,
	int64_t width);

#endif
