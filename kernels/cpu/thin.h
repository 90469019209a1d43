/* Products of a few rows, where packing B would take longer than multiplying. B is read where it
 * lies, once: columns as they are, or a square of LANES x LANES words at a time turned over in the
 * first-level cache. Each element is summed as by the other products: block of terms by block, in
 * order. `thin.c` makes the functions of fp32 of it, `thin_bf16.c` those of bf16. */
#ifndef KERNELS_CPU_THIN_H
#define KERNELS_CPU_THIN_H

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

/* One group of columns, all terms. */
INLINE void group(const enum dtype dtype, const bool turned, const int rows, const struct thin *t)
{
	const int wide = WIDE(rows);
	const struct gemm *g = t->g;
	const int64_t blocks = term_blocks(dtype, g->k);
	const bool rounds = g->c_dtype == DTYPE_BF16, starts = g->accumulate && !rounds;
	sums total = {0};

#pragma GCC unroll 8
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
		for (int w = 0; w < wide && starts; w++)
			total[i][w] =
				load((const float *)g->c + i * g->ldc + t->column + w * LANES);
	for (int64_t block = 0; block < blocks; block++) {
		int64_t term = block_term(dtype, g->k, block);
		int64_t terms = block_term(dtype, g->k, block + 1) - term;
		sums sum = {0};

		if (turned)
			add_turned(dtype, rows, wide, t, term, terms, sum);
		else
			add_straight(dtype, rows, wide, t, term, terms, sum);
#pragma GCC unroll 8
		for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
			for (int w = 0; w < wide; w++)
				if (block > 0 || starts)
					total[i][w] += sum[i][w];
				else
					total[i][w] = sum[i][w];
	}
#pragma GCC unroll 8
	for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
		for (int w = 0; w < wide; w++) {
			void *c = element_at(g->c_dtype, g->c, i * g->ldc + t->column + w * LANES);

			if (rounds && g->accumulate)
				total[i][w] += load_bf16(c, LANES);
			store_as(g->c_dtype, c, 0, total[i][w], LANES);
		}
}

typedef void group_function(const struct thin *t);

#define THIN_GROUP(dtype, rows)                                                                    \
	static void straight_##rows(const struct thin *t)                                          \
	{                                                                                          \
		group(dtype, false, rows, t);                                                      \
	}                                                                                          \
	static void turned_##rows(const struct thin *t)                                            \
	{                                                                                          \
		group(dtype, true, rows, t);                                                       \
	}
#define THIN_ROW(rows) [rows] = {straight_##rows, turned_##rows},
#if TILE_ROWS == 12
#define FOR_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define FOR_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

/* How many columns of a product are thin, and how many at a time: 0 where packing is better. */
INLINE int64_t thin_columns(const struct gemm *g, int64_t floats, int64_t *at_once)
{
	*at_once = g->m > 0 && g->m <= THIN_ROWS ? WIDE(g->m) * LANES : 0;
	return *at_once > 0 && floats / g->m > g->k ? g->n / *at_once * *at_once : 0;
}

/* The first `n` columns, A gathered as words. */
INLINE void multiply_groups(group_function *const groups[][2], const struct gemm *g,
	const uint32_t *a, int64_t n, int64_t at_once)
{
	struct thin thin = {.g = g, .a = a};

	for (; thin.column < n; thin.column += at_once)
		groups[g->m][g->transpose_b](&thin);
}

#endif
