/* GEMM by cuBLASLt. What a shape needs (descriptors and the first heuristic result) is found once
 * and kept, so that a GEMM is one call and always uses the same algorithm.
 *
 * cuBLASLt is column-major: a row-major [m, n] is its [n, m], hence C = A B is asked for as
 * C^T = B^T A^T with both transposes free. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm.h"

/* These are as in cublas_api.h and cublasLt.h. */
enum {
	CUBLAS_OP_N = 0,
	CUBLAS_OP_T = 1,
	MATMUL_DESC_TRANSA = 3,
	MATMUL_DESC_TRANSB = 4,
	MATMUL_DESC_EPILOGUE = 7,
	MATMUL_DESC_BIAS_POINTER = 8,
	MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
	MATMUL_DESC_EPILOGUE_AUX_LD = 12,
	MATMUL_DESC_SM_COUNT_TARGET = 15,
	MATMUL_DESC_A_SCALE_POINTER = 17,
	MATMUL_DESC_B_SCALE_POINTER = 18,
	MATMUL_DESC_A_SCALE_MODE = 31,
	MATMUL_DESC_B_SCALE_MODE = 32,
	MATRIX_SCALE_OUTER_VEC_32F = 3,
	PREFERENCE_MAX_WORKSPACE_BYTES = 1,
	PREFERENCE_MIN_ALIGNMENT_A_BYTES = 5,
	PREFERENCE_MIN_ALIGNMENT_D_BYTES = 8,
};

/* These are values of cublasLtEpilogue_t. */
enum {
	EPILOGUE_DEFAULT = 1,
	EPILOGUE_BIAS = 4,
	EPILOGUE_GELU_AUX = 32 | 128, /* with the argument stored */
	EPILOGUE_DGELU = 64 | 128,    /* times the slope at that argument */
	EPILOGUE_BGRADB = 512,        /* our A is cuBLASLt's B */
};

/* cuBLASLt says this of an epilogue for which it has no kernel. */
enum { STATUS_INVALID_VALUE = 7, STATUS_NOT_SUPPORTED = 15 };

static int epilogue_of(const struct gemm_epilogue *e)
{
	if (e->dbias)
		return EPILOGUE_BGRADB;
	if (e->gelu_input)
		return EPILOGUE_DGELU;
	return e->before_gelu ? EPILOGUE_GELU_AUX | (e->bias ? EPILOGUE_BIAS : 0)
	       : e->bias      ? EPILOGUE_BIAS
			      : EPILOGUE_DEFAULT;
}

static bool check(struct kernel_context *context, int result, const char *what)
{
	if (result == 0)
		return true;
	return error_set(
		&context->error, EXIT_CODE_FAULT, "cuda: %s gave cublasStatus %d", what, result);
}

static int64_t least_alignment(const struct gemm *g, const struct gemm_epilogue *e)
{
	int64_t bytes = dtype_bytes(g->dtype), c_bytes = dtype_bytes(g->c_dtype);
	uint64_t bits = (uint64_t)(uintptr_t)g->a | (uint64_t)(uintptr_t)g->b |
			(uint64_t)(uintptr_t)g->c | (uint64_t)(uintptr_t)e->bias |
			(uint64_t)(uintptr_t)e->before_gelu | (uint64_t)(uintptr_t)e->dbias |
			(uint64_t)(uintptr_t)e->addend | (uint64_t)(uintptr_t)e->gelu_input |
			(uint64_t)(g->lda * bytes) | (uint64_t)(g->ldb * bytes) |
			(uint64_t)(g->ldc * c_bytes);

	return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 2;
}

static struct key key_of(const struct kernel_context *context, const struct gemm *g,
	const struct gemm_epilogue *epilogue, int64_t alignment)
{
	return (struct key){.m = g->m,
		.n = g->n,
		.k = g->k,
		.lda = g->lda,
		.ldb = g->ldb,
		.ldc = g->ldc,
		.transpose_a = g->transpose_a,
		.transpose_b = g->transpose_b,
		.accumulate = g->accumulate || epilogue->addend,
		.dtype = (int8_t)g->dtype,
		.c_dtype = (int8_t)g->c_dtype,
		.epilogue = epilogue_of(epilogue),
		.alignment = (int8_t)alignment,
		.beside = (int16_t)(context->beside > 0 ? context->beside : 0)};
}

int cuda_type(enum dtype dtype)
{
	return dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static bool set(struct kernel_context *context, void *description, int attribute, const void *value,
	size_t bytes)
{
	const struct cuda_api *api = cuda_backend(context)->api;

	return check(context,
		api->cublasLtMatmulDescSetAttribute(description, attribute, value, bytes),
		"cublasLtMatmulDescSetAttribute");
}

/* Takes as many multiprocessors as communication leaves. With more, a product would wait for the
 * last of its tiles. */
static bool set_multiprocessors(struct kernel_context *context, const struct cuda_product *p)
{
	int32_t target = cuda_backend(context)->multiprocessors - p->key.beside;

	return p->key.beside == 0 || target < 1 ||
	       set(context, p->description, MATMUL_DESC_SM_COUNT_TARGET, &target, sizeof(target));
}

/* One scale of each row along k; else of all, which is what cuBLASLt assumes. */
static bool set_scale_modes(struct kernel_context *context, const struct cuda_product *p)
{
	int32_t mode = MATRIX_SCALE_OUTER_VEC_32F;

	return !p->key.by_rows ||
	       (set(context, p->description, MATMUL_DESC_A_SCALE_MODE, &mode, sizeof(mode)) &&
		       set(context, p->description, MATMUL_DESC_B_SCALE_MODE, &mode, sizeof(mode)));
}

static int operand_type(const struct key *key, int8_t format)
{
	if (key->dtype != DTYPE_FP8)
		return cuda_type((enum dtype)key->dtype);
	return format == FP8_E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

bool cuda_describe_product(struct kernel_context *context, struct cuda_product *p)
{
	const struct cuda_api *api = cuda_backend(context)->api;
	const struct key *key = &p->key;
	int type_a = operand_type(key, key->b_format), type_b = operand_type(key, key->a_format);
	int c_type = cuda_type((enum dtype)key->c_dtype);
	int32_t ours_a = key->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
	int32_t ours_b = key->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
	uint32_t epilogue = (uint32_t)key->epilogue;

	return check(context,
		       api->cublasLtMatmulDescCreate(
			       &p->description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
		       "cublasLtMatmulDescCreate") &&
	       set(context, p->description, MATMUL_DESC_TRANSA, &ours_b, sizeof(ours_b)) &&
	       set(context, p->description, MATMUL_DESC_TRANSB, &ours_a, sizeof(ours_a)) &&
	       set(context, p->description, MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)) &&
	       set_multiprocessors(context, p) && set_scale_modes(context, p) &&
	       check(context,
		       api->cublasLtMatrixLayoutCreate(&p->a, type_a,
			       (uint64_t)(key->transpose_b ? key->k : key->n),
			       (uint64_t)(key->transpose_b ? key->n : key->k), key->ldb),
		       "cublasLtMatrixLayoutCreate") &&
	       check(context,
		       api->cublasLtMatrixLayoutCreate(&p->b, type_b,
			       (uint64_t)(key->transpose_a ? key->m : key->k),
			       (uint64_t)(key->transpose_a ? key->k : key->m), key->lda),
		       "cublasLtMatrixLayoutCreate") &&
	       check(context,
		       api->cublasLtMatrixLayoutCreate(
			       &p->c, c_type, (uint64_t)key->n, (uint64_t)key->m, key->ldc),
		       "cublasLtMatrixLayoutCreate");
}

/* The bias and the argument of the epilogue belong to the call, yet stand in the description. */
static bool set_pointers(
	struct kernel_context *context, const struct cuda_product *p, const struct gemm_epilogue *e)
{
	const void *bias = e->dbias ? e->dbias : e->bias;
	const void *aux = e->before_gelu ? e->before_gelu : e->gelu_input;

	if (bias && !set(context, p->description, MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)))
		return false;
	return !aux ||
	       (set(context, p->description, MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof(aux)) &&
		       set(context, p->description, MATMUL_DESC_EPILOGUE_AUX_LD, &p->key.ldc,
			       sizeof(p->key.ldc)));
}

static bool prefer(struct kernel_context *context, void *preference, const struct key *key)
{
	const struct cuda_api *api = cuda_backend(context)->api;
	uint64_t workspace = (uint64_t)context->workspace_bytes;
	uint32_t alignment = (uint32_t)key->alignment;

	for (int i = PREFERENCE_MIN_ALIGNMENT_A_BYTES; i <= PREFERENCE_MIN_ALIGNMENT_D_BYTES; i++)
		if (!check(context,
			    api->cublasLtMatmulPreferenceSetAttribute(
				    preference, i, &alignment, sizeof(alignment)),
			    "cublasLtMatmulPreferenceSetAttribute"))
			return false;
	return check(context,
		api->cublasLtMatmulPreferenceSetAttribute(
			preference, PREFERENCE_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)),
		"cublasLtMatmulPreferenceSetAttribute");
}

/* An epilogue may have no kernel, but for a plain product that is an error. */
static bool take_first(struct kernel_context *context, struct cuda_product *p, int result, int n,
	const struct cublaslt_heuristic *found)
{
	bool none = n == 0 || found[n - 1].state != 0;

	p->refused = p->key.epilogue != EPILOGUE_DEFAULT &&
		     (result == STATUS_INVALID_VALUE || result == STATUS_NOT_SUPPORTED ||
			     (result == 0 && none));
	if (p->refused)
		return true;
	if (!check(context, result, "cublasLtMatmulAlgoGetHeuristic"))
		return false;
	if (none)
		return error_set(&context->error, EXIT_CODE_FAULT,
			"cuda: cuBLASLt has no algorithm for a product of %lld x %lld x %lld%s",
			(long long)p->key.m, (long long)p->key.n, (long long)p->key.k,
			p->key.dtype == DTYPE_FP8 ? " in fp8" : "");
	p->algo = found[n - 1].algo;
	return true;
}

bool cuda_propose(struct kernel_context *context, struct cuda_product *p, int wanted,
	struct cublaslt_heuristic *found, int *n, int *status)
{
	const struct cuda_backend *b = cuda_backend(context);
	const struct cuda_api *api = b->api;
	void *preference = NULL;
	bool ok = check(context, api->cublasLtMatmulPreferenceCreate(&preference),
			  "cublasLtMatmulPreferenceCreate") &&
		  prefer(context, preference, &p->key);

	*n = 0;
	if (ok)
		*status = api->cublasLtMatmulAlgoGetHeuristic(b->cublaslt, p->description, p->a,
			p->b, p->c, p->c, preference, wanted, found, n);
	if (preference)
		api->cublasLtMatmulPreferenceDestroy(preference);
	return ok;
}

static bool choose(struct kernel_context *context, struct cuda_product *p)
{
	int candidate = cuda_backend(context)->candidate, n = 0, status = 0;
	struct cublaslt_heuristic found[MOST_CANDIDATES] = {0};
	int wanted = candidate < MOST_CANDIDATES ? candidate + 1 : MOST_CANDIDATES;

	return cuda_take_choice(context, p) ||
	       (context->error.message[0] == '\0' &&
		       cuda_propose(context, p, wanted, found, &n, &status) &&
		       take_first(context, p, status, n, found));
}

void cuda_forget_product(const struct cuda_api *api, struct cuda_product *p)
{
	if (p->description)
		api->cublasLtMatmulDescDestroy(p->description);
	if (p->a)
		api->cublasLtMatrixLayoutDestroy(p->a);
	if (p->b)
		api->cublasLtMatrixLayoutDestroy(p->b);
	if (p->c)
		api->cublasLtMatrixLayoutDestroy(p->c);
}

void cuda_forget_products(struct cuda_backend *b)
{
	for (int i = 0; i < b->n_products; i++)
		cuda_forget_product(b->api, &b->products[i]);
	b->n_products = 0;
}

void cuda_use_candidate(struct kernel_context *context, int i)
{
	cuda_forget_products(cuda_backend(context));
	cuda_backend(context)->candidate = i;
}

void cuda_close_products(struct cuda_backend *b)
{
	cuda_forget_products(b);
	free(b->products);
	if (b->cublaslt)
		b->api->cublasLtDestroy(b->cublaslt);
}

static bool make_room(struct kernel_context *context)
{
	struct cuda_backend *b = cuda_backend(context);
	int room = b->room ? 2 * b->room : 32;
	struct cuda_product *more;

	if (b->n_products < b->room)
		return true;
	more = realloc(b->products, (size_t)room * sizeof(*more));
	if (!more)
		return error_set(&context->error, EXIT_CODE_ENVIRONMENT, "out of memory");
	b->products = more;
	b->room = room;
	return true;
}

bool cuda_open_cublaslt(struct kernel_context *context)
{
	struct cuda_backend *b = cuda_backend(context);

	if (!cuda_api_has_cublaslt(b->api))
		return error_set(&context->error, EXIT_CODE_ENVIRONMENT,
			"cuda: no cuBLASLt here (libcublasLt.so.13 or .12 was not found); "
			"install it, or add its folder to LD_LIBRARY_PATH");
	return b->cublaslt ||
	       check(context, b->api->cublasLtCreate(&b->cublaslt), "cublasLtCreate");
}

/* NULL with the context's error. */
static struct cuda_product *product(
	struct kernel_context *context, const struct key *key, const struct gemm_epilogue *e)
{
	struct cuda_backend *b = cuda_backend(context);
	struct cuda_product *p;

	for (int i = 0; i < b->n_products; i++)
		if (memcmp(&b->products[i].key, key, sizeof(*key)) == 0)
			return set_pointers(context, &b->products[i], e) ? &b->products[i] : NULL;
	if (!cuda_open_cublaslt(context) || !make_room(context))
		return NULL;
	p = &b->products[b->n_products];
	*p = (struct cuda_product){.key = *key};
	if (!cuda_describe_product(context, p) || !set_pointers(context, p, e) ||
		!choose(context, p)) {
		cuda_forget_product(b->api, p);
		return NULL;
	}
	b->n_products++;
	return p;
}

/* Without terms the product is 0, and cuBLASLt is not asked. */
static void write_zeros(struct kernel_context *context, const struct gemm *g)
{
	for (int64_t i = 0; i < g->m && !g->accumulate; i++)
		cuda_zero(context, g->c_dtype, (char *)g->c + i * g->ldc * dtype_bytes(g->c_dtype),
			g->n);
}

static void run(struct kernel_context *context, const struct cuda_product *p, const struct gemm *g,
	const struct gemm_epilogue *e)
{
	struct cuda_backend *b = cuda_backend(context);
	float one = 1.0f, beta = p->key.accumulate ? 1.0f : 0.0f;

	check(context,
		b->api->cublasLtMatmul(b->cublaslt, p->description, &one, g->b, p->a, g->a, p->b,
			&beta, e->addend ? e->addend : g->c, p->c, g->c, p->c, &p->algo,
			context->workspace, (size_t)context->workspace_bytes, context->stream),
		"cublasLtMatmul");
}

static bool multiply(
	struct kernel_context *context, const struct gemm *g, const struct gemm_epilogue *e)
{
	struct key key = key_of(context, g, e, least_alignment(g, e));
	const struct cuda_product *p = product(context, &key, e);

	/* An error is the context's business; the caller has nothing else to try. */
	if (!p || p->refused)
		return !p;
	run(context, p, g, e);
	return true;
}

void cuda_multiply_fp8(struct kernel_context *context, const struct gemm *g,
	const struct fp8_operands *o, bool now)
{
	static const struct gemm_epilogue none;
	struct key key = key_of(context, g, &none, least_alignment(g, &none));
	const struct cuda_product *p;

	key.a_format = (int8_t)o->how.a;
	key.b_format = (int8_t)o->how.b;
	key.by_rows = o->how.by_rows;
	p = product(context, &key, &none);
	if (!p || !now ||
		!set(context, p->description, MATMUL_DESC_A_SCALE_POINTER, &o->undo_b,
			sizeof(o->undo_b)) ||
		!set(context, p->description, MATMUL_DESC_B_SCALE_POINTER, &o->undo_a,
			sizeof(o->undo_a)))
		return;
	run(context, p, g, &none);
}

bool cuda_gemm_epilogue(
	struct kernel_context *context, const struct gemm *g, const struct gemm_epilogue *epilogue)
{
	if (g->m <= 0 || g->n <= 0 || context->error.message[0] != '\0')
		return true;
	return g->k > 0 && multiply(context, g, epilogue);
}

/* cuBLASLt's fast kernels want contiguous elements in multiples of 16 bytes, not rows and
 * pointers alone: on an H100 GPT-2's head of 50257 columns runs at a sixth of the speed of one of
 * 50256. So what is over becomes a product of its own, before the bulk. */
enum { PACK = 8, REST = 64, WORTH_CUTTING = 1024 };

static const void *moved(const struct gemm *g, const void *x, int64_t elements)
{
	return (const void *)((uintptr_t)x + (uintptr_t)(elements * dtype_bytes(g->dtype)));
}

/* Where to cut: the rest has at least REST, since the kernels for single columns cannot be launched
 * over 131072 rows (status 13). */
static int64_t before(int64_t extent)
{
	return (extent - REST) / REST * REST;
}

static bool to_cut(int64_t extent)
{
	return extent >= WORTH_CUTTING && extent % PACK != 0;
}

static bool cut(const struct gemm *g, struct gemm *rest, struct gemm *bulk)
{
	int64_t m = before(g->m), n = before(g->n), k = before(g->k);
	int64_t c_bytes = dtype_bytes(g->c_dtype);

	if (g->dtype != DTYPE_BF16 || (g->lda | g->ldb | g->ldc) % PACK != 0)
		return false;
	*rest = *bulk = *g;
	if (to_cut(g->n)) {
		bulk->n = n, rest->n = g->n - n;
		rest->b = moved(g, g->b, g->transpose_b ? n * g->ldb : n);
		rest->c = (void *)((uintptr_t)g->c + (uintptr_t)(n * c_bytes));
	} else if (to_cut(g->m) && g->transpose_a) {
		bulk->m = m, rest->m = g->m - m;
		rest->a = moved(g, g->a, m);
		rest->c = (void *)((uintptr_t)g->c + (uintptr_t)(m * g->ldc * c_bytes));
	} else if (to_cut(g->k) && (!g->transpose_a || g->transpose_b)) {
		bulk->k = k, rest->k = g->k - k;
		rest->a = moved(g, g->a, g->transpose_a ? k * g->lda : k);
		rest->b = moved(g, g->b, g->transpose_b ? k : k * g->ldb);
		bulk->accumulate = true; /* the small part is what is rounded twice */
	} else {
		return false;
	}
	return true;
}

void cuda_gemm(struct kernel_context *context, const struct gemm *g)
{
	static const struct gemm_epilogue none;
	struct gemm rest, bulk;

	if (g->m <= 0 || g->n <= 0 || context->error.message[0] != '\0')
		return;
	if (cut(g, &rest, &bulk)) {
		cuda_gemm(context, &rest);
		cuda_gemm(context, &bulk);
	} else if (g->k <= 0) {
		write_zeros(context, g);
	} else {
		multiply(context, g, &none);
	}
}

bool cuda_key_of_shape(const struct kernel_context *context, const struct gemm *g, struct key *key)
{
	static const struct gemm_epilogue none;
	struct gemm without = *g, rest, bulk;

	without.a = without.b = NULL;
	without.c = NULL;
	*key = key_of(context, g, &none, least_alignment(&without, &none));
	return g->m > 0 && g->n > 0 && g->k > 0 && !cut(g, &rest, &bulk);
}

/* For operands as aligned as the rows allow; others are prepared when they come. */
void cuda_prepare_gemm(struct kernel_context *context, const struct gemm *g)
{
	static const struct gemm_epilogue none;
	struct gemm rest, bulk;
	struct key key;

	if (cut(g, &rest, &bulk)) {
		cuda_prepare_gemm(context, &rest);
		cuda_prepare_gemm(context, &bulk);
	} else if (cuda_key_of_shape(context, g, &key)) {
		product(context, &key, &none);
	}
}

bool cuda_prepare_gemm_epilogue(
	struct kernel_context *context, const struct gemm *g, const struct gemm_epilogue *e)
{
	const struct key key = key_of(context, g, e, least_alignment(g, e));
	const struct cuda_product *p;

	if (g->m <= 0 || g->n <= 0)
		return true;
	if (g->k <= 0)
		return false;
	p = product(context, &key, e);
	return !p || !p->refused;
}
