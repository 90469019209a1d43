/* The reference kernels as kernels of the fake GPU: each call is put in the queue of its stream,
 * with what it reads and writes, and computed when it is its turn. */
#include <stdlib.h>
#include <string.h>

#include "fake_cuda_private.h"

/* What computes has a workspace of its own: the schedule's is the GPU's. */
static struct kernel_context *worker(void)
{
	static struct kernel_context context;
	struct error error;

	if (context.workspace == NULL) {
		context.workspace = aligned_alloc(64, KERNELS_WORKSPACE_BYTES);
		context.workspace_bytes = KERNELS_WORKSPACE_BYTES;
		kernels_reference()->open(&context, &error);
	}
	return &context;
}

static bool fake_open(struct kernel_context *context, struct error *error)
{
	return kernels_reference()->open(context, error);
}

static void fake_close(struct kernel_context *context)
{
	(void)context;
}

/* --- extents --- */

struct list {
	struct fake_touch touches[FAKE_TOUCHES];
	int n;
};

static void add(struct list *list, const void *address, int64_t elements, bool write)
{
	if (address != NULL && elements > 0)
		list->touches[list->n++] =
			(struct fake_touch){address, elements * (int64_t)sizeof(float), write};
}

static void reads(struct list *list, const void *address, int64_t elements)
{
	add(list, address, elements, false);
}

static void writes(struct list *list, const void *address, int64_t elements)
{
	add(list, address, elements, true);
}

/* From the first element of the first row to the last of the last. */
static int64_t rows_of(int64_t rows, int64_t width, int64_t stride)
{
	return rows > 0 && width > 0 ? (rows - 1) * stride + width : 0;
}

static void call(struct kernel_context *context, const char *name, void (*run)(void *),
	const void *arguments, size_t bytes, const struct list *list)
{
	fake_cuda_call(context->stream, name, run, arguments, bytes, list->touches, list->n);
}

/* A kernel whose arguments are one struct. */
#define KERNEL(name)                                                                               \
	static void run_##name(void *arguments)                                                    \
	{                                                                                          \
		kernels_reference()->name(worker(), arguments);                                    \
	}                                                                                          \
	static void fake_##name(struct kernel_context *context, const struct TYPE_##name *a)       \
	{                                                                                          \
		struct list list = {.n = 0};                                                       \
		touch_##name(&list, a);                                                            \
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
#define TYPE_embedding          embedding
#define TYPE_embedding_backward embedding_backward
#define TYPE_cross_entropy      cross_entropy
#define TYPE_adamw              adamw

static void touch_gemm(struct list *list, const struct gemm *g)
{
	reads(list, g->a,
		g->transpose_a ? rows_of(g->k, g->m, g->lda) : rows_of(g->m, g->k, g->lda));
	reads(list, g->b,
		g->transpose_b ? rows_of(g->n, g->k, g->ldb) : rows_of(g->k, g->n, g->ldb));
	writes(list, g->c, rows_of(g->m, g->n, g->ldc));
}

static void touch_layernorm(struct list *list, const struct norm *n)
{
	reads(list, n->x, n->rows * n->width);
	reads(list, n->weight, n->width);
	reads(list, n->bias, n->width);
	writes(list, n->y, n->rows * n->width);
	writes(list, n->mean, n->rows);
	writes(list, n->rstd, n->rows);
}

static void touch_rmsnorm(struct list *list, const struct norm *n)
{
	touch_layernorm(list, n);
}

static void touch_layernorm_backward(struct list *list, const struct norm_backward *n)
{
	reads(list, n->dy, n->rows * n->width);
	reads(list, n->x, n->rows * n->width);
	reads(list, n->weight, n->width);
	reads(list, n->mean, n->rows);
	reads(list, n->rstd, n->rows);
	writes(list, n->dx, n->rows * n->width);
	writes(list, n->dweight, n->width);
	writes(list, n->dbias, n->width);
}

static void touch_rmsnorm_backward(struct list *list, const struct norm_backward *n)
{
	touch_layernorm_backward(list, n);
}

static void touch_rope(struct list *list, const struct rope *r)
{
	writes(list, r->x, rows_of(r->tokens, r->heads * r->head_dim, r->stride));
}

static void touch_attention(struct list *list, const struct attention *a)
{
	int64_t rows = a->sequences * a->length;

	reads(list, a->q, rows_of(rows, a->heads * a->head_dim, a->q_stride));
	reads(list, a->k, rows_of(rows, a->kv_heads * a->head_dim, a->k_stride));
	reads(list, a->v, rows_of(rows, a->kv_heads * a->head_dim, a->v_stride));
	writes(list, a->out, rows_of(rows, a->heads * a->head_dim, a->out_stride));
	writes(list, a->lse, rows * a->heads);
}

static void touch_attention_backward(struct list *list, const struct attention_backward *b)
{
	const struct attention *a = &b->forward;
	int64_t rows = a->sequences * a->length;

	touch_attention(list, a);
	reads(list, b->dout, rows_of(rows, a->heads * a->head_dim, b->dout_stride));
	writes(list, b->dq, rows_of(rows, a->heads * a->head_dim, b->dq_stride));
	writes(list, b->dk, rows_of(rows, a->kv_heads * a->head_dim, b->dk_stride));
	writes(list, b->dv, rows_of(rows, a->kv_heads * a->head_dim, b->dv_stride));
}

static void touch_embedding(struct list *list, const struct embedding *e)
{
	reads(list, e->ids, e->tokens);
	reads(list, e->table, e->vocabulary * e->width);
	reads(list, e->positions, e->length * e->width);
	writes(list, e->out, e->tokens * e->width);
}

static void touch_embedding_backward(struct list *list, const struct embedding_backward *e)
{
	reads(list, e->ids, e->tokens);
	reads(list, e->dout, e->tokens * e->width);
	writes(list, e->dtable, e->vocabulary * e->width);
	writes(list, e->dpositions, e->position_rows * e->width);
}

static void touch_cross_entropy(struct list *list, const struct cross_entropy *c)
{
	writes(list, c->logits, rows_of(c->tokens, c->vocabulary, c->stride));
	reads(list, c->targets, c->tokens);
	writes(list, c->losses, c->tokens);
}

static void touch_adamw(struct list *list, const struct adamw *a)
{
	writes(list, a->w, a->n);
	writes(list, a->m, a->n);
	writes(list, a->v, a->n);
	reads(list, a->g, a->n);
}

KERNEL(gemm)
KERNEL(layernorm)
KERNEL(rmsnorm)
KERNEL(layernorm_backward)
KERNEL(rmsnorm_backward)
KERNEL(rope)
KERNEL(attention)
KERNEL(attention_backward)
KERNEL(embedding)
KERNEL(embedding_backward)
KERNEL(cross_entropy)
KERNEL(adamw)

/* --- kernels with a few arguments --- */

struct few {
	const void *a, *b, *c, *d, *e;
	int64_t n, width;
	double number;
	int kind;
	bool accumulate;
};

static void few(struct kernel_context *context, const char *name, void (*run)(void *),
	const struct few *arguments, const struct list *list)
{
	call(context, name, run, arguments, sizeof(*arguments), list);
}

static void run_bias_add(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->bias_add(worker(), (float *)f->a, f->b, f->n, f->width);
}

static void fake_bias_add(
	struct kernel_context *context, float *y, const float *bias, int64_t rows, int64_t width)
{
	struct list list = {.n = 0};

	writes(&list, y, rows * width);
	reads(&list, bias, width);
	few(context, "bias_add", run_bias_add,
		&(struct few){.a = y, .b = bias, .n = rows, .width = width}, &list);
}

static void run_bias_backward(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->bias_backward(
		worker(), (float *)f->a, f->b, f->n, f->width, f->accumulate);
}

static void fake_bias_backward(struct kernel_context *context, float *dbias, const float *dy,
	int64_t rows, int64_t width, bool accumulate)
{
	struct list list = {.n = 0};

	writes(&list, dbias, width);
	reads(&list, dy, rows * width);
	few(context, "bias_backward", run_bias_backward,
		&(struct few){
			.a = dbias, .b = dy, .n = rows, .width = width, .accumulate = accumulate},
		&list);
}

static void run_gelu(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->gelu(worker(), (enum gelu)f->kind, (float *)f->a, f->b, f->n);
}

static void fake_gelu(
	struct kernel_context *context, enum gelu kind, float *y, const float *x, int64_t n)
{
	struct list list = {.n = 0};

	writes(&list, y, n);
	reads(&list, x, n);
	few(context, "gelu", run_gelu, &(struct few){.a = y, .b = x, .n = n, .kind = (int)kind},
		&list);
}

static void run_gelu_backward(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->gelu_backward(
		worker(), (enum gelu)f->kind, (float *)f->a, f->b, f->c, f->n);
}

static void fake_gelu_backward(struct kernel_context *context, enum gelu kind, float *dx,
	const float *dy, const float *x, int64_t n)
{
	struct list list = {.n = 0};

	writes(&list, dx, n);
	reads(&list, dy, n);
	reads(&list, x, n);
	few(context, "gelu_backward", run_gelu_backward,
		&(struct few){.a = dx, .b = dy, .c = x, .n = n, .kind = (int)kind}, &list);
}

static void run_swiglu(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->swiglu(worker(), (float *)f->a, f->b, f->c, f->n);
}

static void fake_swiglu(
	struct kernel_context *context, float *y, const float *gate, const float *up, int64_t n)
{
	struct list list = {.n = 0};

	writes(&list, y, n);
	reads(&list, gate, n);
	reads(&list, up, n);
	few(context, "swiglu", run_swiglu, &(struct few){.a = y, .b = gate, .c = up, .n = n},
		&list);
}

static void run_swiglu_backward(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->swiglu_backward(
		worker(), (float *)f->a, (float *)f->b, f->c, f->d, f->e, f->n);
}

static void fake_swiglu_backward(struct kernel_context *context, float *dgate, float *dup,
	const float *dy, const float *gate, const float *up, int64_t n)
{
	struct list list = {.n = 0};

	writes(&list, dgate, n);
	writes(&list, dup, n);
	reads(&list, dy, n);
	reads(&list, gate, n);
	reads(&list, up, n);
	few(context, "swiglu_backward", run_swiglu_backward,
		&(struct few){.a = dgate, .b = dup, .c = dy, .d = gate, .e = up, .n = n}, &list);
}

static void run_add(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->add(worker(), (float *)f->a, f->b, f->c, f->n);
}

static void fake_add(
	struct kernel_context *context, float *y, const float *a, const float *b, int64_t n)
{
	struct list list = {.n = 0};

	writes(&list, y, n);
	reads(&list, a, n);
	reads(&list, b, n);
	few(context, "add", run_add, &(struct few){.a = y, .b = a, .c = b, .n = n}, &list);
}

static void run_zero(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->zero(worker(), (float *)f->a, f->n);
}

static void fake_zero(struct kernel_context *context, float *y, int64_t n)
{
	struct list list = {.n = 0};

	writes(&list, y, n);
	few(context, "zero", run_zero, &(struct few){.a = y, .n = n}, &list);
}

static void run_copy(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->copy(worker(), (float *)f->a, f->b, f->n);
}

static void fake_copy(struct kernel_context *context, float *y, const float *x, int64_t n)
{
	struct list list = {.n = 0};

	writes(&list, y, n);
	reads(&list, x, n);
	few(context, "copy", run_copy, &(struct few){.a = y, .b = x, .n = n}, &list);
}

/* Exact sums are left normalised, as devices do. */
static void run_sum_squares(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->sum_squares(worker(), (struct exact_sum *)f->a, f->b, f->n);
	exact_sum_normalise((struct exact_sum *)f->a);
}

static void run_sum(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->sum(worker(), (struct exact_sum *)f->a, f->b, f->n);
	exact_sum_normalise((struct exact_sum *)f->a);
}

enum { SUM_ELEMENTS = sizeof(struct exact_sum) / sizeof(float) };

static void fake_sum_squares(
	struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	struct list list = {.n = 0};

	writes(&list, sum, SUM_ELEMENTS);
	reads(&list, x, n);
	few(context, "sum_squares", run_sum_squares, &(struct few){.a = sum, .b = x, .n = n},
		&list);
}

static void fake_sum(
	struct kernel_context *context, struct exact_sum *sum, const float *x, int64_t n)
{
	struct list list = {.n = 0};

	writes(&list, sum, SUM_ELEMENTS);
	reads(&list, x, n);
	few(context, "sum", run_sum, &(struct few){.a = sum, .b = x, .n = n}, &list);
}

static void run_clip(void *arguments)
{
	const struct few *f = arguments;

	kernels_reference()->clip(worker(), (float *)f->a, f->n, f->b, f->number);
}

static void fake_clip(struct kernel_context *context, float *y, int64_t n,
	const struct exact_sum *squares, double most)
{
	struct list list = {.n = 0};

	writes(&list, y, n);
	reads(&list, squares, SUM_ELEMENTS);
	few(context, "clip", run_clip, &(struct few){.a = y, .b = squares, .n = n, .number = most},
		&list);
}

struct reduce {
	float *y;
	const float *sources[FAKE_TOUCHES];
	int count;
	int64_t n;
};

static void run_tree_reduce(void *arguments)
{
	const struct reduce *r = arguments;

	kernels_reference()->tree_reduce(worker(), r->y, r->sources, r->count, r->n);
}

static void fake_tree_reduce(
	struct kernel_context *context, float *y, const float *const *sources, int count, int64_t n)
{
	struct reduce reduce = {.y = y, .count = count, .n = n};
	struct list list = {.n = 0};

	for (int i = 0; i < count && i < FAKE_TOUCHES - 1; i++) {
		reduce.sources[i] = sources[i];
		reads(&list, sources[i], n);
	}
	writes(&list, y, n);
	call(context, "tree_reduce", run_tree_reduce, &reduce, sizeof(reduce), &list);
}

static void fake_prepare_gemm(struct kernel_context *context, const struct gemm *gemm)
{
	(void)context;
	(void)gemm;
}

const struct kernels fake_kernels = {
	.name = "fake",
	.library = "reference",
	.open = fake_open,
	.close = fake_close,
	.prepare_gemm = fake_prepare_gemm,
	.gemm = fake_gemm,
	.bias_add = fake_bias_add,
	.bias_backward = fake_bias_backward,
	.layernorm = fake_layernorm,
	.layernorm_backward = fake_layernorm_backward,
	.rmsnorm = fake_rmsnorm,
	.rmsnorm_backward = fake_rmsnorm_backward,
	.rope = fake_rope,
	.attention = fake_attention,
	.attention_backward = fake_attention_backward,
	.gelu = fake_gelu,
	.gelu_backward = fake_gelu_backward,
	.swiglu = fake_swiglu,
	.swiglu_backward = fake_swiglu_backward,
	.embedding = fake_embedding,
	.embedding_backward = fake_embedding_backward,
	.cross_entropy = fake_cross_entropy,
	.adamw = fake_adamw,
	.add = fake_add,
	.zero = fake_zero,
	.copy = fake_copy,
	.tree_reduce = fake_tree_reduce,
	.sum_squares = fake_sum_squares,
	.sum = fake_sum,
	.clip = fake_clip,
};
