/* Gradients of the token and position tables: how the workspace is used, and what is launched. The
 * kernels are those of embedding.cuh. Pieces follow from the number of tokens alone, so that all
 * GPUs add alike; a workspace that is too small for all columns takes them in several passes, and
 * one that is too small for the parts of both tables takes one after the other. */
#include "kernels/cuda/backend.h"

enum {
	BINS = 1 << CUDA_SORT_BITS,
	SORT_BLOCKS = 128, /* at most */
	SORT_SHARED = (1 + 8) * BINS * (int)sizeof(int32_t),
	PIECES = 1024, /* about; a piece is no shorter or longer than: */
	LEAST_PIECE = 32,
	MOST_PIECE = 1024,
	PACK = 8,           /* columns of a pass are a multiple, or all */
	LEAST_COLUMNS = 64, /* for which a sort leaves space */
	NAMED_SHARE = 4,    /* of the workspace, at most, for the marks of rows: one in so many */
};

/* Holds what is left of the workspace. */
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

/* May runs of a side span several pieces? Those of positions may not, if each position has as many
 * tokens and pieces hold a whole number of positions. */
static bool is_cut(const struct embedding_runs_launch *a, const struct embedding_side *side)
{
	if (side->order)
		return true;
	return a->tokens % a->length != 0 || a->piece % (a->tokens / a->length) != 0;
}

static void launch_runs(struct kernel_context *context, const struct embedding_backward *e,
	const struct embedding_runs_launch *a)
{
	int64_t packs = cuda_blocks(a->columns, cuda_lanes(e->gradient_dtype, e->dtype));
	int64_t blocks = cuda_blocks(packs, 256),
		quads = cuda_blocks(a->columns, CUDA_JOIN_COLUMNS);
	int64_t threads = cuda_threads(quads, 256);
	int64_t zeroed = a->table.named ? cuda_blocks(a->table.rows, CUDA_ZERO_ROWS) : 0;
	int64_t cut = a->table.pieces + (a->positions.edges ? a->positions.pieces : 0);

	cuda_launch(context,
		&(struct launch){
			cuda_paired(CUDA_embedding_runs_fp32_fp32, e->gradient_dtype, e->dtype),
			a->positions.pieces + a->table.pieces + zeroed, blocks, 1,
			cuda_threads(cuda_blocks(packs, blocks), 256),
			(3 * a->piece + 2) * (int64_t)sizeof(int32_t)},
		a);
	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_embedding_join_fp32, e->gradient_dtype), cut,
			cuda_blocks(quads, threads), 1, threads, 0},
		a);
}

/* Columns of a pass: as many as fit, in passes of about the same size. */
static int64_t columns_of(int64_t width, int64_t fit)
{
	int64_t passes = cuda_blocks(width, fit), columns = cuda_blocks(width, passes);

	columns = cuda_blocks(columns, LEAST_COLUMNS) * LEAST_COLUMNS;
	return least(columns, fit);
}

/* Sets what follows from the space, and goes through the columns. The sides have their arrays but
 * no space yet; one without a gradient is left out. */
static void sum_runs(struct kernel_context *context, const struct embedding_backward *e,
	struct embedding_runs_launch *a, struct space space)
{
	struct embedding_side *sides[2] = {&a->table, &a->positions};
	int64_t pieces, parts = 0, step = e->width;

	a->piece = piece_of(a->tokens);
	a->dout = (const char *)e->dout + a->ids.first * e->width * dtype_bytes(e->dtype);
	a->width = e->width;
	a->vector = e->width % cuda_lanes(e->gradient_dtype, e->dtype) == 0 &&
		    cuda_aligned(a->dout) && cuda_aligned(a->table.gradient) &&
		    cuda_aligned(a->positions.gradient);
	pieces = cuda_blocks(a->tokens, a->piece);
	for (int i = 0; i < 2; i++) {
		sides[i]->pieces = sides[i]->gradient ? pieces : 0;
		if (!sides[i]->gradient || !is_cut(a, sides[i]))
			continue;
		sides[i]->edges = take(&space, edge_bytes(pieces));
		parts++;
	}
	if (parts > 0)
		step = space.bytes / (parts * column_bytes(pieces)) / PACK * PACK;
	if (step < least(PACK, e->width)) {
		error_set(&context->error, EXIT_CODE_USAGE,
			"cuda: "
			"%lld tokens are too many for the workspace of the embedding's gradient",
			(long long)a->tokens);
		return;
	}
	step = columns_of(e->width, step);
	for (int64_t column = 0; column < e->width; column += step) {
		struct space left = space;

		a->column = column;
		a->columns = least(step, e->width - column);
		for (int i = 0; i < 2; i++)
			if (sides[i]->edges)
				sides[i]->partial = take(&left, a->columns * column_bytes(pieces));
		launch_runs(context, e, a);
	}
}

/* --- sort --- */

static int digits_of(int64_t rows)
{
	int digits = 1;

	while (rows >> (digits * CUDA_SORT_BITS) > 0)
		digits++;
	return digits;
}

/* The count of the first digit makes zeros of these bytes: the counts of the other digits, and the
 * marks. */
static int64_t sort_bytes(int64_t tokens, int64_t rows, bool marks)
{
	return 2 * rounded(tokens * (int64_t)sizeof(int32_t)) +
	       digits_of(rows) * count_bytes(tokens) + (marks ? rounded(rows) : 0);
}

/* Are zeros written beside the sums? Without marks they are written before. */
static bool has_marks(const struct kernel_context *context, const struct embedding_backward *e)
{
	return !e->accumulate_table && e->tokens > 0 &&
	       e->vocabulary <= context->workspace_bytes / NAMED_SHARE;
}

/* Token numbers by id, the ids outside of the table last; and which rows they name. */
static void sort_tokens(struct kernel_context *context, struct embedding_runs_launch *r, bool marks,
	struct space *space)
{
	int64_t tokens = r->tokens, rows = r->ids.rows;
	int32_t *to[2] = {take(space, tokens * (int64_t)sizeof(int32_t)),
		take(space, tokens * (int64_t)sizeof(int32_t))};
	struct embedding_sort_launch a = {.ids = r->ids,
		.counts = take(space, count_bytes(tokens)),
		.tokens = tokens,
		.share = share_of(tokens)};
	int64_t blocks = cuda_blocks(tokens, a.share);
	int digits = digits_of(rows);

	a.clear = space->at;
	a.next = take(space, (digits - 1) * count_bytes(tokens));
	a.named = marks ? take(space, rows) : NULL;
	a.clear_bytes = space->at - (char *)a.clear;
	r->table.named = a.named;
	cuda_launch(context,
		&(struct launch){
			CUDA_embedding_count, blocks, 1, 1, 256, BINS * (int64_t)sizeof(int32_t)},
		&a);
	for (int i = 0; i < digits; i++) {
		a.to = to[i % 2];
		a.next = i + 1 < digits ? a.counts + count_bytes(tokens) / (int64_t)sizeof(int32_t)
					: NULL;
		cuda_launch(context,
			&(struct launch){CUDA_embedding_scatter, blocks, 1, 1, 256, SORT_SHARED},
			&a);
		a.from = a.to;
		a.counts = a.next;
		a.named = NULL;
		a.shift += CUDA_SORT_BITS;
	}
	r->table.order = a.from;
}

/* Can so many tokens be sorted at once, and have their parts space on so many sides? */
static bool fits(const struct kernel_context *context, const struct embedding_backward *e,
	int64_t tokens, int sides)
{
	int64_t pieces = cuda_blocks(tokens, piece_of(tokens));
	int64_t parts = rounded(edge_bytes(pieces)) + LEAST_COLUMNS * column_bytes(pieces);

	return sort_bytes(tokens, e->vocabulary, has_marks(context, e)) + sides * parts <=
	       context->workspace_bytes;
}

/* Up to about 1.4 million tokens: all of them. */
static int64_t tokens_at_once(
	const struct kernel_context *context, const struct embedding_backward *e)
{
	int64_t tokens = e->tokens;

	while (tokens > 1 && !fits(context, e, tokens, 1))
		tokens = (tokens + 1) / 2;
	return tokens;
}

/* Tokens `first` to `first` + `tokens` for the table, the positions or both. */
static void sum_tokens(struct kernel_context *context, const struct embedding_backward *e,
	int64_t first, int64_t tokens, bool table, bool positions)
{
	struct space space = {context->workspace, context->workspace_bytes};
	int64_t length = e->length > 0 ? e->length : 1;
	struct embedding_runs_launch a = {
		.ids = {e->ids, first, e->vocabulary, (uint32_t)length,
			(uint32_t)(e->ids_stride > 0 ? e->ids_stride : length)},
		.tokens = tokens,
		.length = length};

	if (table) {
		a.table.gradient = e->dtable;
		a.table.rows = e->vocabulary;
		a.table.accumulate = e->accumulate_table || first > 0;
		sort_tokens(context, &a, first == 0 && has_marks(context, e), &space);
	}
	if (positions) {
		a.positions.gradient = e->dpositions;
		a.positions.rows = e->position_rows;
		a.positions.accumulate = e->accumulate_positions;
	}
	sum_runs(context, e, &a, space);
}

/* Writes zeros to rows that nothing is added to, unless they stay as they are: to all positions
 * that no sequence reaches, and to a table whose rows have no marks. */
static void write_zeros(struct kernel_context *context, const struct embedding_backward *e)
{
	int64_t reached = least(least(e->tokens, e->length), e->position_rows);

	if (e->dtable && !e->accumulate_table && !has_marks(context, e))
		cuda_zero(context, e->gradient_dtype, e->dtable, e->vocabulary * e->width);
	if (e->dpositions && !e->accumulate_positions)
		cuda_zero(context, e->gradient_dtype,
			(char *)e->dpositions + reached * e->width * dtype_bytes(e->gradient_dtype),
			(e->position_rows - reached) * e->width);
}

/* Both in one go where they fit: then dout's second reader finds some of it in the cache. */
void cuda_embedding_backward(struct kernel_context *context, const struct embedding_backward *e)
{
	int64_t step = e->dtable ? tokens_at_once(context, e) : 0;
	bool both = e->dtable && e->dpositions && step == e->tokens && fits(context, e, step, 2);

	write_zeros(context, e);
	for (int64_t first = 0; e->dtable && first < e->tokens; first += step)
		sum_tokens(context, e, first, least(step, e->tokens - first), true, both);
	if (e->dpositions && !both && e->tokens > 0)
		sum_tokens(context, e, 0, e->tokens, false, true);
}
