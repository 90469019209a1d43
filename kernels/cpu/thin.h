/* Products of a few rows, where packing B would take longer than multiplying. B is read where it
 * lies, once: columns as they are, or a square of LANES x LANES words at a time turned over in the
 * first-level cache. Each element is summed as by the other products: block of terms by block, in
 * order. `thin.c` makes the functions of fp32 of it, `thin_bf16.c` those of bf16. */
#ifndef KERNELS_CPU_THIN_H
#define KERNELS_CPU_THIN_H

#include "kernels/cpu/thin_steps.h"

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

#if TILE_ROWS == 12
#define FOR_ROWS(X, dtype)                                                                         \
	X(dtype, 1) X(dtype, 2) X(dtype, 3) X(dtype, 4) X(dtype, 5) X(dtype, 6) X(dtype, 7)
#else
#define FOR_ROWS(X, dtype) X(dtype, 1) X(dtype, 2) X(dtype, 3) X(dtype, 4) X(dtype, 5) X(dtype, 6)
#endif
#define THIN_GROUP(dtype, rows)                                                                    \
	static void straight_##rows(const struct thin *t)                                          \
	{                                                                                          \
		group(dtype, false, rows, t);                                                      \
	}                                                                                          \
	static void turned_##rows(const struct thin *t)                                            \
	{                                                                                          \
		group(dtype, true, rows, t);                                                       \
	}
#define THIN_ROW(dtype, rows) [rows] = {straight_##rows, turned_##rows},
/* By rows, and whether B is stored [n, k]. */
#define THIN_GROUPS(dtype)                                                                         \
	FOR_ROWS(THIN_GROUP, dtype)                                                                \
	static group_function *const groups[THIN_ROWS + 1][2] = {FOR_ROWS(THIN_ROW, dtype)};

/* The first columns, as many as it says: 0 where packing is better. `gather` writes A as words. */
INLINE int64_t multiply_groups(group_function *const groups[][2], const struct gemm *g,
	float *workspace, int64_t floats, void (*gather)(const struct gemm *g, uint32_t *to))
{
	int64_t at_once = g->m > 0 && g->m <= THIN_ROWS ? WIDE(g->m) * LANES : 0;
	int64_t n = at_once > 0 && floats / g->m > g->k ? g->n / at_once * at_once : 0;
	struct thin thin = {.g = g, .a = (uint32_t *)workspace};

	if (n > 0)
		gather(g, (uint32_t *)workspace);
	for (; thin.column < n; thin.column += at_once)
		groups[g->m][g->transpose_b](&thin);
	return n;
}

#endif
