/* Kernels that work row by row: how they are launched. Numbers of blocks follow from the shape
 * alone wherever they decide the order of a sum, so that all GPUs add alike. */
#include "kernels/common/common.h"
#include "kernels/cuda/backend.h"

enum {
	COLUMN_CHUNKS = 256, /* at most, of a column sum */
	NORM_BLOCKS = 8,     /* at most, of a multiprocessor */
	SCRATCH = 32 * 4,    /* bytes of block_sum */
	MOST_SHARED = 96 << 10,
	MOST_ROW = 112 << 10, /* bytes; two such blocks fit a multiprocessor of Hopper */
	FRAMES = 65535,
	LINE_PACKS = 8, /* of 16 bytes: a line of the cache */
};

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* True when rows and pointers come in packs of 16 bytes. */
static bool even(int64_t width, enum dtype dtype)
{
	return width % cuda_lanes(dtype, dtype) == 0;
}

void cuda_bias_add(struct kernel_context *context, enum dtype dtype, void *y, const void *bias,
	int64_t rows, int64_t width)
{
	struct bias_launch a = {.y = y, .bias = bias, .rows = rows, .width = width};
	int64_t packs = cuda_blocks(width, cuda_lanes(dtype, dtype));
	int64_t threads = cuda_threads(packs, 256);

	a.vector = even(width, dtype) && cuda_aligned(y) && cuda_aligned(bias);
	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_bias_add_fp32, dtype), cuda_blocks(packs, threads),
			least(rows, FRAMES), 1, threads, 0},
		&a);
}

static void sum_chunks(struct kernel_context *context, const struct column_sums_launch *a,
	int64_t sums, enum dtype out_dtype)
{
	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_column_sums_fp32, out_dtype),
			cuda_blocks(a->width, 32), sums, 1, 1024, 1024 * sizeof(float)},
		a);
}

void cuda_bias_backward(struct kernel_context *context, enum dtype dbias_dtype, void *dbias,
	enum dtype dy_dtype, const void *dy, int64_t rows, int64_t width, bool accumulate)
{
	int64_t lanes = cuda_lanes(dy_dtype, dy_dtype);
	int64_t fit = context->workspace_bytes / (int64_t)sizeof(float) / most(width, 1);
	int64_t chunks = most(1, least(least(cuda_blocks(rows, 64), COLUMN_CHUNKS), fit));
	struct columns_launch a = {.x = dy,
		.partial = context->workspace,
		.rows = rows,
		.width = width,
		.chunk = cuda_blocks(rows, chunks),
		.vector = even(width, dy_dtype) && cuda_aligned(dy)};

	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_columns_fp32, dy_dtype),
			cuda_blocks(width, 32 * lanes), chunks, 1, 256,
			8 * 32 * lanes * (int64_t)sizeof(float)},
		&a);
	sum_chunks(context,
		&(struct column_sums_launch){a.partial, {dbias}, chunks, width, width, accumulate},
		1, dbias_dtype);
}

/* The kernels of one norm by the packs that a thread holds. */
struct norm_kernels {
	enum cuda_kernel four, eight, longer;
	enum cuda_kernel back_one, back_two, back_four, back_longer;
};

static const struct norm_kernels layernorms = {CUDA_layernorm_4_fp32, CUDA_layernorm_8_fp32,
	CUDA_layernorm_long_fp32, CUDA_layernorm_backward_1_fp32, CUDA_layernorm_backward_2_fp32,
	CUDA_layernorm_backward_4_fp32, CUDA_layernorm_backward_long_fp32};
static const struct norm_kernels rmsnorms = {CUDA_rmsnorm_4_fp32, CUDA_rmsnorm_8_fp32,
	CUDA_rmsnorm_long_fp32, CUDA_rmsnorm_backward_1_fp32, CUDA_rmsnorm_backward_2_fp32,
	CUDA_rmsnorm_backward_4_fp32, CUDA_rmsnorm_backward_long_fp32};

/* A warp per row as far as its registers go, then a block, then a block that reads twice. */
static struct launch norm_plan(const struct norm_kernels *of, const struct norm *n, int32_t *team)
{
	int64_t packs = cuda_blocks(n->width, cuda_lanes(n->dtype, n->dtype));
	struct launch l = {.x = n->rows, .y = 1, .z = 1, .threads = 256, .shared_bytes = SCRATCH};

	*team = 32;
	if (packs <= 8 * 32) {
		l.kernel = packs <= 4 * 32 ? of->four : of->eight;
		l.x = cuda_blocks(n->rows, l.threads / 32);
	} else if (packs <= 8 * 256) {
		l.kernel = packs <= 4 * 256 ? of->four : of->eight;
		l.threads = cuda_threads(cuda_blocks(packs, packs <= 4 * 256 ? 4 : 8), 256);
		*team = (int32_t)l.threads;
	} else {
		l.kernel = of->longer;
	}
	l.kernel = cuda_typed(l.kernel, n->dtype);
	return l;
}

static void norm(
	struct kernel_context *context, const struct norm_kernels *of, const struct norm *n)
{
	struct norm_launch a = {.x = n->x,
		.weight = n->weight,
		.bias = n->bias,
		.y = n->y,
		.mean = n->mean,
		.rstd = n->rstd,
		.rows = n->rows,
		.width = n->width,
		.epsilon = n->epsilon};
	struct launch l = norm_plan(of, n, &a.team);

	a.vector = even(n->width, n->dtype) && cuda_aligned(n->x) && cuda_aligned(n->weight) &&
		   cuda_aligned(n->bias) && cuda_aligned(n->y);
	cuda_launch(context, &l, &a);
}

void cuda_layernorm(struct kernel_context *context, const struct norm *n)
{
	norm(context, &layernorms, n);
}

void cuda_rmsnorm(struct kernel_context *context, const struct norm *n)
{
	struct norm without = *n;

	without.bias = NULL;
	norm(context, &rmsnorms, &without);
}

/* A block for each chunk of rows; so many that the 132 multiprocessors of an H100 have the same
 * number each, as many as its registers hold at once: 768 threads of one pack, or two blocks. No
 * GPU is asked: all add alike. */
static struct launch norm_backward_plan(const struct norm_kernels *of,
	const struct norm_backward *n, int64_t bytes, int64_t fit, bool *in_shared)
{
	int64_t packs = cuda_blocks(n->width, cuda_lanes(n->dtype, n->dtype));
	int64_t each = packs <= 256 ? 1 : packs <= 512 ? 2 : 4;
	int64_t threads = cuda_threads(cuda_blocks(packs, each), 256);
	int64_t blocks = 132 * (each > 1 ? 2 : most(2, least(NORM_BLOCKS, 768 / threads)));
	struct launch l = {.y = 1, .z = 1, .threads = threads, .shared_bytes = 2 * SCRATCH};

	l.x = most(1, least(least(cuda_blocks(n->rows, 4), blocks), fit));
	l.kernel = each == 1 ? of->back_one : each == 2 ? of->back_two : of->back_four;
	*in_shared = false;
	if (packs > 4 * 256) {
		l.kernel = of->back_longer;
		*in_shared = bytes + l.shared_bytes <= MOST_SHARED;
		l.shared_bytes += *in_shared ? bytes : 0;
	}
	l.kernel = cuda_typed(l.kernel, n->dtype);
	return l;
}

static void norm_backward(struct kernel_context *context, const struct norm_kernels *of,
	const struct norm_backward *n)
{
	int64_t sums = n->dbias ? 2 : 1, bytes = sums * n->width * (int64_t)sizeof(float);
	int64_t fit = context->workspace_bytes / most(bytes, 1);
	bool in_shared;
	struct launch l = norm_backward_plan(of, n, bytes, fit, &in_shared);
	struct norm_backward_launch a = {.dy = n->dy,
		.x = n->x,
		.weight = n->weight,
		.mean = n->mean,
		.rstd = n->rstd,
		.dx = n->dx,
		.partial = context->workspace,
		.rows = n->rows,
		.width = n->width,
		.chunk = cuda_blocks(n->rows, l.x),
		.share = n->width > 0 ? 1.0f / (float)n->width : 0.0f,
		.sums = (int32_t)sums,
		.in_shared = in_shared,
		.accumulate_dx = n->accumulate_dx};

	if (fit < 1) {
		error_set(&context->error, EXIT_CODE_USAGE,
			"cuda: rows of %lld are too long for the norm's workspace",
			(long long)n->width);
		return;
	}
	a.vector = even(n->width, n->dtype) && cuda_aligned(n->dy) && cuda_aligned(n->x) &&
		   cuda_aligned(n->weight) && cuda_aligned(n->dx) && cuda_aligned(a.partial);
	l.x = most(1, cuda_blocks(n->rows, most(a.chunk, 1)));
	cuda_launch(context, &l, &a);
	sum_chunks(context,
		&(struct column_sums_launch){a.partial, {n->dweight, n->dbias}, l.x,
			sums * n->width, n->width, n->accumulate_parameters},
		sums, n->gradient_dtype);
}

void cuda_layernorm_backward(struct kernel_context *context, const struct norm_backward *n)
{
	norm_backward(context, &layernorms, n);
}

void cuda_rmsnorm_backward(struct kernel_context *context, const struct norm_backward *n)
{
	struct norm_backward without = *n;

	without.dbias = NULL;
	norm_backward(context, &rmsnorms, &without);
}

void cuda_rope(struct kernel_context *context, const struct rope *r)
{
	const double two_pi = 6.283185307179586476925;
	int64_t half = r->head_dim / 2, lanes = cuda_lanes(r->dtype, r->dtype);
	struct rope_launch a = {.x = r->x,
		.length = r->length,
		.heads = r->heads,
		.head_dim = r->head_dim,
		.stride = r->stride};

	if (half > CUDA_FREQUENCIES) {
		error_set(&context->error, EXIT_CODE_USAGE,
			"cuda: rotary embedding of head_dim %lld, at most %d",
			(long long)r->head_dim, 2 * CUDA_FREQUENCIES);
		return;
	}
	for (int64_t i = 0; i < half; i++)
		a.frequency[i] = (r->inverse ? -1.0 : 1.0) * rope_frequency(r, i) / two_pi;
	a.vector = half % lanes == 0 && r->stride % lanes == 0 && cuda_aligned(r->x);
	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_rope_fp32, r->dtype), r->tokens, 1, 1,
			cuda_threads(r->heads * cuda_blocks(half, lanes), 256),
			2 * half * (int64_t)sizeof(float)},
		&a);
}

/* Packs of a slice: the rows that may be read have space in a third of the cache with so many, so
 * that a row which many tokens name is read from memory once. The rest is for what is written, and
 * for GPUs whose halves each keep a copy. Whole lines of 128 bytes, two at least. */
static int64_t lookup_slice(const struct embedding *e, int64_t packs, int64_t cache_bytes)
{
	int64_t rows =
		least(e->tokens, e->vocabulary) + (e->positions ? least(e->tokens, e->length) : 0);
	int64_t fit = cache_bytes / 3 / 16 / most(rows, 1) / LINE_PACKS * LINE_PACKS;
	int64_t slices = cuda_blocks(packs, most(2 * LINE_PACKS, least(fit, 256)));

	return least(packs, cuda_blocks(cuda_blocks(packs, slices), LINE_PACKS) * LINE_PACKS);
}

void cuda_embedding(struct kernel_context *context, const struct embedding *e)
{
	const struct cuda_backend *b = cuda_backend(context);
	int64_t packs = most(cuda_blocks(e->width, cuda_lanes(e->dtype, e->dtype)), 1);
	int64_t slice = lookup_slice(e, packs, b->cache_bytes), abreast = 256 / slice;
	struct embedding_launch a = {.ids = e->ids,
		.table = e->table,
		.positions = e->positions,
		.out = e->out,
		.fault = b->fault,
		.width = e->width,
		.length = most(e->length, 1),
		.ids_stride = e->ids_stride > 0 ? e->ids_stride : most(e->length, 1),
		.vocabulary = e->vocabulary,
		.tokens = (uint32_t)e->tokens,
		.slice = (uint32_t)slice};

	a.vector = even(e->width, e->dtype) && cuda_aligned(e->table) &&
		   cuda_aligned(e->positions) && cuda_aligned(e->out);
	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_embedding_fp32, e->dtype),
			cuda_blocks(e->tokens, abreast * CUDA_EMBED_TOKENS),
			cuda_blocks(packs, slice), 1, cuda_threads(abreast * slice, 256), 0},
		&a);
}

/* Short rows: two blocks a multiprocessor, each with its row in shared memory. Long ones: one
 * block, and as much of the row as fits. One that is not aligned takes one pack more. */
void cuda_cross_entropy(struct kernel_context *context, const struct cross_entropy *c)
{
	int64_t lanes = cuda_lanes(c->dtype, c->dtype), packs = cuda_blocks(c->vocabulary, lanes);
	bool small = packs * 16 + SCRATCH <= MOST_ROW;
	bool vector = even(c->stride, c->dtype) && cuda_aligned(c->logits);
	int64_t more = vector ? 0 : 1;
	int64_t room = (cuda_backend(context)->shared_most - SCRATCH) / 16 - more;
	struct cross_entropy_launch a = {.logits = c->logits,
		.targets = c->targets,
		.losses = c->losses,
		.fault = cuda_backend(context)->fault,
		.vocabulary = c->vocabulary,
		.stride = c->stride,
		.length = most(c->length > 0 ? c->length : c->tokens, 1),
		.targets_stride = c->targets_stride,
		.scale = c->scale,
		.keep_logits = c->keep_logits,
		.vector = vector,
		.held = c->keep_logits ? 0 : (int32_t)(least(packs, most(room, 0)) * lanes)};

	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_cross_entropy_fp32, c->dtype), c->tokens, 1, 1,
			cuda_threads(packs, small ? 512 : 1024),
			SCRATCH + (a.held / lanes + more) * 16},
		&a);
}
