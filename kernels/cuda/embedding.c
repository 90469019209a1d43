/* Gradients of the token and position tables: how the workspace is used, and what is launched. The
 * kernels are those of embedding.cuh. Pieces follow from the number of tokens alone, so that all
 * GPUs add alike; a workspace that is too small for all columns takes them in several passes. */
#include "kernels/cuda/cuda.h"

enum {
	BINS = 1 << CUDA_SORT_BITS,
	SORT_BLOCKS = 128, /* at most */
	SORT_SHARED = (1 + 8) * BINS * (int)sizeof(int32_t),
	PIECES = 1024, /* about; a piece is no shorter or longer than: */
	LEAST_PIECE = 32,
	MOST_PIECE = 1024,
	PACK = 8,           /* columns of a pass are a multiple, or all */
	LEAST_COLUMNS = 64, /* for which a sort leaves space */
};

/* What is left of the workspace. */
struct space {
	char *at;
	int64_t bytes;
};

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t rounded(int64_t bytes)
{
	return cuda_blocks(bytes, 16) * 16;
}

static void *take(struct space *space, int64_t bytes)
{
	char *taken = space->at;

	space->at += rounded(bytes);
	space->bytes -= rounded(bytes);
	return taken;
}

static int64_t piece_of(int64_t tokens)
{
	int64_t piece = cuda_blocks(cuda_blocks(tokens, PIECES), LEAST_PIECE) * LEAST_PIECE;

	return least(piece, MOST_PIECE);
}

static int64_t edge_bytes(int64_t pieces)
{
	return 2 * pieces * (int64_t)sizeof(int32_t);
}

static int64_t column_bytes(int64_t pieces)
{
	return 2 * pieces * (int64_t)sizeof(float);
}

/* Tokens of a block of the sort: whole tiles. */
static int64_t share_of(int64_t tokens)
{
	return cuda_blocks(tokens, (int64_t)CUDA_SORT_TILE * SORT_BLOCKS) * CUDA_SORT_TILE;
}

static int64_t count_bytes(int64_t tokens)
{
	return cuda_blocks(tokens, share_of(tokens)) * BINS * (int64_t)sizeof(int32_t);
}

/* --- sums --- */

static void launch_runs(struct kernel_context *context, const struct embedding_backward *e,
	const struct embedding_runs_launch *a)
{
	int64_t pieces = cuda_blocks(a->tokens, a->piece);
	int64_t packs = cuda_blocks(a->columns, cuda_lanes(e->gradient_dtype, e->dtype));
	int64_t blocks = cuda_blocks(packs, 256);
	int64_t threads = cuda_threads(a->columns, 256);

	cuda_launch(context,
		&(struct launch){
			cuda_paired(CUDA_embedding_runs_fp32_fp32, e->gradient_dtype, e->dtype),
			pieces, blocks, 1, cuda_threads(cuda_blocks(packs, blocks), 256),
			(2 * a->piece + 2) * (int64_t)sizeof(int32_t)},
		a);
	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_embedding_join_fp32, e->gradient_dtype), pieces,
			cuda_blocks(a->columns, threads), 1, threads, 0},
		a);
}

/* Sets what follows from the space, and goes through the columns. */
static void sum_runs(struct kernel_context *context, const struct embedding_backward *e,
	struct embedding_runs_launch *a, struct space space)
{
	int64_t pieces, columns;

	a->piece = piece_of(a->tokens);
	a->width = e->width;
	a->vector = e->width % cuda_lanes(e->gradient_dtype, e->dtype) == 0 &&
		    cuda_aligned(a->dout) && cuda_aligned(a->gradient);
	pieces = cuda_blocks(a->tokens, a->piece);
	a->edges = take(&space, edge_bytes(pieces));
	a->partial = (float *)space.at;
	columns = space.bytes / column_bytes(pieces) / PACK * PACK;
	if (columns < least(PACK, e->width)) {
		error_set(&context->error, EXIT_CODE_USAGE,
			"cuda: %lld tokens are too many for the workspace of the embedding's "
			"gradient",
			(long long)a->tokens);
		return;
	}
	for (int64_t column = 0; column < e->width; column += columns) {
		a->column = column;
		a->columns = least(columns, e->width - column);
		launch_runs(context, e, a);
	}
}

/* --- sort --- */

/* Token numbers by id; the ids outside of the table last. Gives where they are. */
static const int32_t *sort_tokens(struct kernel_context *context, const struct embedding_ids *ids,
	int64_t tokens, struct space *space)
{
	int32_t *to[2] = {take(space, tokens * (int64_t)sizeof(int32_t)),
		take(space, tokens * (int64_t)sizeof(int32_t))};
	struct embedding_sort_launch a = {.ids = *ids,
		.counts = take(space, count_bytes(tokens)),
		.tokens = tokens,
		.share = share_of(tokens)};
	int64_t blocks = cuda_blocks(tokens, a.share);

	for (int turn = 0; turn == 0 || ids->rows >> a.shift > 0; turn = !turn) {
		a.to = to[turn];
		cuda_launch(context,
			&(struct launch){CUDA_embedding_count, blocks, 1, 1, 256,
				BINS * (int64_t)sizeof(int32_t)},
			&a);
		cuda_launch(context,
			&(struct launch){CUDA_embedding_scatter, blocks, 1, 1, 256, SORT_SHARED},
			&a);
		a.from = a.to;
		a.shift += CUDA_SORT_BITS;
	}
	return a.from;
}

/* As many tokens as can be sorted at once: all of them up to about 1.9 million. */
static int64_t tokens_at_once(const struct kernel_context *context, int64_t tokens)
{
	for (; tokens > 1; tokens = (tokens + 1) / 2) {
		int64_t pieces = cuda_blocks(tokens, piece_of(tokens));
		int64_t sort = 2 * rounded(tokens * (int64_t)sizeof(int32_t)) + count_bytes(tokens);

		if (sort + rounded(edge_bytes(pieces)) + LEAST_COLUMNS * column_bytes(pieces) <=
			context->workspace_bytes)
			break;
	}
	return tokens;
}

static void sum_tokens(struct kernel_context *context, const struct embedding_backward *e)
{
	int64_t step = tokens_at_once(context, e->tokens), length = e->length > 0 ? e->length : 1;

	for (int64_t first = 0; first < e->tokens; first += step) {
		struct space space = {context->workspace, context->workspace_bytes};
		struct embedding_runs_launch a = {
			.ids = {e->ids, first, e->vocabulary, (uint32_t)length,
				(uint32_t)(e->ids_stride > 0 ? e->ids_stride : length)},
			.dout = (const char *)e->dout + first * e->width * dtype_bytes(e->dtype),
			.gradient = e->dtable,
			.tokens = least(step, e->tokens - first),
			.rows = e->vocabulary,
			.accumulate = e->accumulate_table || first > 0};

		a.order = sort_tokens(context, &a.ids, a.tokens, &space);
		sum_runs(context, e, &a, space);
	}
}

static void sum_positions(struct kernel_context *context, const struct embedding_backward *e)
{
	struct space space = {context->workspace, context->workspace_bytes};
	struct embedding_runs_launch a = {.dout = e->dout,
		.gradient = e->dpositions,
		.tokens = e->tokens,
		.length = e->length,
		.rows = e->position_rows,
		.accumulate = e->accumulate_positions};

	if (a.tokens > 0)
		sum_runs(context, e, &a, space);
}

/* Rows that no token names stay as they are, or become zeros, before the others are written. */
void cuda_embedding_backward(struct kernel_context *context, const struct embedding_backward *e)
{
	if (e->dtable && !e->accumulate_table)
		cuda_zero(context, e->gradient_dtype, e->dtable, e->vocabulary * e->width);
	if (e->dtable)
		sum_tokens(context, e);
	if (!e->dpositions)
		return;
	if (!e->accumulate_positions)
		cuda_zero(context, e->gradient_dtype, e->dpositions, e->position_rows * e->width);
	sum_positions(context, e);
}
