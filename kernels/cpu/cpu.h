/* What the files of kernels/cpu share.
 *
 * Each file is compiled once per level (x86-64: base, v3 = AVX2, v4 = AVX-512; elsewhere base),
 * with KERNELS_LEVEL naming it; CPU(name) gives every function its level's name. The best level
 * that this machine has is picked when the program runs (kernels/tables.c). */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/common/common.h"
#include "kernels/cpu/elements.h"

#define CPU_PASTE(name, level)  cpu_##name##_##level
#define CPU_EXPAND(name, level) CPU_PASTE(name, level)
#define CPU(name)               CPU_EXPAND(name, KERNELS_LEVEL)
/* For levels without products of bf16: v4bf16 takes the function of v4. */
#ifndef KERNELS_REST
#define KERNELS_REST KERNELS_LEVEL
#endif
#define REST(name) CPU_EXPAND(name, KERNELS_REST)

/* The register tile of the matrix kernels: TILE_ROWS x TILE_COLS sums, as many as the level's
 * registers hold beside one row of B. */
#define TILE_COLS (2 * LANES)
#if defined(__AVX512F__)
#define TILE_ROWS 12
#else
#define TILE_ROWS 6
#endif

/* Causal products skip what they know to be zero or unused; no limit is one of these. */
#define NO_END   INT64_MAX
#define NO_BEGIN INT64_MIN

/* Floats that a packed [k, n] matrix takes. */
INLINE int64_t packed_size(int64_t k, int64_t n)
{
	return (n + TILE_COLS - 1) / TILE_COLS * TILE_COLS * k;
}

/* Packs B ([k, n], or [n, k] when transposed) into panels of TILE_COLS columns, zero-padded: panel
 * j starts at packed + j * k * TILE_COLS. */
void REST(pack)(float *packed, const float *b, int64_t ldb, bool transpose, int64_t k, int64_t n);

/* C[m,n] (= | +=) A[m,k] packed B[k,n], A's element (i, p) at a[i * a_row + p * a_step].
 * For each element the products are summed in the order of p with fused multiply-adds where the
 * level has them: its bits depend on its row, its column and k only. */
struct product {
	int64_t m, n, k;
	const float *a;
	int64_t a_row, a_step;
	const float *b;
	float *c;
	int64_t ldc;
	bool accumulate;
	int64_t end_column;  /* row i of C is needed up to column i + end_column only (or NO_END) */
	int64_t end_term;    /* row i of A is zero past column i + end_term (or NO_END) */
	int64_t begin_term;  /* row i of A is zero before column i + begin_term (or NO_BEGIN) */
	struct ahead *ahead; /* what is fetched meanwhile (ahead.h), or NULL */
};
void REST(multiply)(const struct product *product);
/* The same of the first rows, at most TILE_ROWS and without limits, where B ([k, n], or [n, k] when
 * transposed) is not packed yet. Rows that only have to be copied are, behind the products. */
void REST(pack_and_multiply)(
	const struct product *product, float *packed, const float *b, int64_t ldb, bool transpose);

/* Products of bf16: a register tile that takes the terms in pairs (product_bf16.c). Packed operands
 * are words, each a pair of consecutive terms, the earlier one in its lower half. A is walked by
 * word: (i, p) at a[i * a_row + p * a_step]. */
struct product_bf16 {
	int64_t rows, columns, pairs; /* rows <= TILE_ROWS */
	const uint32_t *a;
	int64_t a_row, a_step;
	const uint32_t *b; /* panels of TILE_COLS columns, each [pairs, TILE_COLS] */
	float *c;          /* fp32; whole panels are written when `padded` */
	int64_t ldc;
	bool accumulate, padded;
	struct ahead *ahead; /* or NULL */
};
void CPU(product_bf16)(const struct product_bf16 *product);
/* Panels of B ([k, n], or [n, k] when transposed); an odd k is padded with a zero. */
void CPU(pack_bf16)(
	uint32_t *packed, const uint16_t *b, int64_t ldb, bool transpose, int64_t k, int64_t n);

/* Multiplies the first rows, as pack_and_multiply does. */
void CPU(pack_and_multiply_bf16)(const struct product_bf16 *product, uint32_t *packed,
	const uint16_t *b, int64_t ldb, bool transpose, int64_t k);

/* Terms are summed up block by block: how many blocks k of them make, and the first term of each.
 * It depends on k only, so bits depend on no other size. A block of bf16 begins with a pair. */
enum { BLOCK_TERMS = 512, BLOCK_TERMS_BF16 = 1024 };
INLINE int64_t term_blocks(const enum dtype dtype, int64_t k)
{
	int64_t most = dtype == DTYPE_BF16 ? BLOCK_TERMS_BF16 : BLOCK_TERMS;

	return (k + most - 1) / most;
}

INLINE int64_t block_term(const enum dtype dtype, int64_t k, int64_t block)
{
	int64_t blocks = term_blocks(dtype, k), pair = dtype == DTYPE_BF16 ? 2 : 1;

	return block < blocks ? block * k / blocks / pair * pair : k;
}

/* The first columns of a product of so few rows, as many as it says; the others are left. */
enum { THIN_ROWS = TILE_ROWS == 12 ? 7 : 6 };
int64_t REST(multiply_thin)(const struct gemm *g, float *workspace, int64_t floats);
int64_t CPU(multiply_thin_bf16)(const struct gemm *g, float *workspace, int64_t floats);

/* The whole of a product of bf16 in `floats` of workspace, of which it needs so many. */
enum { GEMM_BF16_LEAST_FLOATS = 1 << 18 };
void CPU(multiply_bf16)(const struct gemm *g, float *workspace, int64_t floats);

void CPU(gemm)(struct kernel_context *, const struct gemm *);
#define X(name, parameters) void REST(name) parameters;
KERNELS(X)
#undef X
/* The updates of what is kept in bf16 (optimizer_bf16.c). */
void CPU(adamw_bf16)(const struct adamw *);
void CPU(sgd_bf16)(const struct sgd *);

#endif
