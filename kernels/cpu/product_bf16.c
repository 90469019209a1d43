/* The register tile of bf16 products. Terms come in pairs; to every fp32 sum the odd term of a pair
 * is added first, then the even one, each with one rounding: VDPBF16PS where the level has it, two
 * fused multiply-adds elsewhere. A product of two bf16 is exact in fp32, so levels that cannot fuse
 * round alike. The instruction takes denormals as zero, and so does this file's caller. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/transpose.h"

typedef uint32_t uvec_unaligned __attribute__((vector_size(4 * LANES), may_alias, aligned(4)));

typedef void tile_function(
	const struct product_bf16 *p, const uint32_t *b, float *c, int64_t ldc, bool accumulate);

INLINE uvec load_words(const uint32_t *p)
{
	return *(const uvec_unaligned *)p;
}

/* Word j: column j of two consecutive rows of B. */
INLINE uvec zip(const uint16_t *b, int64_t ldb)
{
	uvec low = __builtin_convertvector(*(const hvec_unaligned *)b, uvec);
	uvec high = __builtin_convertvector(*(const hvec_unaligned *)(b + ldb), uvec);

	return low | high << 16;
}

INLINE void store_words(uint32_t *p, uvec words)
{
	*(uvec_unaligned *)p = words;
}

/* Rows of B as they are stored, and the panel where they are left packed; none: it is packed. */
struct stored {
	const uint16_t *b;
	int64_t ldb;
	uint32_t *panel;
};

/* Words of A, `row` apart, by a row of packed words of B. */
#if defined(__AVX512BF16__)
INLINE void add_pairs(
	const int rows, vec sum[TILE_ROWS][2], const uint32_t *a, int64_t row, const uint32_t *b)
{
	uvec b0 = load_words(b), b1 = load_words(b + LANES);

#pragma GCC unroll 12
	for (int r = 0; r < rows; r++) {
		uvec element = a[r * row] - (uvec){0};
		sum[r][0] = add_pair(sum[r][0], element, b0);
		sum[r][1] = add_pair(sum[r][1], element, b1);
	}
}
#else
/* Kept whole: GCC would take a term out of a word before it spreads it, which takes two more
 * instructions. */
INLINE uvec splat_word(const uint32_t *word)
{
	uvec words = *word - (uvec){0};

#if defined(__SSE__)
	__asm__ volatile("" : "+x"(words));
#endif
	return words;
}

/* All odd terms, then, read once more, all even ones: with both at a time, sums of a tile would not
 * stay in registers. */
INLINE void add_pairs(
	const int rows, vec sum[TILE_ROWS][2], const uint32_t *a, int64_t row, const uint32_t *b)
{
	vec b0 = odd_terms(load_words(b)), b1 = odd_terms(load_words(b + LANES));

#pragma GCC unroll 12
	for (int r = 0; r < rows; r++) {
		vec element = odd_terms(splat_word(a + r * row));
		sum[r][0] += element * b0;
		sum[r][1] += element * b1;
	}
	__asm__ volatile("" ::: "memory");
	b0 = even_terms(load_words(b));
	b1 = even_terms(load_words(b + LANES));
#pragma GCC unroll 12
	for (int r = 0; r < rows; r++) {
		vec element = even_terms(splat_word(a + r * row));
		sum[r][0] += element * b0;
		sum[r][1] += element * b1;
	}
}
#endif

INLINE void tile(const int rows, const struct product_bf16 *p, const uint32_t *b,
	struct stored stored, float *c, int64_t ldc, bool accumulate)
{
	vec sum[TILE_ROWS][2] = {0};
	const uint32_t *a = p->a;
	const int64_t row = p->a_row, step = p->a_step;

	for (int64_t i = 0; i < p->pairs; i++) {
		tile_fetch(rows, i, c, ldc, p->ahead);
		if (stored.b != NULL) {
			store_words(stored.panel, zip(stored.b, stored.ldb));
			store_words(stored.panel + LANES, zip(stored.b + LANES, stored.ldb));
			stored.b += 2 * stored.ldb;
			b = stored.panel;
			stored.panel += TILE_COLS;
		}
		add_pairs(rows, sum, a, row, b);
		b += TILE_COLS;
		a += step;
	}
	tile_store(rows, sum, c, ldc, accumulate);
}

#define TILE(rows)                                                                                 \
	static void tile_##rows(const struct product_bf16 *p, const uint32_t *b, float *c,         \
		int64_t ldc, bool accumulate)                                                      \
	{                                                                                          \
		tile(rows, p, b, (struct stored){0}, c, ldc, accumulate);                          \
	}
TILES(TILE)
#undef TILE

#define TILE(rows) [rows] = tile_##rows,
static tile_function *const tiles[TILE_ROWS + 1] = {TILES(TILE)};
#undef TILE

/* The last panel of C: a whole tile beside C, of which the valid columns are copied. */
static void tile_edge(const struct product_bf16 *p, const uint32_t *b, float *c, int64_t columns)
{
	float block[TILE_ROWS * TILE_COLS];

	tiles[p->rows](p, b, block, TILE_COLS, false);
	tile_store_edge(block, p->rows, columns, c, p->ldc, p->accumulate);
}

void CPU(product_bf16)(const struct product_bf16 *p)
{
	for (int64_t j = 0; j < p->columns; j += TILE_COLS) {
		const uint32_t *b = p->b + j * p->pairs;

		if (p->padded || p->columns - j >= TILE_COLS)
			tiles[p->rows](p, b, p->c + j, p->ldc, p->accumulate);
		else
			tile_edge(p, b, p->c + j, p->columns - j);
	}
}

/* --- packing --- */

/* Rows of B are read side by side: word j holds column j of two consecutive rows. */
static void pack_rows(uint32_t *panel, const uint16_t *b, int64_t ldb, int64_t k, int64_t columns)
{
	for (int64_t p = 0; p < k; p += 2, panel += TILE_COLS, b += 2 * ldb) {
		const uint16_t *next = p + 1 < k ? b + ldb : NULL;

		for (int64_t j = 0; j < TILE_COLS && columns == TILE_COLS && next; j += LANES)
			store_words(panel + j, zip(b + j, ldb));
		for (int64_t j = 0; j < TILE_COLS && (columns < TILE_COLS || !next); j++) {
			uint32_t low = j < columns ? b[j] : 0;
			uint32_t high = j < columns && next ? next[j] : 0;
			panel[j] = low | high << 16;
		}
	}
}

/* B stored [n, k]: pairs are words already, and only have to change places. */
static void pack_transposed(
	uint32_t *panel, const uint16_t *b, int64_t ldb, int64_t k, int64_t columns)
{
	int64_t pairs = (k + 1) / 2, whole = columns / LANES * LANES;
	int64_t even = k / 2 / LANES * LANES;

	if (columns < TILE_COLS)
		memset(panel, 0, (size_t)(pairs * TILE_COLS) * sizeof(*panel));
	for (int64_t p = 0; p < even; p += LANES)
		for (int64_t j = 0; j < whole; j += LANES)
			transpose_block((float *)panel + p * TILE_COLS + j, TILE_COLS,
				b + j * ldb + 2 * p, ldb * (int64_t)sizeof(*b));
	for (int64_t j = 0; j < columns; j++) {
		for (int64_t p = j < whole ? even : 0; p < pairs; p++) {
			uint32_t low = b[j * ldb + 2 * p];
			uint32_t high = 2 * p + 1 < k ? b[j * ldb + 2 * p + 1] : 0;
			panel[p * TILE_COLS + j] = low | high << 16;
		}
	}
}

void CPU(pack_bf16)(
	uint32_t *packed, const uint16_t *b, int64_t ldb, bool transpose, int64_t k, int64_t n)
{
	int64_t pairs = (k + 1) / 2;

	for (int64_t j = 0; j < n; j += TILE_COLS) {
		int64_t columns = n - j < TILE_COLS ? n - j : TILE_COLS;

		if (transpose)
			pack_transposed(packed + j * pairs, b + j * ldb, ldb, k, columns);
		else
			pack_rows(packed + j * pairs, b + j, ldb, k, columns);
	}
}

/* The tile has TILE_ROWS rows and TILE_COLS columns. */
static void pack_tile(const struct product_bf16 *p, struct stored stored, float *c)
{
	tile(TILE_ROWS, p, NULL, stored, c, p->ldc, p->accumulate);
}

void CPU(pack_and_multiply_bf16)(const struct product_bf16 *p, uint32_t *packed, const uint16_t *b,
	int64_t ldb, bool transpose, int64_t k)
{
	bool zips = p->rows == TILE_ROWS && !transpose && k % 2 == 0;
	int64_t whole = zips ? p->columns / TILE_COLS * TILE_COLS : 0;
	struct product_bf16 rest = *p;

	for (int64_t j = 0; j < whole; j += TILE_COLS)
		pack_tile(p, (struct stored){b + j, ldb, packed + j * p->pairs}, p->c + j);
	rest.columns -= whole;
	rest.b = packed + whole * p->pairs;
	rest.c += whole;
	CPU(pack_bf16)(packed + whole * p->pairs, b + whole, ldb, transpose, k, rest.columns);
	CPU(product_bf16)(&rest);
}
