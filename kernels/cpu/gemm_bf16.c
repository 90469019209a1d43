/* The matrix product of bf16, blocked as gemm.c blocks fp32: the same bytes per block, twice the
 * terms. Sums over blocks of k stay in fp32 until the last one: a bf16 element of C is rounded
 * once.
 *
 *   for each chunk of columns                    (bf16 C of several blocks of k: its sums fit)
 *     for each block of rows
 *       for each block of k: copy A's panels
 *         for each block of columns: pack B, multiply (the first rows do both), and after the last
 *           block of k round */
#include "kernels/common/common.h"
#include "kernels/cpu/ahead.h"
#include "kernels/cpu/cpu.h"

enum {
	BLOCK_K = BLOCK_TERMS_BF16,
	BLOCK_COLS = 64, /* a multiple of every TILE_COLS */
	BLOCK_ROWS = 1536,
	CHUNK_COLS = 24 * BLOCK_COLS, /* of sums */
	ROW_PADDING = 16,
	NEAR_ELEMENTS = 1 << 20, /* so much of B is still near when it is read for the next rows */
	LEAST_ROWS = 48,         /* a multiple of every TILE_ROWS */
	/* Where a block starts is rounded to an even term: it may have one pair more. */
	PACKED_WORDS = BLOCK_COLS * (BLOCK_K / 2 + 1),
	PANEL_ROW = BLOCK_K / 2 + ROW_PADDING,
	PANEL_SUMS = TILE_ROWS * BLOCK_COLS,
	LEAST = PACKED_WORDS + PANEL_SUMS + LEAST_ROWS * (PANEL_ROW + CHUNK_COLS),
};
_Static_assert((int)LEAST <= (int)GEMM_BF16_LEAST_FLOATS, "the least workspace is enough");

struct block {
	int64_t row, rows, column, columns, term, terms;
	bool first, last; /* of the blocks of k */
};

/* The layout of the workspace. */
struct space {
	uint32_t *packed; /* B */
	uint32_t *panels; /* A, TILE_ROWS rows each */
	int64_t row, step, next;
	float *sums; /* one panel, or all of the block of rows and chunk of columns */
	int64_t sums_row;
	bool several; /* blocks of k */
};

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t pairs_of(const struct block *block)
{
	return (block->terms + 1) / 2;
}

/* A stored [m, k]: pairs are side by side already. */
static void copy_rows(const struct gemm *g, const struct block *block, struct space *space)
{
	const uint16_t *a = (const uint16_t *)g->a + block->row * g->lda + block->term;

	space->row = PANEL_ROW;
	space->step = 1;
	space->next = PANEL_ROW * TILE_ROWS;
	for (int64_t i = 0; i < block->rows; i++) {
		uint16_t *to = (uint16_t *)(space->panels + i * PANEL_ROW);

		memcpy(to, a + i * g->lda, (size_t)block->terms * sizeof(*a));
		if (block->terms % 2)
			to[block->terms] = 0;
	}
}

enum { STRIP = 48 }; /* a multiple of every TILE_ROWS and LANES */

/* Words of `count` <= STRIP columns of two consecutive rows of A; `next` may be NULL. */
static void zip(uint32_t *words, const uint16_t *a, const uint16_t *next, int64_t count)
{
	for (int64_t i = 0; i < STRIP && count == STRIP && next; i += LANES) {
		uvec low = __builtin_convertvector(*(const hvec_unaligned *)(a + i), uvec);
		uvec high = __builtin_convertvector(*(const hvec_unaligned *)(next + i), uvec);
		uvec both = low | high << 16;

		memcpy(words + i, &both, sizeof(both));
	}
	for (int64_t i = 0; i < count && (count < STRIP || !next); i++)
		words[i] = a[i] | (uint32_t)(next ? next[i] : 0) << 16;
}

/* A stored [k, m]: each step of a panel gets its TILE_ROWS words side by side. */
static void copy_columns(const struct gemm *g, const struct block *block, struct space *space)
{
	int64_t pairs = pairs_of(block);
	uint32_t words[STRIP];

	space->row = 1;
	space->step = TILE_ROWS;
	space->next = pairs * TILE_ROWS;
	for (int64_t p = 0; p < pairs; p++) {
		const uint16_t *a =
			(const uint16_t *)g->a + (block->term + 2 * p) * g->lda + block->row;
		const uint16_t *next = 2 * p + 1 < block->terms ? a + g->lda : NULL;

		for (int64_t i = 0; i < block->rows; i += STRIP) {
			int64_t count = smaller(STRIP, block->rows - i);

			zip(words, a + i, next ? next + i : NULL, count);
			for (int64_t r = 0; r < count; r += TILE_ROWS)
				memcpy(space->panels + (i + r) * pairs + p * TILE_ROWS, words + r,
					TILE_ROWS * sizeof(*words));
		}
	}
}

/* C (= | +=) sums, of one panel. */
static void round_panel(const struct gemm *g, const struct block *block, int64_t row, int64_t rows,
	const float *sums, int64_t sums_row)
{
	for (int64_t i = 0; i < rows; i++) {
		uint16_t *c = (uint16_t *)g->c + (block->row + row + i) * g->ldc + block->column;
		const float *from = sums + i * sums_row;

		for (int64_t j = 0; j < block->columns; j += LANES) {
			vec v = load(from + j);

			if (g->accumulate)
				v += load_bf16(c + j, block->columns - j);
			store_bf16(c + j, v, block->columns - j);
		}
	}
}

static void multiply_block(const struct gemm *g, const struct block *block,
	const struct space *space, int64_t chunk, struct ahead *ahead)
{
	bool rounds = g->c_dtype == DTYPE_BF16;
	const uint16_t *b =
		(const uint16_t *)g->b + (g->transpose_b ? block->column * g->ldb + block->term
							 : block->term * g->ldb + block->column);
	struct product_bf16 product = {
		.columns = block->columns,
		.pairs = pairs_of(block),
		.a_row = space->row,
		.a_step = space->step,
		.b = space->packed,
		.ldc = rounds ? space->sums_row : g->ldc,
		.accumulate = !block->first || (g->accumulate && !rounds),
		.padded = rounds,
		.ahead = ahead,
	};

	for (int64_t i = 0; i < block->rows; i += TILE_ROWS) {
		float *sums = space->sums;

		if (space->several)
			sums += i * space->sums_row + block->column - chunk;
		product.rows = smaller(TILE_ROWS, block->rows - i);
		product.a = space->panels + i / TILE_ROWS * space->next;
		product.c =
			rounds ? sums : (float *)g->c + (block->row + i) * g->ldc + block->column;
		if (i == 0) {
			CPU(pack_and_multiply_bf16)
			(&product, space->packed, b, g->ldb, g->transpose_b, block->terms);
		} else {
			CPU(product_bf16)(&product);
		}
		if (rounds && block->last)
			round_panel(g, block, i, product.rows, sums, space->sums_row);
	}
}

/* The block of B that is packed next, where it is not near already. */
static struct ahead next_of(
	const struct gemm *g, const struct block *block, int64_t chunk, int64_t end)
{
	int64_t column = block->column + BLOCK_COLS, term = block->term + block->terms;
	int64_t steps = tiles_of(block->rows, block->columns) * pairs_of(block);

	if (block->row > 0 && g->n * g->k <= NEAR_ELEMENTS)
		return (struct ahead){0};
	if (column < end)
		return ahead_of(g, block->term, block->terms, column, BLOCK_COLS, steps);
	if (block->row + block->rows < g->m || term == g->k)
		return (struct ahead){0};
	return ahead_of(g, term, BLOCK_K, chunk, BLOCK_COLS, steps);
}

/* One block of rows, one block of k, the columns [chunk, end). */
static void row_block(
	const struct gemm *g, struct block *block, struct space *space, int64_t chunk, int64_t end)
{
	if (g->transpose_a)
		copy_columns(g, block, space);
	else
		copy_rows(g, block, space);
	for (block->column = chunk; block->column < end; block->column += BLOCK_COLS) {
		block->columns = smaller(BLOCK_COLS, end - block->column);
		struct ahead ahead = next_of(g, block, chunk, end);
		multiply_block(g, block, space, chunk, &ahead);
	}
}

static void all_terms(const struct gemm *g, struct block *block, struct space *space,
	int64_t blocks, int64_t chunk, int64_t end)
{
	for (int64_t i = 0; i < blocks; i++) {
		block->term = block_term(DTYPE_BF16, g->k, i);
		block->terms = block_term(DTYPE_BF16, g->k, i + 1) - block->term;
		block->first = i == 0;
		block->last = i + 1 == blocks;
		row_block(g, block, space, chunk, end);
	}
}

/* Denormals are zero here on every level, as they are for the instruction. */
#if defined(__SSE__)
static unsigned flush_denormals(void)
{
	unsigned before = _mm_getcsr();

	_mm_setcsr(before | 0x8040);
	return before;
}

static void restore_denormals(unsigned before)
{
	_mm_setcsr(before);
}
#else
static unsigned flush_denormals(void)
{
	return 0;
}

static void restore_denormals(unsigned before)
{
	(void)before;
}
#endif

void CPU(multiply_bf16)(const struct gemm *g, float *workspace, int64_t floats)
{
	int64_t blocks = term_blocks(DTYPE_BF16, g->k);
	bool sums = g->c_dtype == DTYPE_BF16 && blocks > 1;
	int64_t columns =
		sums ? smaller(CHUNK_COLS, (g->n + BLOCK_COLS - 1) / BLOCK_COLS * BLOCK_COLS) : 0;
	int64_t room = (floats - PACKED_WORDS - PANEL_SUMS) / (PANEL_ROW + columns) / LEAST_ROWS *
		       LEAST_ROWS;
	int64_t rows = smaller(BLOCK_ROWS, room), chunk_columns = sums ? columns : g->n;
	struct space space = {.packed = (uint32_t *)workspace,
		.sums = workspace + PACKED_WORDS,
		.sums_row = sums ? columns : BLOCK_COLS,
		.several = blocks > 1};
	struct block block = {0};
	unsigned control = flush_denormals();

	space.panels = (uint32_t *)(workspace + PACKED_WORDS + PANEL_SUMS);
	if (sums)
		space.sums = (float *)(space.panels + rows * PANEL_ROW);
	for (int64_t chunk = CPU(multiply_thin_bf16)(g, workspace, floats); chunk < g->n;
		chunk += chunk_columns) {
		int64_t end = smaller(g->n, chunk + chunk_columns);

		for (block.row = 0; block.row < g->m; block.row += block.rows) {
			block.rows = smaller(rows, g->m - block.row);
			all_terms(g, &block, &space, blocks, chunk, end);
		}
	}
	restore_denormals(control);
}
