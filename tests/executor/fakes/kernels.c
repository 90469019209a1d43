/* The reference kernels as kernels of the fake GPU: each call is put in the queue of its stream,
 * with what it reads and writes, and computed when it is its turn. */
#include <stdlib.h>
#include <string.h>

#include "executor/memory/memory.h"
#include "tests/executor/fakes/cuda_private.h"
#include "tests/kernels/reference/reference.h"

/* What computes has a workspace of its own: the schedule's is the GPU's. */
struct kernel_context *fake_worker(void)
{
	static struct kernel_context context;
	struct error error;

	if (context.workspace == NULL) {
		context.workspace = workspace_reserve();
		context.workspace_bytes = KERNELS_WORKSPACE_BYTES;
		kernels_reference()->open(&context, &error);
	}
	/* A GPU's kernels go on. */
	context.error.message[0] = '\0';
	return &context;
}

/* --- extents --- */

struct list {
	struct fake_touch touches[FAKE_TOUCHES];
	int n;
};

static void add(struct list *list, const void *address, int64_t bytes, bool write)
{
	if (address != NULL && bytes > 0)
		list->touches[list->n++] = (struct fake_touch){address, bytes, write};
}

static void reads(struct list *list, enum dtype dtype, const void *address, int64_t elements)
{
	add(list, address, elements * dtype_bytes(dtype), false);
}

static void writes(struct list *list, enum dtype dtype, const void *address, int64_t elements)
{
	add(list, address, elements * dtype_bytes(dtype), true);
}

/* Counts from the first element of the first row to the last of the last. */
static int64_t rows_of(int64_t rows, int64_t width, int64_t stride)
{
	return rows > 0 && width > 0 ? (rows - 1) * stride + width : 0;
}

/* What a GPU's kernel keeps in the workspace of its context, while it runs: whoever has the same
 * one must come before or after it. */
static void scratch(struct list *list, const struct kernel_context *context, bool used)
{
	if (used)
		add(list, context->workspace, context->workspace_bytes, true);
}

static void call(struct kernel_context *context, const char *name, void (*run)(void *),
	const void *arguments, size_t bytes, const struct list *list)
{
	fake_cuda_call(context->stream, name, run, arguments, bytes, list->touches, list->n);
}

/* A kernel whose arguments are one struct, and whether it uses the workspace. */
#define KERNEL(name, uses)                                                                         \
	static void run_##name(void *arguments)                                                    \
	{                                                                                          \
		kernels_reference()->name(fake_worker(), arguments);                               \
	}                                                                                          \
	static void fake_##name(struct kernel_context *context, const struct TYPE_##name *a)       \
	{                                                                                          \
		struct list list = {.n = 0};                                                       \
		touch_##name(&list, a);                                                            \
		scratch(&list, context, uses);                                                     \
		call(context, #name, run_##name, a, sizeof(*a), &list);                            \
	}

#define TYPE_gemm               gemm
#define TYPE_layernorm          norm
#define TYPE_rmsnorm            norm
#define TYPE_layernorm_backward norm_backward
#define TYPE_rmsnorm_backward   norm_backward
#define TYPE_rope               rope
#define TYPE_attention          attention
#define TYPE_attention_backward attention_backward
#define TYPE_swiglu_backward    swiglu_backward
#define TYPE_embedding          embedding
#define TYPE_embedding_backward embedding_backward
#define TYPE_cross_entropy      cross_entropy

static void touch_gemm(struct list *list, const struct gemm *g)
{
	reads(list, g->dtype, g->a,
		g->transpose_a ? rows_of(g->k, g->m, g->lda) : rows_of(g->m, g->k, g->lda));
	reads(list, g->dtype, g->b,
		g->transpose_b ? rows_of(g->n, g->k, g->ldb) : rows_of(g->k, g->n, g->ldb));
	writes(list, g->c_dtype, g->c, rows_of(g->m, g->n, g->ldc));
}

static void touch_layernorm(struct list *list, const struct norm *n)
{
	reads(list, n->dtype, n->x, n->rows * n->width);
	reads(list, n->dtype, n->weight, n->width);
	reads(list, n->dtype, n->bias, n->width);
	writes(list, n->dtype, n->y, n->rows * n->width);
	writes(list, DTYPE_FP32, n->mean, n->rows);
	writes(list, DTYPE_FP32, n->rstd, n->rows);
}

static void touch_rmsnorm(struct list *list, const struct norm *n)
{
	touch_layernorm(list, n);
}

static void touch_layernorm_backward(struct list *list, const struct norm_backward *n)
{
	reads(list, n->dtype, n->dy, n->rows * n->width);
	reads(list, n->dtype, n->x, n->rows * n->width);
	reads(list, n->dtype, n->weight, n->width);
	reads(list, DTYPE_FP32, n->mean, n->rows);
	reads(list, DTYPE_FP32, n->rstd, n->rows);
	writes(list, n->dtype, n->dx, n->rows * n->width);
	writes(list, n->gradient_dtype, n->dweight, n->width);
	writes(list, n->gradient_dtype, n->dbias, n->width);
}

static void touch_rmsnorm_backward(struct list *list, const struct norm_backward *n)
{
	touch_layernorm_backward(list, n);
}

static void touch_rope(struct list *list, const struct rope *r)
{
	writes(list, r->dtype, r->x, rows_of(r->tokens, r->heads * r->head_dim, r->stride));
}

static void touch_attention(struct list *list, const struct attention *a)
{
	int64_t rows = a->sequences * a->length;

	reads(list, a->dtype, a->q, rows_of(rows, a->heads * a->head_dim, a->q_stride));
	reads(list, a->dtype, a->k, rows_of(rows, a->kv_heads * a->head_dim, a->k_stride));
	reads(list, a->dtype, a->v, rows_of(rows, a->kv_heads * a->head_dim, a->v_stride));
	writes(list, a->dtype, a->out, rows_of(rows, a->heads * a->head_dim, a->out_stride));
	writes(list, DTYPE_FP32, a->lse, rows * a->heads);
}

static void touch_attention_backward(struct list *list, const struct attention_backward *b)
{
	const struct attention *a = &b->forward;
	int64_t rows = a->sequences * a->length;

	touch_attention(list, a);
	reads(list, a->dtype, b->dout, rows_of(rows, a->heads * a->head_dim, b->dout_stride));
	writes(list, a->dtype, b->dq, rows_of(rows, a->heads * a->head_dim, b->dq_stride));
	writes(list, a->dtype, b->dk, rows_of(rows, a->kv_heads * a->head_dim, b->dk_stride));
	writes(list, a->dtype, b->dv, rows_of(rows, a->kv_heads * a->head_dim, b->dv_stride));
}

static void touch_swiglu_backward(struct list *list, const struct swiglu_backward *s)
{
	reads(list, s->dtype, s->dy, s->rows * s->width);
	reads(list, s->dtype, s->gate, s->rows * s->width);
	reads(list, s->dtype, s->up, s->rows * s->width);
	writes(list, s->dtype, s->dgate, rows_of(s->rows, s->width, s->stride));
	writes(list, s->dtype, s->dup, rows_of(s->rows, s->width, s->stride));
}

static int64_t place_of(int64_t t, int64_t length, int64_t stride)
{
	return id_place(t, stride > 0 ? length : 0, stride);
}

static void touch_embedding(struct list *list, const struct embedding *e)
{
	reads(list, DTYPE_FP32, e->ids, place_of(e->tokens - 1, e->length, e->ids_stride) + 1);
	reads(list, e->dtype, e->table, e->vocabulary * e->width);
	reads(list, e->dtype, e->positions, e->length * e->width);
	writes(list, e->dtype, e->out, e->tokens * e->width);
}

static void touch_embedding_backward(struct list *list, const struct embedding_backward *e)
{
	reads(list, DTYPE_FP32, e->ids, place_of(e->tokens - 1, e->length, e->ids_stride) + 1);
	reads(list, e->dtype, e->dout, e->tokens * e->width);
	writes(list, e->gradient_dtype, e->dtable, e->vocabulary * e->width);
	writes(list, e->gradient_dtype, e->dpositions, e->position_rows * e->width);
}

static void touch_cross_entropy(struct list *list, const struct cross_entropy *c)
{
	writes(list, c->dtype, c->logits, rows_of(c->tokens, c->vocabulary, c->stride));
	reads(list, DTYPE_FP32, c->targets,
		place_of(c->tokens - 1, c->length, c->targets_stride) + 1);
	writes(list, DTYPE_FP32, c->losses, c->tokens);
}

KERNEL(gemm, true)
KERNEL(layernorm, false)
KERNEL(rmsnorm, false)
KERNEL(layernorm_backward, true)
KERNEL(rmsnorm_backward, true)
KERNEL(rope, false)
KERNEL(attention, true)
KERNEL(attention_backward, true)
KERNEL(swiglu_backward, false)
KERNEL(embedding, false)
KERNEL(embedding_backward, true)
KERNEL(cross_entropy, false)

/* One sequence after the other; stride 0: side by side. */
static void check_windows(struct kernel_context *context, const int32_t *ids, int64_t tokens,
	int64_t length, int64_t stride, int64_t vocabulary)
{
	int64_t step = stride > 0 ? length : tokens;

	for (int64_t t = 0; t < tokens; t += step)
		fake_check_tokens(context, ids + place_of(t, length, stride),
			step < tokens - t ? step : tokens - t, vocabulary);
}

static void fake_embedding_checked(struct kernel_context *context, const struct embedding *e)
{
	check_windows(context, e->ids, e->tokens, e->length, e->ids_stride, e->vocabulary);
	fake_embedding(context, e);
}

static void fake_cross_entropy_checked(
	struct kernel_context *context, const struct cross_entropy *c)
{
	check_windows(context, c->targets, c->tokens, c->length, c->targets_stride, c->vocabulary);
	fake_cross_entropy(context, c);
}

/* --- kernels with a few arguments --- */

struct few {
	enum dtype dtype, other;
	void *y;
	const void *a, *b;
	int64_t n, width;
	enum gelu kind;
	bool accumulate;
};

static void few(struct kernel_context *context, const char *name, void (*run)(void *),
	const struct few *arguments, const struct list *list)
{
	call(context, name, run, arguments, sizeof(*arguments), list);
}

/* What a kernel reads, as many elements of one type as it writes. */
#define FEW(name, parameters, reference_call, declare, ...)                                        \
	static void run_##name(void *arguments)                                                    \
	{                                                                                          \
		const struct few *f = arguments;                                                   \
		kernels_reference()->name reference_call;                                          \
	}                                                                                          \
	static void fake_##name parameters                                                         \
	{                                                                                          \
		const struct few few_arguments = {__VA_ARGS__}, *f = &few_arguments;               \
		struct list list = {.n = 0};                                                       \
		declare few(context, #name, run_##name, f, &list);                                 \
	}

FEW(bias_add,
	(struct kernel_context * context, enum dtype dtype, void *y, const void *a, int64_t n,
		int64_t width),
	(fake_worker(), f->dtype, f->y, f->a, f->n, f->width), writes(&list, dtype, y, n *width);
	reads(&list, dtype, a, width);, .dtype = dtype, .y = y, .a = a, .n = n, .width = width)
FEW(bias_backward,
	(struct kernel_context * context, enum dtype dtype, void *y, enum dtype other,
		const void *a, int64_t n, int64_t width, bool accumulate),
	(fake_worker(), f->dtype, f->y, f->other, f->a, f->n, f->width, f->accumulate),
	writes(&list, dtype, y, width);
	reads(&list, other, a, n *width); scratch(&list, context, true);, .dtype = dtype,
	.other = other, .y = y, .a = a, .n = n, .width = width, .accumulate = accumulate)
FEW(gelu,
	(struct kernel_context * context, enum dtype dtype, enum gelu kind, void *y, const void *a,
		int64_t n),
	(fake_worker(), f->dtype, f->kind, f->y, f->a, f->n), writes(&list, dtype, y, n);
	reads(&list, dtype, a, n);, .dtype = dtype, .kind = kind, .y = y, .a = a, .n = n)
FEW(gelu_backward,
	(struct kernel_context * context, enum dtype dtype, enum gelu kind, void *y, const void *a,
		const void *b, int64_t n),
	(fake_worker(), f->dtype, f->kind, f->y, f->a, f->b, f->n), writes(&list, dtype, y, n);
	reads(&list, dtype, a, n); reads(&list, dtype, b, n);
	, .dtype = dtype, .kind = kind, .y = y, .a = a, .b = b, .n = n)
FEW(swiglu,
	(struct kernel_context * context, enum dtype dtype, void *y, const void *a, const void *b,
		int64_t n),
	(fake_worker(), f->dtype, f->y, f->a, f->b, f->n), writes(&list, dtype, y, n);
	reads(&list, dtype, a, n); reads(&list, dtype, b, n);
	, .dtype = dtype, .y = y, .a = a, .b = b, .n = n)
FEW(add,
	(struct kernel_context * context, enum dtype dtype, void *y, const void *a, const void *b,
		int64_t n),
	(fake_worker(), f->dtype, f->y, f->a, f->b, f->n), writes(&list, dtype, y, n);
	reads(&list, dtype, a, n); reads(&list, dtype, b, n);
	, .dtype = dtype, .y = y, .a = a, .b = b, .n = n)
FEW(accumulate,
	(struct kernel_context * context, enum dtype dtype, void *y, enum dtype other,
		const void *a, int64_t n),
	(fake_worker(), f->dtype, f->y, f->other, f->a, f->n), writes(&list, dtype, y, n);
	reads(&list, other, a, n);, .dtype = dtype, .other = other, .y = y, .a = a, .n = n)
FEW(convert,
	(struct kernel_context * context, enum dtype dtype, void *y, enum dtype other,
		const void *a, int64_t n),
	(fake_worker(), f->dtype, f->y, f->other, f->a, f->n), writes(&list, dtype, y, n);
	reads(&list, other, a, n);, .dtype = dtype, .other = other, .y = y, .a = a, .n = n)
FEW(zero, (struct kernel_context * context, enum dtype dtype, void *y, int64_t n),
	(fake_worker(), f->dtype, f->y, f->n), writes(&list, dtype, y, n);
	, .dtype = dtype, .y = y, .n = n)
FEW(copy, (struct kernel_context * context, enum dtype dtype, void *y, const void *a, int64_t n),
	(fake_worker(), f->dtype, f->y, f->a, f->n), writes(&list, dtype, y, n);
	reads(&list, dtype, a, n);, .dtype = dtype, .y = y, .a = a, .n = n)

/* Exact sums are left normalised, as devices do. */
static void run_sum_squares(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->sum_squares(fake_worker(), f->y, f->a, f->n);
	exact_sum_normalise(f->y);
}

static void run_sum(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->sum(fake_worker(), f->y, f->a, f->n);
	exact_sum_normalise(f->y);
}

static void fake_sum_squares(
	struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	struct list list = {.n = 0};

	add(&list, sum, sizeof(*sum), true);
	reads(&list, DTYPE_FP32, x, n);
	few(context, "sum_squares", run_sum_squares, &(struct few){.y = sum, .a = x, .n = n},
		&list);
}

static void fake_sum(
	struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	struct list list = {.n = 0};

	add(&list, sum, sizeof(*sum), true);
	reads(&list, DTYPE_FP32, x, n);
	few(context, "sum", run_sum, &(struct few){.y = sum, .a = x, .n = n}, &list);
}

struct reduce {
	enum dtype dtype;
	void *y;
	const void *sources[FAKE_TOUCHES];
	int count;
	int64_t n;
};

static void run_tree_reduce(void *arguments)
{
	const struct reduce *r = arguments;

	kernels_reference()->tree_reduce(fake_worker(), r->dtype, r->y, r->sources, r->count, r->n);
}

static void fake_tree_reduce(struct kernel_context *context, enum dtype dtype, void *y,
	const void *const *sources, int count, int64_t n)
{
	struct reduce reduce = {.dtype = dtype, .y = y, .count = count, .n = n};
	struct list list = {.n = 0};

	for (int i = 0; i < count && i < FAKE_TOUCHES - 2; i++) {
		reduce.sources[i] = sources[i];
		reads(&list, dtype, sources[i], n);
	}
	writes(&list, dtype, y, n);
	/* The table "cuda" keeps its list of sources there. */
	writes(&list, DTYPE_FP32, context->workspace, 2 * (int64_t)count);
	call(context, "tree_reduce", run_tree_reduce, &reduce, sizeof(reduce), &list);
}

static void fake_prepare_gemm(struct kernel_context *context, const struct gemm *gemm)
{
	fake_take_choice(context, gemm);
}

static void fake_chosen_gemm(struct kernel_context *context, const struct gemm *gemm)
{
	fake_check_bf16(gemm);
	if (fake_take_choice(context, gemm))
		fake_gemm(context, gemm);
}

/* FAKE_NO_BIAS_PASS: products are to do it. */
static void fake_bias_checked(struct kernel_context *context, enum dtype dtype, void *dbias,
	enum dtype dy_dtype, const void *dy, int64_t rows, int64_t width, bool accumulate)
{
	if (getenv("FAKE_NO_BIAS_PASS") != NULL)
		fake_cuda_fault("the gradient of a bias reads all rows again");
	fake_bias_backward(context, dtype, dbias, dy_dtype, dy, rows, width, accumulate);
}

/* FAKE_BESIDE: how many multiprocessors communication is said to hold. */
static void check_beside(const struct kernel_context *context)
{
	const char *wanted = getenv("FAKE_BESIDE");

	if (wanted != NULL && context->beside != atoi(wanted))
		fake_cuda_fault("%d multiprocessors are for communication", context->beside);
}

static void fake_chosen_attention(struct kernel_context *context, const struct attention *a)
{
	check_beside(context);
	if (fake_take_attention(context, a))
		fake_attention(context, a);
}

static void fake_chosen_backward(struct kernel_context *context, const struct attention_backward *b)
{
	check_beside(context);
	if (fake_take_attention_backward(context, b))
		fake_attention_backward(context, b);
}

const struct kernels fake_kernels = {
	.name = "fake",
	.library = "reference",
	.open = fake_open,
	.close = fake_close,
	.prepare_gemm = fake_prepare_gemm,
	.gemm = fake_chosen_gemm,
	.bias_add = fake_bias_add,
	.bias_backward = fake_bias_checked,
	.layernorm = fake_layernorm,
	.layernorm_backward = fake_layernorm_backward,
	.rmsnorm = fake_rmsnorm,
	.rmsnorm_backward = fake_rmsnorm_backward,
	.rope = fake_rope,
	.attention = fake_chosen_attention,
	.attention_backward = fake_chosen_backward,
	.gelu = fake_gelu,
	.gelu_backward = fake_gelu_backward,
	.swiglu = fake_swiglu,
	.swiglu_backward = fake_swiglu_backward,
	.embedding = fake_embedding_checked,
	.embedding_backward = fake_embedding_backward,
	.cross_entropy = fake_cross_entropy_checked,
	.add = fake_add,
	.accumulate = fake_accumulate,
	.convert = fake_convert,
	.zero = fake_zero,
	.copy = fake_copy,
	.tree_reduce = fake_tree_reduce,
	.sum_squares = fake_sum_squares,
	.sum = fake_sum,
	.device = &fake_device_kernels,
};
