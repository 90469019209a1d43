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
	int32_t vector;
};

/* Token t's id is ids[(first + t) / length * stride + (first + t) % length]. */
struct embedding_ids {
	const int32_t *ids;
	int64_t first, rows; /* rows: of the table */
	uint32_t length, stride;
};

/* One digit of the sort of token numbers by id, equal ids as they stood. */
struct embedding_sort_launch {
	struct embedding_ids ids;
	const int32_t *from;  /* NULL for 0, 1, 2, ... */
	int32_t *to, *counts; /* counts[share][1 << CUDA_SORT_BITS] */
	int64_t tokens;
	int64_t share; /* tokens of a block */
	int32_t shift;
};

/* Sums of equal rows among `tokens` sorted places, for some columns of a row. */
struct embedding_runs_launch {
	struct embedding_ids ids;
	const int32_t *order; /* NULL where a row is a position, not an id */
	const void *dout;
	void *gradient;
	float *partial; /* [pieces][2][columns] */
	int32_t *edges; /* [pieces][2] */
	int64_t tokens, length, rows, piece;
	int64_t width, column, columns;
	int32_t accumulate, vector;
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
