/* The built-in matrix product: blocks of A and B are copied into the workspace so that the register
 * tile reads B from the second-level cache and A from the first.
 *
 *   for each block of rows
 *     for each block of k: copy A's panels       (third-level cache, up to BLOCK_ROWS x BLOCK_K)
 *       for each block of columns: pack B        (second-level cache, BLOCK_COLS x BLOCK_K),
 *         multiply                               (the first rows do both) */
#include "kernels/common/common.h"
#include "kernels/cpu/ahead.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/threads.h"

enum {
	BLOCK_K = BLOCK_TERMS,
	/* A multiple of every TILE_COLS. Two blocks of B, that which is multiplied and the next,
	 * are in the second-level cache beside 256 rows of A. */
	BLOCK_COLS = 64,
	BLOCK_ROWS = 1536, /* fewer when the threads' shares of the workspace are small */
	ROW_PADDING = 16,  /* keeps the rows of a panel out of each other's cache sets */
	PACKED_FLOATS = BLOCK_COLS * BLOCK_K,
	LEAST_ROWS = 48, /* a multiple of every TILE_ROWS */
	LEAST_FLOATS = PACKED_FLOATS + LEAST_ROWS * (BLOCK_K + ROW_PADDING),
	/* Below this a second thread costs more than it saves. */
	LEAST_THREAD_WORK = 1 << 20,
	/* A row or column of a block is copied in the time of so many of its products. */
	COPY_COST = 8,
	/* So much of B is still near when it is read for the next rows. */
	NEAR_FLOATS = 1 << 19,
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
		float *to = panels->data + p * TILE_ROWS;
		int64_t i = 0;

		for (; i + TILE_ROWS <= block->rows; i += TILE_ROWS, to += panels->next)
			memcpy(to, from + i, TILE_ROWS * sizeof(float));
		memcpy(to, from + i, (size_t)(block->rows - i) * sizeof(float));
	}
}

static void multiply_block(const struct gemm *g, const struct block *block,
	const struct panels *panels, float *packed, struct ahead *ahead)
{
	const float *b =
		(const float *)g->b + (g->transpose_b ? block->column * g->ldb + block->term
						      : block->term * g->ldb + block->column);
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
		.ahead = ahead,
	};

	for (int64_t i = 0; i < block->rows; i += TILE_ROWS) {
		product.m = smaller(TILE_ROWS, block->rows - i);
		product.a = panels->data + i / TILE_ROWS * panels->next;
		product.c = (float *)g->c + (block->row + i) * g->ldc + block->column;
		if (i == 0)
			REST(pack_and_multiply)(&product, packed, b, g->ldb, g->transpose_b);
		else
			REST(multiply)(&product);
	}
}

/* The block of B that is packed next, where it is not near already. */
static struct ahead next_of(const struct gemm *g, const struct block *block, int64_t first)
{
	int64_t column = block->column + BLOCK_COLS, term = block->term + block->terms;
	int64_t steps = tiles_of(block->rows, block->columns) * block->terms;

	if (block->row > 0 && g->n * g->k <= NEAR_FLOATS)
		return (struct ahead){0};
	if (column < g->n)
		return ahead_of(g, block->term, block->terms, column, BLOCK_COLS, steps);
	if (term == g->k)
		return (struct ahead){0};
	return ahead_of(g, term, BLOCK_K, first, BLOCK_COLS, steps);
}

static void row_block(const struct gemm *g, struct block *block, struct panels *panels,
	float *packed, int64_t first)
{
	if (g->transpose_a)
		copy_columns(g, block, panels);
	else
		copy_rows(g, block, panels);
	for (block->column = first; block->column < g->n; block->column += BLOCK_COLS) {
		block->columns = smaller(BLOCK_COLS, g->n - block->column);
		struct ahead ahead = next_of(g, block, first);
		multiply_block(g, block, panels, packed, &ahead);
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
	int64_t blocks = term_blocks(DTYPE_FP32, g->k);
	int64_t room = (floats - PACKED_FLOATS) / (BLOCK_K + ROW_PADDING) / LEAST_ROWS * LEAST_ROWS;
	struct panels panels = {.data = workspace + PACKED_FLOATS};
	struct block block = {0};
	int64_t first = REST(multiply_thin)(g, workspace, floats);

	for (block.row = 0; block.row < g->m && first < g->n; block.row += block.rows) {
		block.rows = smaller(smaller(BLOCK_ROWS, room), g->m - block.row);
		for (int64_t i = 0; i < blocks; i++) {
			block.term = block_term(DTYPE_FP32, g->k, i);
			block.terms = block_term(DTYPE_FP32, g->k, i + 1) - block.term;
			block.accumulate = g->accumulate || i > 0;
			row_block(g, &block, &panels, workspace, first);
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

/* Returns the rows or columns of the largest of so many parts of whole tiles. */
static int64_t largest_part(int64_t side, int64_t tile, int parts)
{
	return ((side + tile - 1) / tile + parts - 1) / parts * tile;
}

/* Threads as a grid over C: so many rows of it that the slowest part is done first. Every part
 * copies its rows of A and its columns of B. */
static int grid_rows(const struct gemm *g, int threads)
{
	int64_t least = INT64_MAX;
	int best = 1;

	for (int rows = 1; rows <= threads; rows++) {
		int64_t m = largest_part(g->m, TILE_ROWS, rows);
		int64_t n = largest_part(g->n, TILE_COLS, threads / rows);
		int64_t cost = m * n + COPY_COST * (m + n);

		if (threads % rows == 0 && cost < least) {
			least = cost;
			best = rows;
		}
	}
	return best;
}

/* Whole tiles of one side. */
struct range {
	int64_t first, count;
};

static struct range part_of_side(int64_t side, int64_t tile, int part, int parts)
{
	int64_t tiles = (side + tile - 1) / tile;
	int64_t first = smaller(side, tiles * part / parts * tile);

	return (struct range){first, smaller(side, tiles * (part + 1) / parts * tile) - first};
}

static struct gemm part_of(const struct gemm *g, int part, int parts)
{
	struct gemm result = *g;
	int rows = grid_rows(g, parts), columns = parts / rows;
	struct range m = part_of_side(g->m, TILE_ROWS, part / columns, rows);
	struct range n = part_of_side(g->n, TILE_COLS, part % columns, columns);

	result.m = m.count;
	result.n = n.count;
	result.a = element_of(g->dtype, g->a, g->transpose_a ? m.first : m.first * g->lda);
	result.b = element_of(g->dtype, g->b, g->transpose_b ? n.first * g->ldb : n.first);
	result.c = element_at(g->c_dtype, g->c, m.first * g->ldc + n.first);
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
