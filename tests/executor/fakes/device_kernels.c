/* What a device's table has beyond the rest (struct device_kernels), for the fake GPU. An epilogue
 * does what the kernels that it stands for would do one after the other, with their roundings: so
 * bits are those of the CPU. (cuBLASLt rounds once.) */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/executor/fakes/cuda_private.h"
#include "tests/kernels/reference/reference.h"

struct touches {
	struct fake_touch list[FAKE_TOUCHES];
	int n;
};

static void touch(struct touches *touches, const void *address, int64_t bytes, bool write)
{
	if (address != NULL && bytes > 0 && touches->n < FAKE_TOUCHES)
		touches->list[touches->n++] = (struct fake_touch){address, bytes, write};
}

/* --- products --- */

struct fused {
	struct gemm gemm;
	struct gemm_epilogue epilogue;
};

static void run_fused(void *arguments)
{
	const struct fused *f = arguments;
	const struct kernels *k = kernels_reference();
	const struct gemm_epilogue *e = &f->epilogue;
	struct gemm g = f->gemm;

	if (e->dbias != NULL)
		k->bias_backward(fake_worker(), g.c_dtype, e->dbias, g.dtype, g.a, g.k, g.m, false);
	if (e->before_gelu != NULL)
		g.c = e->before_gelu;
	if (e->addend != NULL)
		k->copy(fake_worker(), g.c_dtype, g.c, e->addend, g.m * g.n);
	g.accumulate |= e->addend != NULL;
	k->gemm(fake_worker(), &g);
	if (e->bias != NULL)
		k->bias_add(fake_worker(), g.c_dtype, g.c, e->bias, g.m, g.n);
	if (e->gelu_input != NULL)
		k->gelu_backward(
			fake_worker(), g.c_dtype, GELU_TANH, g.c, g.c, e->gelu_input, g.m * g.n);
	if (e->before_gelu != NULL)
		k->gelu(fake_worker(), g.c_dtype, GELU_TANH, f->gemm.c, g.c, g.m * g.n);
}

/* FAKE_FP8: what could be multiplied in fp8 must be. */
void fake_check_bf16(const struct gemm *g)
{
	if (getenv("FAKE_FP8") != NULL && (g->m | g->n | g->k) % FP8_ALIGNMENT == 0)
		fake_cuda_fault("a product that is for fp8");
}

/* Takes dense matrices only, as the executor has them: dy^T x, x W^T. */
static bool fake_epilogue(
	struct kernel_context *context, const struct gemm *g, const struct gemm_epilogue *e)
{
	const struct fused fused = {*g, *e};
	int64_t in = dtype_bytes(g->dtype), out = dtype_bytes(g->c_dtype);
	struct touches t = {.n = 0};

	fake_check_bf16(g);
	if (g->lda != (g->transpose_a ? g->m : g->k) || g->ldc != g->n)
		fake_cuda_fault("an epilogue of matrices that are not dense");
	if (e->dbias != NULL && (e->addend != NULL || e->bias != NULL || e->before_gelu != NULL))
		fake_cuda_fault("an epilogue that cuBLASLt does not have");
	if (e->gelu_input != NULL && (e->addend != NULL || e->bias != NULL || g->accumulate))
		fake_cuda_fault("an epilogue that cuBLASLt does not have");
	touch(&t, g->a, g->m * g->k * in, false);
	touch(&t, g->b, g->k * g->n * in, false);
	touch(&t, g->c, g->m * g->n * out, true);
	touch(&t, e->addend, g->m * g->n * out, false);
	touch(&t, e->bias, g->n * out, false);
	touch(&t, e->gelu_input, g->m * g->n * out, false);
	touch(&t, e->before_gelu, g->m * g->n * out, true);
	touch(&t, e->dbias, g->m * out, true);
	touch(&t, context->workspace, context->workspace_bytes, true);
	fake_cuda_call(
		context->stream, "gemm_epilogue", run_fused, &fused, sizeof(fused), t.list, t.n);
	return true;
}

static bool fake_prepare_epilogue(
	struct kernel_context *context, const struct gemm *g, const struct gemm_epilogue *e)
{
	(void)e;
	fake_take_choice(context, g);
	return true;
}

/* --- products in fp8 --- */

struct fp8_product {
	struct gemm gemm;
	struct gemm_fp8 how;
};

static void run_fp8(void *arguments)
{
	const struct fp8_product *p = arguments;

	reference_gemm_fp8(&p->gemm, &p->how);
}

static int64_t bytes_of(int64_t rows, int64_t columns, int64_t stride, enum dtype dtype)
{
	return ((rows - 1) * stride + columns) * dtype_bytes(dtype);
}

/* FAKE_FP8: the exponent bits that dy must have, 4 or 5. */
static void fake_gemm_fp8(
	struct kernel_context *context, const struct gemm *g, const struct gemm_fp8 *how)
{
	const struct fp8_product product = {*g, *how};
	const char *wanted = getenv("FAKE_FP8");
	bool gradient = g->transpose_a || !g->transpose_b;
	struct touches t = {.n = 0};

	if (g->dtype != DTYPE_BF16 || (g->m | g->n | g->k) % FP8_ALIGNMENT != 0 ||
		how->b != FP8_E4M3 ||
		how->a != (gradient && wanted != NULL && wanted[0] == '5' ? FP8_E5M2 : FP8_E4M3))
		fake_cuda_fault("a product that is not for fp8");
	touch(&t, g->a,
		bytes_of(g->transpose_a ? g->k : g->m, g->transpose_a ? g->m : g->k, g->lda,
			g->dtype),
		false);
	touch(&t, g->b,
		bytes_of(g->transpose_b ? g->n : g->k, g->transpose_b ? g->k : g->n, g->ldb,
			g->dtype),
		false);
	touch(&t, g->c, bytes_of(g->m, g->n, g->ldc, g->c_dtype), true);
	touch(&t, how->copies, fp8_product_bytes(g->m, g->n, g->k), true);
	touch(&t, context->workspace, context->workspace_bytes, true);
	fake_cuda_call(
		context->stream, "gemm_fp8", run_fp8, &product, sizeof(product), t.list, t.n);
}

static void fake_prepare_fp8(
	struct kernel_context *context, const struct gemm *g, const struct gemm_fp8 *how)
{
	(void)context, (void)g, (void)how;
}

/* --- packs --- */

struct pack {
	struct pack_segment segments[FAKE_TOUCHES / 2];
	char *flat;
	int64_t element;
	int n;
	bool unpack;
};

static void run_pack(void *arguments)
{
	const struct pack *p = arguments;

	for (int i = 0; i < p->n; i++) {
		char *flat = p->flat + p->segments[i].offset * p->element;
		void *tensor = p->segments[i].tensor;
		size_t bytes = (size_t)(p->segments[i].count * p->element);

		memcpy(p->unpack ? tensor : flat, p->unpack ? flat : tensor, bytes);
	}
}

static void fake_pack(struct kernel_context *context, enum dtype dtype, void *flat,
	const struct pack_segment *segments, int n, bool unpack)
{
	struct pack pack = {.flat = flat, .element = dtype_bytes(dtype), .n = n, .unpack = unpack};
	struct touches t = {.n = 0};

	if (n > FAKE_TOUCHES / 2) {
		fake_cuda_fault("the fake packs no more than %d tensors", FAKE_TOUCHES / 2);
		return;
	}
	for (int i = 0; i < n; i++) {
		const struct pack_segment *s = &segments[i];
		int64_t bytes = s->count * pack.element;

		pack.segments[i] = *s;
		touch(&t, s->tensor, bytes, unpack);
		touch(&t, pack.flat + s->offset * pack.element, bytes, !unpack);
	}
	fake_cuda_call(context->stream, "pack", run_pack, &pack, sizeof(pack), t.list, t.n);
}

/* --- updates --- */

struct update {
	struct adamw adamw; /* w, g, n and dtype of SGD too */
	struct sgd plain;
	const struct adamw_factors *factors;
	const struct sgd_factors *sgd;
	const float *scale;
};

/* What changes from step to step, a GPU finds in its memory. */
static void run_adamw(void *arguments)
{
	const struct update *u = arguments;
	struct adamw adamw = u->adamw;

	adamw.gradient_scale = u->scale != NULL ? *u->scale : 1;
	adamw.rounding.stream[1] = u->factors->draw;
	reference_adamw_with(&adamw, *u->factors);
}

static void run_sgd(void *arguments)
{
	const struct update *u = arguments;
	struct sgd sgd = u->plain;

	sgd.lr = u->sgd->rate;
	sgd.weight_decay = u->sgd->decay;
	sgd.gradient_scale = u->scale != NULL ? *u->scale : 1;
	sgd.rounding.stream[1] = u->sgd->draw;
	kernels_reference()->sgd(fake_worker(), &sgd);
}

static void update(struct kernel_context *context, const char *name, void (*run)(void *),
	const struct update *u)
{
	const struct adamw *a = &u->adamw;
	int64_t bytes = a->n * dtype_bytes(a->dtype);
	struct touches t = {.n = 0};

	touch(&t, a->w, bytes, true);
	touch(&t, a->m, bytes, true);
	touch(&t, a->v, bytes, true);
	touch(&t, a->g, a->n * (int64_t)sizeof(float), false);
	touch(&t, u->factors, sizeof(*u->factors), false);
	touch(&t, u->sgd, sizeof(*u->sgd), false);
	touch(&t, u->scale, sizeof(*u->scale), false);
	fake_cuda_call(context->stream, name, run, u, sizeof(*u), t.list, t.n);
}

static void fake_adamw(struct kernel_context *context, const struct adamw *adamw, void *copy,
	const struct adamw_factors *factors, const float *scale)
{
	if (copy != NULL)
		fake_cuda_fault("the fake's AdamW stores no bf16");
	update(context, "adamw", run_adamw,
		&(struct update){.adamw = *adamw, .factors = factors, .scale = scale});
}

static void fake_sgd(struct kernel_context *context, const struct sgd *sgd,
	const struct sgd_factors *factors, const float *scale)
{
	update(context, "sgd", run_sgd,
		&(struct update){
			.adamw = {.n = sgd->n, .w = sgd->w, .g = sgd->g, .dtype = sgd->dtype},
			.plain = *sgd,
			.sgd = factors,
			.scale = scale});
}

struct clip {
	const struct exact_sum *squares;
	double most, *norm;
	float *scale;
};

static void run_clip_scale(void *arguments)
{
	const struct clip *c = arguments;
	double factor = exact_sum_clip_factor(c->squares, c->most);

	*c->norm = sqrt(exact_sum_value(c->squares));
	*c->scale = factor < 1 ? (float)factor : 1;
}

static void fake_clip_scale(struct kernel_context *context, const struct exact_sum *squares,
	double most, double *norm, float *scale)
{
	const struct fake_touch touches[] = {{squares, sizeof(*squares), false},
		{norm, sizeof(*norm), true}, {scale, sizeof(*scale), true}};

	fake_cuda_call(context->stream, "clip_scale", run_clip_scale,
		&(struct clip){squares, most, norm, scale}, sizeof(struct clip), touches, 3);
}

/* --- tokens --- */

struct tokens {
	const int32_t *ids;
	int64_t n, vocabulary;
	int32_t *fault;
};

static void run_check(void *arguments)
{
	const struct tokens *t = arguments;

	for (int64_t i = 0; i < t->n; i++)
		if (t->ids[i] >= t->vocabulary && t->ids[i] > *t->fault)
			*t->fault = t->ids[i];
}

void fake_check_tokens(
	struct kernel_context *context, const int32_t *ids, int64_t n, int64_t vocabulary)
{
	const struct tokens tokens = {ids, n, vocabulary, context->backend};
	const struct fake_touch touches[] = {
		{ids, n * (int64_t)sizeof(*ids), false}, {context->backend, sizeof(int32_t), true}};

	fake_cuda_call(context->stream, "a look at tokens", run_check, &tokens, sizeof(tokens),
		touches, 2);
}

bool fake_open(struct kernel_context *context, struct error *error)
{
	uint64_t address = 0;

	if (!cuda_check(cuda_api(error), cuda_api(error)->cuMemAlloc(&address, sizeof(int32_t)),
		    "cuMemAlloc", error))
		return false;
	context->backend = (void *)(uintptr_t)address;
	*(int32_t *)context->backend = -1;
	return true;
}

void fake_close(struct kernel_context *context)
{
	fake_choose_gemms(context, NULL, 0);
	fake_choose_attention(context, NULL, 0);
	if (context->backend != NULL)
		cuda_api(NULL)->cuMemFree((uint64_t)(uintptr_t)context->backend);
	context->backend = NULL;
}

static const int32_t *fake_fault(struct kernel_context *context)
{
	return context->backend;
}

const struct device_kernels fake_device_kernels = {
	.gemm_epilogue = fake_epilogue,
	.prepare_gemm_epilogue = fake_prepare_epilogue,
	.gemm_fp8 = fake_gemm_fp8,
	.prepare_gemm_fp8 = fake_prepare_fp8,
	.gemm_algorithms = fake_gemm_algorithms,
	.choose_gemms = fake_choose_gemms,
	.gemm_version = fake_gemm_version,
	.attention_algorithms = fake_attention_algorithms,
	.choose_attention = fake_choose_attention,
	.attention_version = fake_attention_version,
	.pack = fake_pack,
	.adamw = fake_adamw,
	.sgd = fake_sgd,
	.clip_scale = fake_clip_scale,
	.fault = fake_fault,
};
