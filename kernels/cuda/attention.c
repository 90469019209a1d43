/* Which attention kernel runs, and how it is launched. */
#include "kernels/cuda/backend.h"

enum {
	PLAIN_HEAD = 256,
	PLAIN_ROWS = 8,
	PLAIN_TILE = 32,
	PLAIN_THREADS = 256,
	PACKS_ROWS = 16,         /* 16 threads each */
	HOPPER_CACHE = 16 << 20, /* of an H100's 50 MB, what heads in work may take */
};

/* A tensor core kernel; threads, rows and bytes of shared memory of a block. */
struct tile {
	enum cuda_kernel kernel;
	int64_t threads, rows, shared_bytes;
};

#define TILE_OF(X, name, pass, d, rows, others, stages)                                            \
	{CUDA_##name, CUDA_##X##_THREADS, rows,                                                    \
		CUDA_##X##_BARRIERS + CUDA_SHARED_##pass(d, rows, others, stages)},

/* These are by head: the forward's, those for dq, those for dk and dv. */
static const struct tile tensor_tiles[] = {
	CUDA_TENSOR_FORWARD(TILE_OF, TENSOR) CUDA_TENSOR_BACKWARD(TILE_OF, TENSOR)};
static const struct tile hopper_tiles[] = {
	CUDA_HOPPER_FORWARD(TILE_OF, HOPPER) CUDA_HOPPER_BACKWARD(TILE_OF, HOPPER)};

/* For heads up to `head_dim`. Blocks of Hopper's take work tiles (schedule_tile): one each, or,
 * where a tile is so short that its first copies count, one block a multiprocessor stays and takes
 * many (persistent, by static stride). Such a block would wait where communication holds its
 * multiprocessor, and its share with it: then blocks are one each too, dealt out as there is room.
 * The others' are a grid of tiles, heads and sequences. */
struct variant {
	int64_t head_dim;
	bool items, stays;
	const struct tile *forward, *dq, *dkv;
};

static const struct variant variants[] = {
	{64, false, false, &tensor_tiles[0], &tensor_tiles[2], &tensor_tiles[4]},
	{128, false, false, &tensor_tiles[1], &tensor_tiles[3], &tensor_tiles[5]},
};
static const struct variant hopper[] = {
	{64, true, true, &hopper_tiles[0], &hopper_tiles[2], &hopper_tiles[4]},
	{128, true, false, &hopper_tiles[1], &hopper_tiles[3], &hopper_tiles[5]},
};

static int64_t between(int64_t low, int64_t x, int64_t high)
{
	return x < low ? low : x > high ? high : x;
}

static bool check(struct kernel_context *context, const struct attention *a)
{
	if (a->head_dim <= PLAIN_HEAD)
		return true;
	return error_set(&context->error, EXIT_CODE_USAGE,
		"cuda: attention with head_dim %lld, at most %d", (long long)a->head_dim,
		PLAIN_HEAD);
}

static bool even(const void *x, int64_t stride)
{
	return cuda_aligned(x) && stride % 8 == 0;
}

/* NULL where the plain kernels must do. An image that is not for Hopper lacks its kernels. */
static const struct variant *variant_of(
	const struct kernel_context *context, const struct attention *a)
{
	int i = a->head_dim > variants[0].head_dim;

	if (a->dtype != DTYPE_BF16 || a->head_dim > variants[1].head_dim || a->head_dim % 8 != 0 ||
		a->scale <= 0.0f || !even(a->q, a->q_stride) || !even(a->k, a->k_stride) ||
		!even(a->v, a->v_stride) || !even(a->out, a->out_stride))
		return NULL;
	return cuda_backend(context)->kernels[hopper[i].forward->kernel] ? &hopper[i]
									 : &variants[i];
}

static struct attention_launch arguments_of(const struct attention *a)
{
	return (struct attention_launch){.q = a->q,
		.k = a->k,
		.v = a->v,
		.out = a->out,
		.lse = a->lse,
		.length = a->length,
		.heads = a->heads,
		.kv_heads = a->kv_heads,
		.head_dim = a->head_dim,
		.rows = a->sequences * a->length,
		.sequences = a->sequences,
		.lse_stride = a->heads,
		.q_stride = a->q_stride,
		.k_stride = a->k_stride,
		.v_stride = a->v_stride,
		.out_stride = a->out_stride,
		.scale = a->scale};
}

/* Weights; own rows and a tile of others, of two tensors. */
static int64_t plain_shared(int64_t head_dim)
{
	int64_t floats =
		PLAIN_ROWS * PLAIN_TILE + 2 * (PLAIN_ROWS * head_dim + PLAIN_TILE * (head_dim | 1));

	return floats * (int64_t)sizeof(float);
}

static void plain(struct kernel_context *context, enum cuda_kernel kernel, enum dtype dtype,
	const struct attention_launch *a, int64_t heads, int64_t sequences)
{
	cuda_launch(context,
		&(struct launch){cuda_typed(kernel, dtype), cuda_blocks(a->length, PLAIN_ROWS),
			heads, sequences, PLAIN_THREADS, plain_shared(a->head_dim)},
		a);
}

/* How many heads Hopper's blocks take together: what these read, two tensors of the other side of
 * the product, should stay in the cache (query heads of a group read the same), and there should be
 * about two blocks for each multiprocessor, a long one and a short one. */
static int64_t together(const struct kernel_context *context, const struct attention_launch *l,
	int64_t heads, int64_t tiles)
{
	int64_t group = l->heads / l->kv_heads, bytes = 2 * CUDA_TILE_BYTES(l->length, l->head_dim);
	int64_t fit = heads == l->kv_heads ? HOPPER_CACHE / (bytes * group)
					   : HOPPER_CACHE / bytes * group;
	int64_t least = 2 * cuda_backend(context)->multiprocessors / tiles;

	return between(1, fit > least ? fit : least, heads * l->sequences);
}

static void run(struct kernel_context *context, const struct variant *v, const struct tile *tile,
	struct attention_launch *l, int64_t heads)
{
	int64_t tiles = cuda_blocks(l->length, tile->rows);
	struct launch launch = {
		tile->kernel, tiles, heads, l->sequences, tile->threads, tile->shared_bytes};

	if (v->items) {
		launch.x = tiles * heads * l->sequences;
		if (v->stays && context->beside == 0)
			launch.x = between(0, launch.x, cuda_backend(context)->multiprocessors);
		launch.y = launch.z = 1;
		l->together = together(context, l, heads, tiles);
	}
	cuda_launch(context, &launch, l);
}

void cuda_attention(struct kernel_context *context, const struct attention *a)
{
	const struct variant *v = variant_of(context, a);
	struct attention_launch l = arguments_of(a);

	if (!check(context, a) || cuda_attention_by_choice(context, a))
		return;
	if (v)
		run(context, v, v->forward, &l, a->heads);
	else
		plain(context, CUDA_attention_plain_fp32, a->dtype, &l, a->heads, a->sequences);
}

/* --- backward --- */

struct attention_backward cuda_attention_part(
	const struct attention_backward *b, struct attention_part part)
{
	struct attention_backward moved = *b;
	struct attention *f = &moved.forward;
	int64_t row = part.first_sequence * f->length, bytes = dtype_bytes(f->dtype);
	int64_t ratio = f->heads / f->kv_heads, head = part.first_group * ratio;
	int64_t at = head * f->head_dim, kv_at = part.first_group * f->head_dim;

#define MOVED(x, stride, more) ((char *)(uintptr_t)(x) + (row * (stride) + (more)) * bytes)
	f->q = MOVED(f->q, f->q_stride, at);
	f->k = MOVED(f->k, f->k_stride, kv_at);
	f->v = MOVED(f->v, f->v_stride, kv_at);
	f->out = MOVED(f->out, f->out_stride, at);
	moved.dout = MOVED(b->dout, b->dout_stride, at);
	moved.dq = MOVED(b->dq, b->dq_stride, at);
	moved.dk = MOVED(b->dk, b->dk_stride, kv_at);
	moved.dv = MOVED(b->dv, b->dv_stride, kv_at);
#undef MOVED
	f->lse += row * f->heads + head;
	f->sequences = part.sequences;
	f->kv_heads = part.groups;
	f->heads = part.groups * ratio;
	return moved;
}

static struct attention_launch arguments_of_part(struct kernel_context *context,
	const struct attention_backward *b, struct attention_part part)
{
	const struct attention_backward moved = cuda_attention_part(b, part);
	struct attention_launch l = arguments_of(&moved.forward);

	l.lse_stride = b->forward.heads;
	l.dout = moved.dout;
	l.dq = moved.dq;
	l.dk = moved.dk;
	l.dv = moved.dv;
	l.delta = context->workspace;
	l.dout_stride = b->dout_stride;
	l.dq_stride = b->dq_stride;
	l.dk_stride = b->dk_stride;
	l.dv_stride = b->dv_stride;
	l.delta_stride = l.heads;
	return l;
}

static void run_part(struct kernel_context *context, const struct attention_backward *b,
	const struct variant *v, struct attention_part part)
{
	enum dtype dtype = b->forward.dtype;
	struct attention_launch l = arguments_of_part(context, b, part);

	cuda_launch(context,
		&(struct launch){v ? CUDA_attention_delta_packs
				   : cuda_typed(CUDA_attention_delta_fp32, dtype),
			cuda_blocks(l.rows * l.heads, v ? PACKS_ROWS : PLAIN_ROWS), 1, 1,
			PLAIN_THREADS, 0},
		&l);
	if (!v) {
		plain(context, CUDA_attention_plain_dq_fp32, dtype, &l, l.heads, part.sequences);
		plain(context, CUDA_attention_plain_dkv_fp32, dtype, &l, l.kv_heads,
			part.sequences);
		return;
	}
	run(context, v, v->dq, &l, l.heads);
	run(context, v, v->dkv, &l, l.kv_heads);
}

/* All sequences at once as long as delta fits; then fewer of them, then fewer heads. Which it is
 * changes no bit. */
void cuda_attention_backward(struct kernel_context *context, const struct attention_backward *b)
{
	const struct attention *f = &b->forward;
	const struct variant *v = variant_of(context, f);
	int64_t group_bytes, groups, sequences;

	if (!check(context, f) || f->sequences <= 0 || f->length <= 0 || f->kv_heads <= 0 ||
		cuda_attention_backward_by_choice(context, b))
		return;
	if (!even(b->dout, b->dout_stride) || !even(b->dq, b->dq_stride) ||
		!even(b->dk, b->dk_stride) || !even(b->dv, b->dv_stride))
		v = NULL;
	group_bytes = f->length * (f->heads / f->kv_heads) * (int64_t)sizeof(float);
	groups = between(0, context->workspace_bytes / group_bytes, f->kv_heads);
	if (groups == 0) {
		error_set(&context->error, EXIT_CODE_USAGE,
			"cuda: attention over %lld tokens needs a workspace of %lld bytes",
			(long long)f->length, (long long)group_bytes);
		return;
	}
	sequences =
		between(1, context->workspace_bytes / (group_bytes * f->kv_heads), f->sequences);
	for (int64_t s = 0; s < f->sequences; s += sequences)
		for (int64_t g = 0; g < f->kv_heads; g += groups)
			run_part(context, b, v,
				(struct attention_part){s, between(1, f->sequences - s, sequences),
					g, between(1, f->kv_heads - g, groups)});
}
