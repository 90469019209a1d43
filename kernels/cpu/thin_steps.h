/* The steps of a product of a few rows (thin.h): terms of one group of columns, added to its sums.
 */
#ifndef KERNELS_CPU_THIN_STEPS_H
#define KERNELS_CPU_THIN_STEPS_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/transpose.h"

/* As many sums as a tile has; several vectors of columns, so that no sum waits for itself. */
enum { WIDEST = 8, AHEAD = 512 /* bytes of each row of B */ };
#define WIDE(rows) (2 * TILE_ROWS / (rows) < WIDEST ? 2 * TILE_ROWS / (rows) : WIDEST)

/* `a`: words [steps][rows], a step being a term, or a pair of bf16. */
struct thin {
	const struct gemm *g;
	const uint32_t *a;
	int64_t column; /* of the group */
};

typedef vec sums[THIN_ROWS][WIDEST];

INLINE vec add_step(const enum dtype dtype, vec sum, uint32_t a, vec b)
{
	uvec element = a - (uvec){0};

	if (dtype == DTYPE_BF16)
		return add_pair(sum, element, (uvec)b);
	return sum + (vec)element * b;
}

INLINE void add_row(const enum dtype dtype, const int rows, const int wide, sums sum,
	const uint32_t *a, const vec *b)
{
#pragma GCC unroll 8
	for (int i = 0; i < rows; i++) {
#pragma GCC unroll 8
		for (int w = 0; w < wide; w++)
			sum[i][w] = add_step(dtype, sum[i][w], a[i], b[w]);
	}
}

/* B stored [n, k]. */
INLINE void add_turned(const enum dtype dtype, const int rows, const int wide, const struct thin *t,
	int64_t term, int64_t terms, sums sum)
{
	const struct gemm *g = t->g;
	const int per = dtype == DTYPE_BF16 ? 2 : 1; /* terms a step */
	const int64_t row = g->ldb * dtype_bytes(dtype), steps = (terms + per - 1) / per;
	const uint32_t *a = t->a + term / per * rows;
	const char *b = element_of(dtype, g->b, t->column * g->ldb + term);
	float square[LANES * WIDEST * LANES] __attribute__((aligned(64)));

	for (int64_t p = 0; p < steps; p += LANES) {
		int64_t count = steps - p < LANES ? steps - p : LANES;
		bool whole = terms - p * per >= LANES * per;

		for (int w = 0; w < wide; w++) {
			const char *from = b + w * LANES * row + p * 4;

			for (int j = 0; j < LANES; j++)
				__builtin_prefetch(from + j * row + AHEAD);
			if (whole)
				transpose_block(square + w * LANES, wide * LANES, from, row);
			for (int64_t j = 0; j < LANES * count && !whole; j++) {
				int64_t left = terms * (4 / per) - (p + j / LANES) * 4;
				uint32_t word = 0;

				memcpy(&word, from + j % LANES * row + j / LANES * 4,
					left < 4 ? (size_t)left : 4);
				memcpy(square + (j / LANES * wide + w) * LANES + j % LANES, &word,
					4);
			}
		}
		for (int64_t s = 0; s < count; s++, a += rows) {
			vec words[WIDEST];

#pragma GCC unroll 8
			for (int w = 0; w < wide; w++)
				words[w] = load(square + (s * wide + w) * LANES);
			add_row(dtype, rows, wide, sum, a, words);
		}
	}
}

/* Two rows of bf16 side by side; the odd last one beside zeros. */
INLINE vec zip(const uint16_t *low, const uint16_t *high)
{
	uvec upper = high == NULL ? (uvec){0}
				  : __builtin_convertvector(*(const hvec_unaligned *)high, uvec);

	return (vec)(__builtin_convertvector(*(const hvec_unaligned *)low, uvec) | upper << 16);
}

/* B stored [k, n]. */
INLINE void add_straight(const enum dtype dtype, const int rows, const int wide,
	const struct thin *t, int64_t term, int64_t terms, sums sum)
{
	const struct gemm *g = t->g;
	const int per = dtype == DTYPE_BF16 ? 2 : 1;
	const uint32_t *a = t->a + term / per * rows;

	for (int64_t p = 0; p < terms; p += per, a += rows) {
		const void *b = element_of(dtype, g->b, (term + p) * g->ldb + t->column);
		vec words[WIDEST];

#pragma GCC unroll 8
		for (int w = 0; w < wide; w++) {
			const uint16_t *low = (const uint16_t *)b + w * LANES;

			words[w] = dtype == DTYPE_FP32
					   ? load((const float *)b + w * LANES)
					   : zip(low, p + 1 < terms ? low + g->ldb : NULL);
		}
		add_row(dtype, rows, wide, sum, a, words);
	}
}

#endif
