/* The register tile that all matrix work is made of, and the packing that feeds it.
 *
 * A tile holds TILE_ROWS x TILE_COLS sums in registers; each step of k reads one packed row of B
 * (two vectors) and broadcasts one element of each row of A. B is packed so that the tile reads it
 * in order; A is not packed. (Goto and van de Geijn 2008; the BLIS papers.) Compiled with
 * -ffp-contract=fast: c += a * b is one fused operation where the level has it. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/tiles.h"
#include "kernels/cpu/transpose.h"

typedef void tile_function(const struct product *product, int64_t k, const float *a, const float *b,
	float *c, int64_t ldc, bool accumulate);

/* `panel`: where B is left as it is packed, when it comes as it is stored; else NULL. */
INLINE void tile(const int rows, const struct product *product, int64_t k, const float *a,
	const float *b, int64_t b_step, float *panel, float *c, int64_t ldc, bool accumulate)
{
	const int64_t a_row = product->a_row, a_step = product->a_step;
	vec sum[TILE_ROWS][2] = {0};

	for (int64_t p = 0; p < k; p++) {
		tile_fetch(rows, p, c, ldc, product->ahead);
		vec b0 = load(b), b1 = load(b + LANES);
		if (panel != NULL) {
			store(panel + p * TILE_COLS, b0);
			store(panel + p * TILE_COLS + LANES, b1);
		}
#pragma GCC unroll 12
		for (int i = 0; i < rows; i++) {
			vec element = splat(a[i * a_row]);
			sum[i][0] += element * b0;
			sum[i][1] += element * b1;
		}
		a += a_step;
		b += b_step;
	}
	tile_store(rows, sum, c, ldc, accumulate);
}

#define TILE(rows)                                                                                 \
	static void tile_##rows(const struct product *product, int64_t k, const float *a,          \
		const float *b, float *c, int64_t ldc, bool accumulate)                            \
	{                                                                                          \
		tile(rows, product, k, a, b, TILE_COLS, NULL, c, ldc, accumulate);                 \
	}
TILES(TILE)
#undef TILE

#define TILE(rows) [rows] = tile_##rows,
static tile_function *const tiles[TILE_ROWS + 1] = {TILES(TILE)};
#undef TILE

/* The last panel of C: a whole tile beside C, of which the valid columns are copied. */
static void tile_edge(const struct product *p, int64_t rows, int64_t columns, int64_t k,
	const float *a, const float *b, float *c)
{
	float block[TILE_ROWS * TILE_COLS];

	tiles[rows](p, k, a, b, block, TILE_COLS, false);
	tile_store_edge(block, rows, columns, c, p->ldc, p->accumulate);
}

INLINE int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The end of what the rows up to `last` need, of n, when row i ends at i + offset. */
static int64_t end_of(int64_t n, int64_t last, int64_t offset)
{
	return offset == NO_END ? n : smaller(n, last + offset + 1);
}

static int64_t begin_of(int64_t first, int64_t offset)
{
	return offset == NO_BEGIN || first + offset < 0 ? 0 : first + offset;
}

void CPU(multiply)(const struct product *p)
{
	for (int64_t i = 0; i < p->m; i += TILE_ROWS) {
		int64_t rows = smaller(TILE_ROWS, p->m - i);
		int64_t n = end_of(p->n, i + rows - 1, p->end_column);
		int64_t begin = begin_of(i, p->begin_term);
		int64_t k = end_of(p->k, i + rows - 1, p->end_term) - begin;
		const float *a = p->a + i * p->a_row + begin * p->a_step;

		for (int64_t j = 0; j < n; j += TILE_COLS) {
			const float *b = p->b + j * p->k + begin * TILE_COLS;
			float *c = p->c + i * p->ldc + j;

			if (p->n - j >= TILE_COLS)
				tiles[rows](p, k, a, b, c, p->ldc, p->accumulate);
			else
				tile_edge(p, rows, p->n - j, k, a, b, c);
		}
	}
}

/* A panel of `columns` <= TILE_COLS rows of b (stored [n, k]) becomes [k, TILE_COLS]. */
static void pack_transposed(float *panel, const float *b, int64_t ldb, int64_t k, int64_t columns)
{
	int64_t whole = columns / LANES * LANES;
	int64_t even = k / LANES * LANES;

	if (columns < TILE_COLS)
		memset(panel, 0, (size_t)(k * TILE_COLS) * sizeof(float));
	for (int64_t p = 0; p < even; p += LANES) {
		for (int64_t j = 0; j < whole; j += LANES)
			transpose_block(panel + p * TILE_COLS + j, TILE_COLS, b + j * ldb + p,
				ldb * (int64_t)sizeof(float));
	}
	for (int64_t j = 0; j < columns; j++) {
		for (int64_t p = j < whole ? even : 0; p < k; p++)
			panel[p * TILE_COLS + j] = b[j * ldb + p];
	}
}

static void pack_rows(float *panel, const float *b, int64_t ldb, int64_t k, int64_t columns)
{
	for (int64_t p = 0; p < k; p++, panel += TILE_COLS, b += ldb) {
		if (columns == TILE_COLS) {
			store(panel, load(b));
			store(panel + LANES, load(b + LANES));
			continue;
		}
		for (int64_t j = 0; j < TILE_COLS; j++)
			panel[j] = j < columns ? b[j] : 0.0f;
	}
}

void CPU(pack)(float *packed, const float *b, int64_t ldb, bool transpose, int64_t k, int64_t n)
{
	for (int64_t j = 0; j < n; j += TILE_COLS) {
		int64_t columns = smaller(TILE_COLS, n - j);

		if (transpose)
			pack_transposed(packed + j * k, b + j * ldb, ldb, k, columns);
		else
			pack_rows(packed + j * k, b + j, ldb, k, columns);
	}
}

/* The tile has TILE_ROWS rows and TILE_COLS columns. */
static void pack_tile(const struct product *p, const float *b, int64_t ldb, float *panel, float *c)
{
	tile(TILE_ROWS, p, p->k, p->a, b, ldb, panel, c, p->ldc, p->accumulate);
}

void CPU(pack_and_multiply)(
	const struct product *p, float *packed, const float *b, int64_t ldb, bool transpose)
{
	int64_t whole = p->m == TILE_ROWS && !transpose ? p->n / TILE_COLS * TILE_COLS : 0;
	struct product rest = *p;

	for (int64_t j = 0; j < whole; j += TILE_COLS)
		pack_tile(p, b + j, ldb, packed + j * p->k, p->c + j);
	rest.n -= whole;
	rest.b = packed + whole * p->k;
	rest.c += whole;
	CPU(pack)(packed + whole * p->k, b + whole, ldb, transpose, p->k, rest.n);
	CPU(multiply)(&rest);
}
