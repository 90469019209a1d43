/* B comes from memory while the block before it is multiplied: packing alone would wait for every
 * line of it, and so would a tile for many lines at once. */
#ifndef KERNELS_CPU_AHEAD_H
#define KERNELS_CPU_AHEAD_H

#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"

enum { FETCH_STEPS = 16 }; /* of a tile, from fetch to fetch */

/* Lines of a block of B that are still to be fetched. */
struct ahead {
	const char *row; /* as it is stored */
	int64_t rows, row_bytes;
	int64_t at, bytes; /* of each row */
	int64_t lines;     /* to fetch at a time */
};

INLINE int64_t tiles_of(int64_t rows, int64_t columns)
{
	return (rows + TILE_ROWS - 1) / TILE_ROWS * ((columns + TILE_COLS - 1) / TILE_COLS);
}

/* Terms [term, term + terms) of columns [column, column + columns), as far as B has them, while a
 * block of so many tiles with so many steps each is multiplied. On levels before v4 the
 * second-level cache is too small for two blocks. */
INLINE struct ahead ahead_of(const struct gemm *g, int64_t term, int64_t terms, int64_t column,
	int64_t columns, int64_t steps)
{
	int64_t size = dtype_bytes(g->dtype);
	int64_t k = g->k - term < terms ? g->k - term : terms;
	int64_t n = g->n - column < columns ? g->n - column : columns;
	struct ahead ahead = {
		.row = (const char *)g->b +
		       (g->transpose_b ? column * g->ldb + term : term * g->ldb + column) * size,
		.rows = TILE_ROWS == 12 ? (g->transpose_b ? n : k) : 0,
		.row_bytes = g->ldb * size,
		.bytes = (g->transpose_b ? k : n) * size,
	};
	int64_t lines = ahead.rows * ((ahead.bytes + 63) / 64), times = steps / FETCH_STEPS;

	ahead.lines = lines / (times > 0 ? times : 1) + 1;
	return ahead;
}

/* The next few. */
INLINE void fetch_ahead(struct ahead *ahead)
{
	if (ahead == NULL)
		return;
	for (int64_t i = 0; i < ahead->lines && ahead->rows > 0; i++) {
		__builtin_prefetch(ahead->row + ahead->at, 0, 2);
		ahead->at += 64;
		if (ahead->at < ahead->bytes)
			continue;
		ahead->at = 0;
		ahead->row += ahead->row_bytes;
		ahead->rows--;
	}
}

#endif
