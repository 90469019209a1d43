/* Shared by the forward and the backward of attention: tiles of one head and their sizes. */
#ifndef KERNELS_CPU_ATTENTION_H
#define KERNELS_CPU_ATTENTION_H

#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"

enum {
	QUERY_TILE = 96, /* a multiple of every TILE_ROWS */
	KEY_TILE =
		256, /* halved for wide heads, see attention_keys; a multiple of every TILE_COLS */
	/* Keeps the rows of a tile out of each other's cache sets. */
	SCORE_ROW = KEY_TILE + 16,
	ROW_PADDING = 16,
};

INLINE int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

INLINE int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* head_dim rounded up to whole panels. */
INLINE int64_t padded_width(int64_t head_dim)
{
	return (head_dim + TILE_COLS - 1) / TILE_COLS * TILE_COLS;
}

/* Keys per tile: the packed tiles of a head should stay in the second-level cache. */
INLINE int64_t attention_keys(int64_t head_dim)
{
	int64_t keys = KEY_TILE;

	while (keys > TILE_COLS && keys * head_dim > 96 * KEY_TILE)
		keys /= 2;
	return keys;
}

/* Takes `count` floats from the workspace, keeping tiles on cache lines. */
INLINE float *take(float **workspace, int64_t count)
{
	float *block = *workspace;

	*workspace += (count + 15) / 16 * 16;
	return block;
}

/* The row of the key at a position of the sequence that begins with row `start`, and how many rows
 * follow one another from there on, `most` of them or fewer. */
INLINE int64_t key_row(const struct attention *a, int64_t start, int64_t position)
{
	int64_t chunk = position / a->length, other = a->chunks - 1 - chunk;

	if (a->chunks == 0)
		return start + position;
	return smaller(chunk, other) * a->block + (chunk > other ? a->length : 0) +
	       position % a->length;
}

INLINE int64_t keys_together(const struct attention *a, int64_t position, int64_t most)
{
	return a->chunks == 0 ? most : smaller(most, a->length - position % a->length);
}

/* The end of the keys for queries up to a position. */
INLINE int64_t keys_end(const struct attention *a, int64_t end)
{
	return a->in_rounds ? smaller(end, a->keys) : end;
}

INLINE bool goes_on(const struct attention *a)
{
	return a->in_rounds && !a->begins;
}

/* Rows of one head: elements [at, at + head_dim) of each. */
struct rows {
	const void *data;
	int64_t at, stride, count;
};

INLINE void read_rows(const enum dtype dtype, float *to, int64_t to_row, const struct rows *rows,
	int64_t width, float factor)
{
	for (int64_t i = 0; i < rows->count; i++) {
		int64_t from = rows->at + i * rows->stride;

		for (int64_t j = 0; j < width; j += LANES)
			store_some(to + i * to_row + j,
				load_as(dtype, rows->data, from + j, width - j) * factor,
				width - j);
	}
}

/* Copies them to fp32 rows of `to_row` elements, times `factor`. */
INLINE void copy_rows(
	const struct attention *a, float *to, int64_t to_row, const struct rows *rows, float factor)
{
	BY_DTYPE(read_rows, a->dtype, to, to_row, rows, a->head_dim, factor);
}

/* The same rows where the register tile can pack them: in place, or widened to `work`, which holds
 * rows of head_dim floats. */
INLINE const float *plain_rows(
	const struct attention *a, float *work, const struct rows *rows, int64_t *stride)
{
	if (a->dtype == DTYPE_FP32) {
		*stride = rows->stride;
		return (const float *)rows->data + rows->at;
	}
	copy_rows(a, work, a->head_dim, rows, 1.0f);
	*stride = a->head_dim;
	return work;
}

#endif
