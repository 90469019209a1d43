/* Products of a few rows, where packing B would take longer than multiplying. B is read where it
 * lies, once: columns as they are, or a square of LANES x LANES words at a time turned over in the
 * first-level cache. Each element is summed as by the other products: block of terms by block, in
 * order. */
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

#define GROUP(rows)                                                                                \
	static void fp32_straight_##rows(const struct thin *t)                                     \
	{                                                                                          \
		group(DTYPE_FP32, false, rows, t);                                                 \
	}                                                                                          \
	static void fp32_turned_##rows(const struct thin *t)                                       \
	{                                                                                          \
		group(DTYPE_FP32, true, rows, t);                                                  \
	}                                                                                          \
	static void bf16_straight_##rows(const struct thin *t)                                     \
	{                                                                                          \
		group(DTYPE_BF16, false, rows, t);                                                 \
	}                                                                                          \
	static void bf16_turned_##rows(const struct thin *t)                                       \
	{                                                                                          \
		group(DTYPE_BF16, true, rows, t);                                                  \
	}
#if TILE_ROWS == 12
#define ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif
ROWS(GROUP)
#undef GROUP

#define GROUP(rows)                                                                                \
	[rows] = {{fp32_straight_##rows, fp32_turned_##rows},                                      \
		{bf16_straight_##rows, bf16_turned_##rows}},
static group_function *const groups[THIN_ROWS + 1][2][2] = {ROWS(GROUP)};
#undef GROUP

/* A as words [steps][m]; the last bf16 of an odd number stands beside zero. */
static void gather_fp32(const struct gemm *g, uint32_t *to)
{
	int64_t row = g->transpose_a ? 1 : g->lda, term = g->transpose_a ? g->lda : 1;

	for (int64_t p = 0; p < g->k; p++)
		for (int64_t i = 0; i < g->m; i++)
			memcpy(to++, (const float *)g->a + i * row + p * term, sizeof(*to));
}

static void gather_bf16(const struct gemm *g, uint32_t *to)
{
	int64_t row = g->transpose_a ? 1 : g->lda, term = g->transpose_a ? g->lda : 1;

	for (int64_t p = 0; p < g->k; p += 2)
		for (int64_t i = 0; i < g->m; i++) {
			const uint16_t *a = (const uint16_t *)g->a + i * row + p * term;

			*to++ = a[0] | (p + 1 < g->k ? (uint32_t)a[term] << 16 : 0);
		}
}

int64_t CPU(multiply_thin)(const struct gemm *g, float *workspace, int64_t floats)
{
	int64_t columns = g->m > 0 && g->m <= THIN_ROWS ? WIDE(g->m) * LANES : 0;
	int64_t n = columns > 0 && floats / g->m > g->k ? g->n / columns * columns : 0;
	bool bf16 = g->dtype == DTYPE_BF16;
	struct thin thin = {.g = g, .a = (uint32_t *)workspace};

	if (n > 0)
		(bf16 ? gather_bf16 : gather_fp32)(g, (uint32_t *)workspace);
	for (; thin.column < n; thin.column += columns)
		groups[g->m][bf16][g->transpose_b](&thin);
	return n;
}
