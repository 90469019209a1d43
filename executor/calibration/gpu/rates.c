/* Measures a GPU's kernels other than products: attention by head and length, kernels that work row
 * by row by the width of rows, and element-wise ones. Each has so many elements that no cache holds
 * them and every multiprocessor is busy for long. */
#include "executor/calibration/gpu/bench.h"

#include <math.h>

/* The memory is cut into equal parts, one for each operand, of at most so many elements of bf16. */
enum { SLOTS = 10, ELEMENTS = 1 << 26, HEADS = 32 };
enum { TABLE_SLOT = 4, TABLE_SLOTS = 4, LOGIT_SLOTS = 8, LAST_SLOT = SLOTS - 1 };
enum { GPT2_VOCABULARY = 50257, LLAMA_VOCABULARY = 32000 };

struct rate_case {
	struct kernel_case kernel; /* its rows and width are those that are asked for */
	struct gpu_bench *gpu;
	const struct rated *what;
	int64_t slot;     /* in bytes */
	int64_t elements; /* how many elements are counted */
};

/* Says what is measured: how it is made ready (false when there is no room), and how it runs. */
struct rated {
	enum calibration_kernel_kind kernel;
	int64_t width, length;
	bool (*make)(struct rate_case *c);
	void (*run)(void *data);
};

static char *slot(const struct rate_case *c, int64_t i)
{
	return c->gpu->memory + i * c->slot;
}

static int64_t rows_of(const struct rate_case *c, int64_t width)
{
	return min_i64(ELEMENTS, c->slot / 2) / width;
}

/* --- attention --- */

/* `elements` are the operations that are executed: the causal half of 4 T s a d in forward, and 2.5
 * times as much in backward. */
static bool make_attention(struct rate_case *c)
{
	int64_t d = c->what->width, length = c->what->length, width = HEADS * d;
	int64_t sequences = rows_of(c, width) / length;
	double flops = 2 * (double)(sequences * length) * (double)(length * width);

	c->kernel.of.attention =
		attention_case(DTYPE_BF16, sequences, length, HEADS, d, slot(c, 0), c->slot);
	c->elements = (int64_t)((c->what->kernel == KERNEL_ATTENTION_BACKWARD ? 2.5 : 1) * flops);
	return sequences > 0;
}

/* --- norms --- */

static bool make_norm(struct rate_case *c)
{
	c->kernel.of.norm = (struct norm){.rows = c->kernel.rows,
		.width = c->what->width,
		.epsilon = 1e-5f,
		.x = slot(c, 0),
		.y = slot(c, 1),
		.weight = slot(c, 2),
		.bias = slot(c, 3),
		.mean = (float *)slot(c, 4),
		.rstd = (float *)slot(c, 5),
		.dtype = DTYPE_BF16};
	return true;
}

/* As in a block, the result is added to the gradient of the residual stream. */
static bool make_norm_backward(struct rate_case *c)
{
	bool centred = c->what->kernel == KERNEL_LAYERNORM_BACKWARD;

	c->kernel.of.norm_backward = (struct norm_backward){.rows = c->kernel.rows,
		.width = c->what->width,
		.dy = slot(c, 0),
		.x = slot(c, 1),
		.dx = slot(c, 2),
		.weight = slot(c, 3),
		.mean = centred ? (float *)slot(c, 4) : NULL,
		.rstd = (float *)slot(c, 5),
		.dweight = slot(c, 6),
		.dbias = centred ? slot(c, 7) : NULL,
		.accumulate_dx = true,
		.dtype = DTYPE_BF16,
		.gradient_dtype = DTYPE_FP32};
	return true;
}

/* --- element by element --- */

static bool make_flat(struct rate_case *c)
{
	c->elements = c->kernel.n = rows_of(c, 1);
	return true;
}

static bool make_rope(struct rate_case *c)
{
	int64_t width = HEADS * c->what->width, length = 1024;

	c->kernel.rows = rows_of(c, width) / length * length;
	c->elements = c->kernel.rows * width;
	c->kernel.of.rope = (struct rope){.x = slot(c, 0),
		.tokens = c->kernel.rows,
		.length = length,
		.heads = HEADS,
		.head_dim = c->what->width,
		.stride = width,
		.theta = 10000,
		.dtype = DTYPE_BF16};
	return c->kernel.rows > 0;
}

static bool make_rows(struct rate_case *c)
{
	(void)c;
	return true;
}

/* --- what depends on tokens --- */

/* Tokens come as often as words of a language: the i-th commonest one with a frequency of 1 / i. */
static bool put_tokens(struct rate_case *c, int64_t n, int64_t vocabulary)
{
	struct gpu_bench *g = c->gpu;
	int32_t *ids = (int32_t *)g->pinned;
	uint32_t random = 1;
	int64_t bytes = n * (int64_t)sizeof(*ids);

	if (bytes > g->pinned_bytes || bytes > c->slot)
		return false;
	for (int64_t i = 0; i < n; i++) {
		random = random * 1664525u + 1013904223u;
		double rank = pow((double)vocabulary, (random >> 8) * 0x1p-24);

		ids[i] = (int32_t)min_i64((int64_t)rank - 1, vocabulary - 1);
	}
	struct error *error = &g->base.context.error;

	return cuda_check(g->api,
		       g->api->cuMemcpyAsync((uint64_t)(uintptr_t)slot(c, LAST_SLOT),
			       (uint64_t)(uintptr_t)ids, (size_t)bytes, g->watch.stream),
		       "cuMemcpyAsync", error) &&
	       gpu_stopwatch_end(&g->watch, error) &&
	       cuda_check(g->api, g->api->cuEventSynchronize(g->watch.end), "tokens", error);
}

static bool make_embedding(struct rate_case *c)
{
	int64_t width = c->what->width;

	c->kernel.of.embedding = (struct embedding){.tokens = c->kernel.rows,
		.width = width,
		.length = c->kernel.rows,
		.vocabulary = GPT2_VOCABULARY,
		.ids = (int32_t *)slot(c, LAST_SLOT),
		.table = slot(c, TABLE_SLOT),
		.out = slot(c, 0),
		.dtype = DTYPE_BF16};
	return GPT2_VOCABULARY * width * 2 <= TABLE_SLOTS * c->slot &&
	       put_tokens(c, c->kernel.rows, GPT2_VOCABULARY);
}

static bool make_embedding_backward(struct rate_case *c)
{
	int64_t width = c->what->width;

	c->kernel.of.embedding_backward = (struct embedding_backward){.tokens = c->kernel.rows,
		.width = width,
		.length = c->kernel.rows,
		.vocabulary = GPT2_VOCABULARY,
		.ids = (int32_t *)slot(c, LAST_SLOT),
		.dout = slot(c, 0),
		.dtable = slot(c, TABLE_SLOT),
		.accumulate_table = true,
		.dtype = DTYPE_BF16,
		.gradient_dtype = DTYPE_FP32};
	return GPT2_VOCABULARY * width * 4 <= TABLE_SLOTS * c->slot &&
	       put_tokens(c, c->kernel.rows, GPT2_VOCABULARY);
}

/* Rows are as far apart as the executor lays them. */
static bool make_loss(struct rate_case *c)
{
	int64_t width = c->what->width, stride = gpu_row(width);

	c->kernel.rows = LOGIT_SLOTS * c->slot / 2 / stride;
	c->elements = c->kernel.rows * width;
	c->kernel.of.loss = (struct cross_entropy){.tokens = c->kernel.rows,
		.vocabulary = width,
		.stride = stride,
		.logits = slot(c, 0),
		.targets = (int32_t *)slot(c, LAST_SLOT),
		.losses = (float *)slot(c, LOGIT_SLOTS),
		.scale = 1 / (float)c->kernel.rows,
		.dtype = DTYPE_BF16};
	return c->kernel.rows > 0 && put_tokens(c, c->kernel.rows, width);
}

/* --- the list --- */

#define WIDTHS(kind, make, run)                                                                    \
	{kind, 768, 0, make, run}, {kind, 1600, 0, make, run},                                     \
	{                                                                                          \
		kind, 4096, 0, make, run                                                           \
	}
/* The backward of attention comes behind the forward of the same shape, whose sums it reads. */
#define ATTENTION(d, length)                                                                       \
	{KERNEL_ATTENTION, d, length, make_attention, run_attention},                              \
	{                                                                                          \
		KERNEL_ATTENTION_BACKWARD, d, length, make_attention, run_attention_backward       \
	}
static const struct rated list[] = {
	ATTENTION(64, 1024),
	ATTENTION(64, 2048),
	ATTENTION(64, 4096),
	ATTENTION(64, 8192),
	ATTENTION(128, 1024),
	ATTENTION(128, 2048),
	ATTENTION(128, 4096),
	ATTENTION(128, 8192),
	WIDTHS(KERNEL_LAYERNORM, make_norm, run_layernorm),
	WIDTHS(KERNEL_LAYERNORM_BACKWARD, make_norm_backward, run_layernorm_backward),
	WIDTHS(KERNEL_RMSNORM, make_norm, run_rmsnorm),
	WIDTHS(KERNEL_RMSNORM_BACKWARD, make_norm_backward, run_rmsnorm_backward),
	{KERNEL_ROPE, 64, 0, make_rope, run_rope},
	{KERNEL_ROPE, 128, 0, make_rope, run_rope},
	{KERNEL_GELU, 0, 0, make_flat, run_gelu},
	{KERNEL_GELU_BACKWARD, 0, 0, make_flat, run_gelu_backward},
	{KERNEL_SWIGLU, 0, 0, make_flat, run_swiglu},
	{KERNEL_SWIGLU_BACKWARD, 0, 0, make_flat, run_swiglu_backward},
	WIDTHS(KERNEL_BIAS_BACKWARD, make_rows, run_bias_backward),
	WIDTHS(KERNEL_EMBEDDING, make_embedding, run_embedding),
	WIDTHS(KERNEL_EMBEDDING_BACKWARD, make_embedding_backward, run_embedding_backward),
	{KERNEL_CROSS_ENTROPY, LLAMA_VOCABULARY, 0, make_loss, run_cross_entropy},
	{KERNEL_CROSS_ENTROPY, GPT2_VOCABULARY, 0, make_loss, run_cross_entropy},
};

static void say(const struct gpu_bench *g, const struct calibration_kernel *k)
{
	const char *name = calibration_kernel_names[k->kernel];

	if (k->length > 0)
		bench_say(&g->base, "  %-20s bf16, %4lld tokens, heads of %3lld: %8.1f TFLOP/s",
			name, (long long)k->length, (long long)k->width, k->rate / 1e12);
	else if (k->width > 0)
		bench_say(&g->base, "  %-20s bf16, width %5lld: %8.1f G elements/s", name,
			(long long)k->width, k->rate / 1e9);
	else
		bench_say(&g->base, "  %-20s bf16: %8.1f G elements/s", name, k->rate / 1e9);
}

static bool is_attention(enum calibration_kernel_kind kernel)
{
	return kernel == KERNEL_ATTENTION || kernel == KERNEL_ATTENTION_BACKWARD;
}

static bool measure_rate(struct gpu_bench *g, const struct rated *what, struct error *error)
{
	struct rate_case c = {
		.kernel = {.bench = &g->base, .dtype = DTYPE_BF16, .width = what->width},
		.gpu = g,
		.what = what,
		.slot = g->memory_bytes / SLOTS / 256 * 256};
	struct calibration *calibration = g->base.calibration;
	double seconds;

	c.kernel.rows = rows_of(&c, max_i64(what->width, 1));
	c.elements = c.kernel.rows * max_i64(what->width, 1);
	for (int i = 0; i < COUNT_OF(c.kernel.arrays); i++)
		c.kernel.arrays[i] = slot(&c, i);
	if (!what->make(&c))
		return true;
	if (!gpu_time(g, what->run, &c.kernel, &seconds, error) ||
		(is_attention(what->kernel) &&
			!calibrate_gpu_attention(g,
				what->kernel == KERNEL_ATTENTION ? ATTENTION_FORWARD
								 : ATTENTION_BACKWARD,
				&c.kernel.of.attention, seconds, &seconds, error)))
		return false;
	const struct calibration_kernel kernel = {what->kernel, DTYPE_BF16, what->width,
		what->length,
		(double)c.elements / fmax(seconds - calibration->kernel_overhead, 0.1 * seconds)};

	calibration_add_kernel(calibration, &kernel);
	say(g, &kernel);
	/* Topologies have said this of attention since before there was a list. */
	if (what->width == 128 && what->length == 4096 && what->kernel == KERNEL_ATTENTION)
		calibration->attention_forward_flops = kernel.rate;
	if (what->width == 128 && what->length == 4096 && what->kernel == KERNEL_ATTENTION_BACKWARD)
		calibration->attention_backward_flops = kernel.rate;
	return true;
}

bool calibrate_gpu_rates(struct gpu_bench *g, struct error *error)
{
	bench_say(&g->base, "other kernels");
	g->base.calibration->attention =
		ARENA_ARRAY(g->base.arena, struct calibration_attention, CALIBRATION_ATTENTION);
	g->base.calibration->kernels =
		ARENA_ARRAY(g->base.arena, struct calibration_kernel, COUNT_OF(list));
	for (int i = 0; i < COUNT_OF(list); i++)
		if (!measure_rate(g, &list[i], error))
			return false;
	return true;
}
