/* Arguments of kernels that read ids of tokens: tables of embeddings, and the loss. Element types
 * are as in arguments.h. */
#ifndef KERNELS_TOKENS_H
#define KERNELS_TOKENS_H

#include "base/base.h"

/* The index of token t's id, when sequences of `length` ids begin `stride` apart (they may overlap
 * or leave gaps). length 0: ids lie side by side. */
static inline int64_t id_place(int64_t t, int64_t length, int64_t stride)
{
	return length > 0 ? t / length * stride + t % length : t;
}

/* out[t] = table[id of t] + positions[t % length]. An id outside [0, vocabulary) sets the context's
 * error and reads as zeros. */
struct embedding {
	int64_t tokens, width, length, vocabulary;
	int64_t ids_stride; /* from one sequence's ids to the next one's; 0: length */
	const int32_t *ids;
	const void *table, *positions; /* [vocabulary, width]; [>= length, width] or NULL */
	void *out;                     /* [tokens, width] */
	bool of_part; /* CPUs: negative ids are rows of other parts of a table: zeros here */
	enum dtype dtype;
};

/* Row by row in token order, hence deterministic. bf16 gradients: the rows that one row of a table
 * gets are summed in fp32 and added at once. */
struct embedding_backward {
	int64_t tokens, width, length, vocabulary;
	int64_t ids_stride;    /* as in struct embedding */
	int64_t position_rows; /* rows of dpositions: those past `length` have gradient zero */
	const int32_t *ids;
	const void *dout; /* [tokens, width] */
	void *dtable;     /* [vocabulary, width]; NULL for none, then ids may be NULL */
	void *dpositions; /* [position_rows, width]; NULL for none */
	bool accumulate_table, accumulate_positions;
	bool of_part; /* as in struct embedding */
	enum dtype dtype, gradient_dtype;
};

/* losses[t] = logsumexp(logits[t]) - logits[t, target], then logits become
 * (softmax - one_hot) * scale. Tokens with target < 0 are ignored: loss 0, gradient 0. */
struct cross_entropy {
	int64_t tokens, vocabulary, stride; /* logits rows are `stride` elements apart */
	/* Tokens of a sequence, and from one sequence's targets to the next one's; 0: one sequence
	 */
	int64_t length, targets_stride;
	void *logits;
	const int32_t *targets;
	float *losses;    /* [tokens] */
	float scale;      /* usually 1 / tokens of the whole batch */
	bool keep_logits; /* evaluation: losses only, logits stay as they are */
	/* CPUs: of a vocabulary in parts, where targets in other parts are negative. First `part`
	 * alone is written, [tokens, 3]: the largest logit, the sum of exponentials of what the
	 * logits are less than it, and the target's, -INFINITY if it is in another part. With those
	 * of all parts, [n_parts, tokens, 3], losses and gradients are of the whole vocabulary. */
	float *part;
	const float *parts;
	int64_t n_parts;
	enum dtype dtype;
};

#endif
