/* As launches.h: what the kernels are handed that look tokens up. */
#ifndef KERNELS_CUDA_LAUNCHES_TOKENS_H
#define KERNELS_CUDA_LAUNCHES_TOKENS_H

#include <stdint.h>

struct embedding_launch {
	const int32_t *ids;
	const void *table, *positions;
	void *out;
	int32_t *fault;
	int64_t width, length, ids_stride, vocabulary; /* length, ids_stride: of a sequence */
	uint32_t tokens;
	uint32_t slice; /* packs of a row that a block takes */
	int32_t vector;
};

/* Token t's id is ids[(first + t) / length * stride + (first + t) % length]. */
struct embedding_ids {
	const int32_t *ids;
	int64_t first, rows; /* rows: of the table */
	uint32_t length, stride;
};

/* One digit of the sort of token numbers by id, equal ids as they stood. counts[share][1 <<
 * CUDA_SORT_BITS] is how often digits occur in a share of the places. */
struct embedding_sort_launch {
	struct embedding_ids ids;
	const int32_t *from; /* NULL for 0, 1, 2, ... */
	int32_t *to, *counts;
	int32_t *next; /* counts of the next digit, NULL behind the last */
	char *named;   /* of each row of the table: whether an id names it; NULL: not wanted */
	void *clear;   /* what counting makes zeros of, for those that come later */
	int64_t clear_bytes; /* a multiple of 16 */
	int64_t tokens;
	int64_t share; /* places of a block */
	int32_t shift;
};

/* One of the two gradients that tokens add to. */
struct embedding_side {
	const int32_t *order; /* sorted token numbers; NULL where a row is a position, not an id */
	void *gradient;
	float *partial;    /* [pieces][2][columns] */
	int32_t *edges;    /* [pieces][2] */
	const char *named; /* rows without a mark become zeros; NULL: they stay */
	int64_t rows, pieces;
	int32_t accumulate;
};

/* Sums of equal rows among `tokens` sorted places, for some columns of a row. Blocks: the pieces of
 * the positions, those of the table, then CUDA_ZERO_ROWS rows of the table each. */
struct embedding_runs_launch {
	struct embedding_ids ids;
	struct embedding_side table, positions;
	const void *dout;
	int64_t tokens, length, piece;
	int64_t width, column, columns;
	int32_t vector;
};

struct cross_entropy_launch {
	void *logits;
	const int32_t *targets;
	float *losses;
	int32_t *fault;
	int64_t vocabulary, stride, length, targets_stride; /* of a sequence */
	float scale;
	int32_t keep_logits, vector;
	int32_t held; /* so many logits of a row, whole packs of them, stay in shared memory */
};

#endif
