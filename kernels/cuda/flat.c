/* Element-wise kernels and exact sums: how they are launched. */
#include "kernels/cuda/backend.h"

enum { THREADS = 256, MOST_SUM_BLOCKS = 1024, FEW_SOURCES = 31 };

/* A thread takes one pack. */
static void launch_flat(struct kernel_context *context, enum cuda_kernel kernel, int64_t n,
	int64_t lanes, const void *arguments)
{
	int64_t threads =
		kernel == CUDA_tree_many_fp32 || kernel == CUDA_tree_many_bf16 ? 128 : THREADS;

	cuda_launch(context,
		&(struct launch){kernel, cuda_blocks(n, lanes * threads), 1, 1, threads, 0},
		arguments);
}

static int aligned(const struct flat_launch *a)
{
	return cuda_aligned(a->y) && cuda_aligned(a->a) && cuda_aligned(a->b);
}

/* `kernel` is the fp32 one of two. */
static void flat(struct kernel_context *context, enum cuda_kernel kernel, enum dtype dtype,
	struct flat_launch a)
{
	a.vector = aligned(&a);
	launch_flat(context, cuda_typed(kernel, dtype), a.n, cuda_lanes(dtype, dtype), &a);
}

void cuda_gelu(struct kernel_context *context, enum dtype dtype, enum gelu kind, void *y,
	const void *x, int64_t n)
{
	flat(context, CUDA_gelu_fp32, dtype,
		(struct flat_launch){.y = y, .a = x, .n = n, .kind = kind != GELU_TANH});
}

void cuda_gelu_backward(struct kernel_context *context, enum dtype dtype, enum gelu kind, void *dx,
	const void *dy, const void *x, int64_t n)
{
	flat(context, CUDA_gelu_backward_fp32, dtype,
		(struct flat_launch){.y = dx, .a = dy, .b = x, .n = n, .kind = kind != GELU_TANH});
}

void cuda_swiglu(struct kernel_context *context, enum dtype dtype, void *y, const void *gate,
	const void *up, int64_t n)
{
	flat(context, CUDA_swiglu_fp32, dtype,
		(struct flat_launch){.y = y, .a = gate, .b = up, .n = n});
}

void cuda_swiglu_backward(struct kernel_context *context, const struct swiglu_backward *s)
{
	int64_t lanes = cuda_lanes(s->dtype, s->dtype);
	struct swiglu_launch a = {.dgate = s->dgate,
		.dup = s->dup,
		.dy = s->dy,
		.gate = s->gate,
		.up = s->up,
		.n = s->rows * s->width,
		.width = s->width,
		.stride = s->stride};
	bool rows = a.stride == a.width || (a.width % lanes == 0 && a.stride % lanes == 0);

	a.vector = rows && cuda_aligned(a.dgate) && cuda_aligned(a.dup) && cuda_aligned(a.dy) &&
		   cuda_aligned(a.gate) && cuda_aligned(a.up);
	launch_flat(context, cuda_typed(CUDA_swiglu_backward_fp32, s->dtype), a.n, lanes, &a);
}

void cuda_add(struct kernel_context *context, enum dtype dtype, void *y, const void *a,
	const void *b, int64_t n)
{
	flat(context, CUDA_add_fp32, dtype, (struct flat_launch){.y = y, .a = a, .b = b, .n = n});
}

static void pair(struct kernel_context *context, enum cuda_kernel kernel, enum dtype y_dtype,
	enum dtype x_dtype, struct flat_launch a)
{
	a.vector = aligned(&a);
	launch_flat(context, cuda_paired(kernel, y_dtype, x_dtype), a.n,
		cuda_lanes(y_dtype, x_dtype), &a);
}

void cuda_accumulate(struct kernel_context *context, enum dtype y_dtype, void *y,
	enum dtype x_dtype, const void *x, int64_t n)
{
	pair(context, CUDA_accumulate_fp32_fp32, y_dtype, x_dtype,
		(struct flat_launch){.y = y, .a = x, .n = n});
}

void cuda_convert(struct kernel_context *context, enum dtype y_dtype, void *y, enum dtype x_dtype,
	const void *x, int64_t n)
{
	pair(context, CUDA_convert_fp32_fp32, y_dtype, x_dtype,
		(struct flat_launch){.y = y, .a = x, .n = n});
}

void cuda_copy(struct kernel_context *context, enum dtype dtype, void *y, const void *x, int64_t n)
{
	cuda_convert(context, dtype, y, dtype, x, n);
}

void cuda_zero(struct kernel_context *context, enum dtype dtype, void *y, int64_t n)
{
	flat(context, CUDA_zero_fp32, dtype, (struct flat_launch){.y = y, .n = n});
}

static void scale(
	struct kernel_context *context, float *y, float factor, const float *from, int64_t n)
{
	struct flat_launch a = {.y = y, .a = from, .n = n, .factor = factor};

	a.vector = cuda_aligned(y);
	launch_flat(context, CUDA_scale, n, 4, &a);
}

void cuda_scale(struct kernel_context *context, float *y, float factor, int64_t n)
{
	scale(context, y, factor, NULL, n);
}

/* `kernel` is the fp32 one of two. */
static void update(struct kernel_context *context, enum cuda_kernel kernel, enum dtype dtype,
	int64_t n, const void *arguments)
{
	launch_flat(context, cuda_typed(kernel, dtype), n, cuda_lanes(dtype, dtype), arguments);
}

void cuda_device_sgd(struct kernel_context *context, const struct sgd *s,
	const struct sgd_factors *factors, const float *scale)
{
	const struct sgd_launch a = {.w = s->w,
		.g = s->g,
		.scale = scale,
		.now = factors,
		.n = s->n,
		.factors = {s->lr, s->weight_decay, s->rounding.stream[1]},
		.gradient_scale = s->gradient_scale,
		.vector = cuda_aligned(s->w) && cuda_aligned(s->g),
		.rounding = s->rounding};

	update(context, CUDA_sgd_fp32, s->dtype, a.n, &a);
}

void cuda_sgd(struct kernel_context *context, const struct sgd *s)
{
	cuda_device_sgd(context, s, NULL, NULL);
}

void cuda_device_adamw(struct kernel_context *context, const struct adamw *o, void *copy,
	const struct adamw_factors *factors, const float *scale)
{
	struct adamw_launch a = {
		.w = o->w,
		.m = o->m,
		.v = o->v,
		.g = o->g,
		.copy = copy,
		.scale = scale,
		.now = factors,
		.n = o->n,
		.factors = adamw_factors(o),
		.beta2 = (float)o->beta2,
		.epsilon = (float)o->epsilon,
		.take1 = (float)(1.0 - o->beta1),
		.take2 = (float)(1.0 - o->beta2),
		.gradient_scale = o->gradient_scale,
		.rounding = o->rounding,
	};

	a.vector = cuda_aligned(a.w) && cuda_aligned(a.m) && cuda_aligned(a.v) &&
		   cuda_aligned(a.g) && cuda_aligned(copy);
	update(context, CUDA_adamw_fp32, o->dtype, a.n, &a);
}

void cuda_adamw(struct kernel_context *context, const struct adamw *adamw)
{
	cuda_device_adamw(context, adamw, NULL, NULL, NULL);
}

/* The list of sources goes to the workspace, in the order of the stream. */
void cuda_tree_reduce(struct kernel_context *context, enum dtype dtype, void *y,
	const void *const *sources, int count, int64_t n)
{
	struct tree_launch a = {
		.y = y, .sources = context->workspace, .n = n, .count = count, .vector = 1};
	enum cuda_kernel kernel = count <= FEW_SOURCES ? CUDA_tree_few_fp32 : CUDA_tree_many_fp32;

	if (n <= 0)
		return;
	a.vector = cuda_aligned(y);
	for (int i = 0; i < count; i++)
		a.vector = a.vector && cuda_aligned(sources[i]);
	for (int i = 0; i < count; i += CUDA_STORE_WORDS) {
		uint64_t words[CUDA_STORE_WORDS];
		int some = count - i < CUDA_STORE_WORDS ? count - i : CUDA_STORE_WORDS;

		for (int j = 0; j < some; j++)
			words[j] = (uint64_t)(uintptr_t)sources[i + j];
		cuda_store(context, (uint64_t *)context->workspace + i, words, some);
	}
	launch_flat(context, cuda_typed(kernel, dtype), n, cuda_lanes(dtype, dtype), &a);
}

void cuda_device_pack(struct kernel_context *context, enum dtype dtype, void *flat,
	const struct pack_segment *segments, int n, bool unpack)
{
	enum cuda_kernel kernel = cuda_typed(unpack ? CUDA_unpack_fp32 : CUDA_pack_fp32, dtype);

	for (int first = 0; first < n; first += CUDA_SEGMENTS) {
		struct pack_launch a = {.flat = flat};
		int some = n - first < CUDA_SEGMENTS ? n - first : CUDA_SEGMENTS;
		int64_t longest = 0, blocks;

		for (int i = 0; i < some; i++) {
			a.segments[i] = segments[first + i];
			if (a.segments[i].count > longest)
				longest = a.segments[i].count;
		}
		/* 64 segments of up to 512 blocks, each of which may take several stretches. */
		blocks = cuda_blocks(longest, THREADS * cuda_lanes(dtype, dtype));
		cuda_launch(context,
			&(struct launch){kernel, blocks > 512 ? 512 : blocks, some, 1, THREADS, 0},
			&a);
	}
}

/* --- exact sums --- */

static void exact(struct kernel_context *context, enum cuda_kernel kernel, struct exact_sum *sum,
	const void *x, int64_t n)
{
	struct exact_launch a = {.limbs = sum->limbs, .x = x, .n = n, .vector = cuda_aligned(x)};
	int64_t blocks = cuda_blocks(n, THREADS * 16);

	cuda_launch(context,
		&(struct launch){kernel, blocks > MOST_SUM_BLOCKS ? MOST_SUM_BLOCKS : blocks, 1, 1,
			THREADS, sizeof(struct exact_sum)},
		&a);
	cuda_launch(
		context, &(struct launch){CUDA_settle, 1, 1, 1, 32, sizeof(struct exact_sum)}, &a);
}

void cuda_sum_squares(
	struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	exact(context, CUDA_sum_squares, sum, x, n);
}

void cuda_sum(struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	exact(context, CUDA_sum_floats, sum, x, n);
}

void cuda_device_clip_scale(struct kernel_context *context, const struct exact_sum *squares,
	double limit, double *norm, float *scale)
{
	struct clip_launch a = {
		.limbs = squares->limbs, .norm = norm, .scale = scale, .limit = limit};

	cuda_launch(context,
		&(struct launch){CUDA_clip_scale, 1, 1, 1, 32, sizeof(struct exact_sum)}, &a);
}

void cuda_clip(struct kernel_context *context, float *y, int64_t n, const struct exact_sum *squares,
	double most)
{
	double *norm = context->workspace;
	float *factor = (float *)(norm + 1);

	cuda_device_clip_scale(context, squares, most, norm, factor);
	scale(context, y, 1.0f, factor, n);
}
