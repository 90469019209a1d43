/* Kernels that work row by row: how they are launched. Numbers of blocks follow from the shape
 * alone wherever they decide the order of a sum, so that all GPUs add alike. */
#include "kernels/cuda/cuda.h"
#include "kernels/rope_frequency.h"

enum {
	COLUMN_CHUNKS = 256, /* at most, of a column sum */
	NORM_CHUNKS = 512,
	SCRATCH = 32 * 4, /* bytes of block_sum */
	MOST_SHARED = 96 << 10,
	MOST_ROW = 112 << 10, /* two such blocks fit a multiprocessor of Hopper */
	FRAMES = 65535,
};

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Rows and pointers in packs of 16 bytes. */
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

static void sum_chunks(
	struct kernel_context *context, const struct column_sums_launch *a, enum dtype out_dtype)
{
	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_column_sums_fp32, out_dtype),
			cuda_blocks(a->width, 32), 1, 1, 256, 256 * sizeof(float)},
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
		&(struct column_sums_launch){a.partial, dbias, chunks, width, width, accumulate},
		dbias_dtype);
}

static void norm(struct kernel_context *context, enum cuda_kernel kernel, const struct norm *n)
{
	struct norm_launch a = {.x = n->x,
		.weight = n->weight,
		.bias = n->bias,
		.y = n->y,
		.mean = n->mean,
		.rstd = n->rstd,
		.width = n->width,
		.epsilon = n->epsilon};
	int64_t packs = cuda_blocks(n->width, cuda_lanes(n->dtype, n->dtype));

	a.vector = even(n->width, n->dtype) && cuda_aligned(n->x) && cuda_aligned(n->weight) &&
		   cuda_aligned(n->bias) && cuda_aligned(n->y);
	cuda_launch(context,
		&(struct launch){cuda_typed(kernel, n->dtype), n->rows, 1, 1,
			cuda_threads(packs, 256), SCRATCH},
		&a);
}

void cuda_layernorm(struct kernel_context *context, const struct norm *n)
{
	norm(context, CUDA_layernorm_fp32, n);
}

void cuda_rmsnorm(struct kernel_context *context, const struct norm *n)
{
	struct norm without = *n;

	without.bias = NULL;
	norm(context, CUDA_rmsnorm_fp32, &without);
}

static void norm_backward(
	struct kernel_context *context, enum cuda_kernel kernel, const struct norm_backward *n)
{
	int64_t sums = n->dbias ? 2 : 1, bytes = sums * n->width * (int64_t)sizeof(float);
	int64_t fit = context->workspace_bytes / most(bytes, 1);
	int64_t chunks = most(1, least(least(cuda_blocks(n->rows, 8), NORM_CHUNKS), fit));
	int64_t packs = cuda_blocks(n->width, cuda_lanes(n->dtype, n->dtype));
	struct norm_backward_launch a = {.dy = n->dy,
		.x = n->x,
		.weight = n->weight,
		.mean = n->mean,
		.rstd = n->rstd,
		.dx = n->dx,
		.partial = context->workspace,
		.rows = n->rows,
		.width = n->width,
		.chunk = cuda_blocks(n->rows, chunks),
		.sums = (int32_t)sums,
		.in_shared = bytes + 2 * SCRATCH <= MOST_SHARED,
		.accumulate_dx = n->accumulate_dx};
	struct column_sums_launch c = {
		a.partial, n->dweight, chunks, sums * n->width, n->width, n->accumulate_parameters};

	if (fit < 1) {
		error_set(&context->error, EXIT_CODE_USAGE,
			"cuda: rows of %lld are too long for the norm's workspace",
			(long long)n->width);
		return;
	}
	a.vector = even(n->width, n->dtype) && cuda_aligned(n->dy) && cuda_aligned(n->x) &&
		   cuda_aligned(n->weight) && cuda_aligned(n->dx);
	cuda_launch(context,
		&(struct launch){cuda_typed(kernel, n->dtype), chunks, 1, 1,
			cuda_threads(packs, 256), 2 * SCRATCH + (a.in_shared ? bytes : 0)},
		&a);
	sum_chunks(context, &c, n->gradient_dtype);
	c.partial += n->width;
	c.out = n->dbias;
	if (n->dbias)
		sum_chunks(context, &c, n->gradient_dtype);
}

void cuda_layernorm_backward(struct kernel_context *context, const struct norm_backward *n)
{
	norm_backward(context, CUDA_layernorm_backward_fp32, n);
}

void cuda_rmsnorm_backward(struct kernel_context *context, const struct norm_backward *n)
{
	struct norm_backward without = *n;

	without.dbias = NULL;
	norm_backward(context, CUDA_rmsnorm_backward_fp32, &without);
}

void cuda_rope(struct kernel_context *context, const struct rope *r)
{
	const double turn = 6.283185307179586476925;
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
		a.frequency[i] = (r->inverse ? -1.0 : 1.0) * rope_frequency(r, i) / turn;
	a.vector = half % lanes == 0 && r->stride % lanes == 0 && cuda_aligned(r->x);
	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_rope_fp32, r->dtype), r->tokens, 1, 1,
			cuda_threads(r->heads * cuda_blocks(half, lanes), 256),
			2 * half * (int64_t)sizeof(float)},
		&a);
}

void cuda_embedding(struct kernel_context *context, const struct embedding *e)
{
	int64_t packs = cuda_blocks(e->width, cuda_lanes(e->dtype, e->dtype));
	int64_t threads = cuda_threads(packs, 256);
	struct embedding_launch a = {.ids = e->ids,
		.table = e->table,
		.positions = e->positions,
		.out = e->out,
		.fault = cuda_backend(context)->fault,
		.width = e->width,
		.length = most(e->length, 1),
		.ids_stride = e->ids_stride > 0 ? e->ids_stride : most(e->length, 1),
		.vocabulary = e->vocabulary};

	a.vector = even(e->width, e->dtype) && cuda_aligned(e->table) &&
		   cuda_aligned(e->positions) && cuda_aligned(e->out);
	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_embedding_fp32, e->dtype), e->tokens,
			cuda_blocks(packs, threads), 1, threads, 0},
		&a);
}

void cuda_cross_entropy(struct kernel_context *context, const struct cross_entropy *c)
{
	int64_t lanes = cuda_lanes(c->dtype, c->dtype);
	int64_t row_bytes = c->vocabulary * dtype_bytes(c->dtype);
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
		.vector = even(c->stride, c->dtype) && cuda_aligned(c->logits),
		.in_shared = !c->keep_logits && row_bytes <= MOST_ROW &&
			     SCRATCH + row_bytes + 16 <= cuda_backend(context)->shared_most};

	cuda_launch(context,
		&(struct launch){cuda_typed(CUDA_cross_entropy_fp32, c->dtype), c->tokens, 1, 1,
			cuda_threads(cuda_blocks(c->vocabulary, lanes), 512),
			SCRATCH + (a.in_shared ? cuda_blocks(row_bytes, 16) * 16 : 0)},
		&a);
}
