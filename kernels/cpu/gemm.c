/* The built-in matrix product: blocks of A and B are copied into the workspace so that the register
 * tile reads B from the second-level cache and A from the first.
 *
 *   for each block of k (the split depends on k only, so bits depend on no other size)
 *     for each block of rows: copy A's panels          (third-level cache, up to BLOCK_ROWS x
 * BLOCK_K) for each block of columns: pack B               (second-level cache, BLOCK_COLS x
 * BLOCK_K) multiply
 */
#include "kernels/common/common.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/threads.h"

enum {
	BLOCK_K = 512,
	BLOCK_COLS = 192,  /* a multiple of every TILE_COLS */
	BLOCK_ROWS = 1536, /* fewer when the threads' shares of the workspace are small */
	ROW_PADDING = 16,  /* keeps the rows of a panel out of each other's cache sets */
	PACKED_FLOATS = BLOCK_COLS * BLOCK_K,
	LEAST_ROWS = 48, /* a multiple of every TILE_ROWS */
	LEAST_FLOATS = PACKED_FLOATS + LEAST_ROWS * (BLOCK_K + ROW_PADDING),
	/* Below this a second thread costs more than it saves. */
	LEAST_THREAD_WORK = 1 << 20,
};

struct block {
	int64_t row, rows, column, columns, term, terms;
	bool accumulate;
};

/* Where the copied block of A is and how the tile walks through it. */
struct panels {
	float *data;
	int64_t row, step; /* strides inside a panel of TILE_ROWS rows */
	int64_t next;      /* floats from panel to panel */
};

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* A stored [m, k]: rows are copied as they are. */
static void copy_rows(const struct gemm *g, const struct block *block, struct panels *panels)
{
	panels->row = block->terms + ROW_PADDING;
	panels->step = 1;
	panels->next = panels->row * TILE_ROWS;
	for (int64_t i = 0; i < block->rows; i++) {
		memcpy(panels->data + i * panels->row,
			(const float *)g->a + (block->row + i) * g->lda + block->term,
			(size_t)block->terms * sizeof(float));
	}
}

/* A stored [k, m]: each step of a panel gets its TILE_ROWS elements side by side. */
static void copy_columns(const struct gemm *g, const struct block *block, struct panels *panels)
{
	panels->row = 1;
	panels->step = TILE_ROWS;
	panels->next = block->terms * TILE_ROWS;
	for (int64_t p = 0; p < block->terms; p++) {
		const float *from = (const float *)g->a + (block->term + p) * g->lda + block->row;
		for (int64_t i = 0; i < block->rows; i += TILE_ROWS) {
			memcpy(panels->data + i * block->terms + p * TILE_ROWS, from + i,
				(size_t)smaller(TILE_ROWS, block->rows - i) * sizeof(float));
		}
	}
}

static void multiply_block(const struct gemm *g, const struct block *block,
	const struct panels *panels, const float *packed)
{
	struct product product = {
		.n = block->columns,
		.k = block->terms,
		.a_row = panels->row,
		.a_step = panels->step,
		.b = packed,
		.ldc = g->ldc,
		.accumulate = block->accumulate,
		.end_column = NO_END,
		.end_term = NO_END,
		.begin_term = NO_BEGIN,
	};

	for (int64_t i = 0; i < block->rows; i += TILE_ROWS) {
		product.m = smaller(TILE_ROWS, block->rows - i);
		product.a = panels->data + i / TILE_ROWS * panels->next;
		product.c = (float *)g->c + (block->row + i) * g->ldc + block->column;
		CPU(multiply)(&product);
	}
}

static void row_block(
	const struct gemm *g, struct block *block, struct panels *panels, float *packed)
{
	if (g->transpose_a)
		copy_columns(g, block, panels);
	else
		copy_rows(g, block, panels);
	for (block->column = 0; block->column < g->n; block->column += BLOCK_COLS) {
		const float *b = (const float *)g->b +
				 (g->transpose_b ? block->column * g->ldb + block->term
						 : block->term * g->ldb + block->column);

		block->columns = smaller(BLOCK_COLS, g->n - block->column);
		CPU(pack)(packed, b, g->ldb, g->transpose_b, block->terms, block->columns);
		multiply_block(g, block, panels, packed);
	}
}

static void zero_product(const struct gemm *g)
{
	for (int64_t i = 0; i < g->m && !g->accumulate; i++)
		memset(element_at(g->c_dtype, g->c, i * g->ldc), 0,
			(size_t)(g->n * dtype_bytes(g->c_dtype)));
}

/* The whole of `g` in `floats` of workspace. */
static void multiply_fp32(const struct gemm *g, float *workspace, int64_t floats)
{
	int64_t blocks = (g->k + BLOCK_K - 1) / BLOCK_K;
	int64_t room = (floats - PACKED_FLOATS) / (BLOCK_K + ROW_PADDING) / LEAST_ROWS * LEAST_ROWS;
	struct panels panels = {.data = workspace + PACKED_FLOATS};
	struct block block = {0};

	for (int64_t i = 0; i < blocks; i++) {
		block.term = i * g->k / blocks;
		block.terms = (i + 1) * g->k / blocks - block.term;
		block.accumulate = g->accumulate || i > 0;
		for (block.row = 0; block.row < g->m; block.row += block.rows) {
			block.rows = smaller(smaller(BLOCK_ROWS, room), g->m - block.row);
			row_block(g, &block, &panels, workspace);
		}
	}
}

static void multiply_all(const struct gemm *g, float *workspace, int64_t floats)
{
	if (g->dtype == DTYPE_BF16)
		CPU(multiply_bf16)(g, workspace, floats);
	else
		multiply_fp32(g, workspace, floats);
}

/* Part `part` of `parts` of C: a range of whole tiles of its longer side. */
static struct gemm part_of(const struct gemm *g, int part, int parts)
{
	struct gemm result = *g;
	bool by_rows = g->m > g->n;
	int64_t tile = by_rows ? TILE_ROWS : TILE_COLS, side = by_rows ? g->m : g->n;
	int64_t tiles = (side + tile - 1) / tile;
	int64_t first = smaller(side, tiles * part / parts * tile);
	int64_t count = smaller(side, tiles * (part + 1) / parts * tile) - first;

	if (by_rows) {
		result.m = count;
		result.a = element_of(g->dtype, g->a, g->transpose_a ? first : first * g->lda);
		result.c = element_at(g->c_dtype, g->c, first * g->ldc);
	} else {
		result.n = count;
		result.b = element_of(g->dtype, g->b, g->transpose_b ? first * g->ldb : first);
		result.c = element_at(g->c_dtype, g->c, first);
	}
	return result;
}

void CPU(gemm)(struct kernel_context *context, const struct gemm *g)
{
	int64_t work = g->m * g->n / LEAST_THREAD_WORK * g->k +
		       g->m * g->n % LEAST_THREAD_WORK * g->k / LEAST_THREAD_WORK;
	int64_t least = g->dtype == DTYPE_BF16 ? GEMM_BF16_LEAST_FLOATS : LEAST_FLOATS;
	int threads = usable_threads(context, work, least);
	int64_t floats = context->workspace_bytes / (int64_t)sizeof(float) / threads / 16 * 16;

	if (g->m <= 0 || g->n <= 0)
		return;
	if (g->k <= 0) {
		zero_product(g);
		return;
	}
	if (threads == 1) {
		multiply_all(g, context->workspace, floats);
		return;
	}
#pragma omp parallel num_threads(threads)
	{
		struct gemm part = part_of(g, omp_get_thread_num(), omp_get_num_threads());
		multiply_all(&part, thread_workspace(context, threads), floats);
	}
}
