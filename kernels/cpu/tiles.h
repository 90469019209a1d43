/* What the register tiles of fp32 and bf16 products share: a function for each number of rows, and
 * the way of the sums into C. A tile is TILE_ROWS x TILE_COLS sums, two vectors a row. */
#ifndef KERNELS_CPU_TILES_H
#define KERNELS_CPU_TILES_H

#include "kernels/cpu/ahead.h"

/* One function per number of rows, so that the last rows of a matrix keep their sums in registers.
 */
#if TILE_ROWS == 12
#define TILES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#define TILES(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

/* Every so many steps, where the sums of a row will go comes near, and what is packed next: a few
 * lines at a time, or the tile would wait for them. */
INLINE void tile_fetch(
	const int rows, int64_t step, const float *c, int64_t ldc, struct ahead *ahead)
{
	int64_t row = step / FETCH_STEPS;

	if (step % FETCH_STEPS != 0)
		return;
	if (row < rows) {
		__builtin_prefetch(c + row * ldc, 1);
		__builtin_prefetch(c + row * ldc + TILE_COLS - 1, 1);
	}
	fetch_ahead(ahead);
}

INLINE void tile_store(
	const int rows, vec sum[TILE_ROWS][2], float *c, int64_t ldc, bool accumulate)
{
#pragma GCC unroll 12
	for (int i = 0; i < rows; i++) {
		float *row = c + i * ldc;
		if (accumulate) {
			sum[i][0] = load(row) + sum[i][0];
			sum[i][1] = load(row + LANES) + sum[i][1];
		}
		store(row, sum[i][0]);
		store(row + LANES, sum[i][1]);
	}
}

/* The valid columns of a whole tile that was computed beside C: block[rows, TILE_COLS]. */
INLINE void tile_store_edge(
	const float *block, int64_t rows, int64_t columns, float *c, int64_t ldc, bool accumulate)
{
	for (int64_t i = 0; i < rows; i++) {
		for (int64_t j = 0; j < columns; j++) {
			float *element = &c[i * ldc + j];
			*element = (accumulate ? *element : 0.0f) + block[i * TILE_COLS + j];
		}
	}
}

#endif
