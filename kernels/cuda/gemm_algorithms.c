/* cuBLASLt's algorithms as numbers: cublasLtMatmulAlgo_t is opaque, but its attributes can be read,
 * kept in a file and set again in another process. Only what was rebuilt so is ever timed or used,
 * so that both see the same. */
#include <string.h>

#include "kernels/cuda/gemm.h"

/* CUBLASLT_REDUCTION_SCHEME_INPLACE: the parts of a split-K GEMM are added to the result one after
 * the other. */
enum { REDUCTION_IN_PLACE = 1 };

/* Lists attributes of cublasLtMatmulAlgoConfigAttributes_t, and how many bytes each has. */
static const struct attribute {
	int number;
	size_t bytes, offset;
} attributes[] = {
	{0, 4, offsetof(struct gemm_algorithm, id)}, /* can be read only */
	{1, 4, offsetof(struct gemm_algorithm, tile)},
	{2, 4, offsetof(struct gemm_algorithm, split_k)},
	{3, 4, offsetof(struct gemm_algorithm, reduction)},
	{4, 4, offsetof(struct gemm_algorithm, swizzle)},
	{5, 4, offsetof(struct gemm_algorithm, custom)},
	{6, 4, offsetof(struct gemm_algorithm, stages)},
	{7, 2, offsetof(struct gemm_algorithm, inner_shape)},
	{8, 2, offsetof(struct gemm_algorithm, cluster)},
};

static bool take_apart(const struct cuda_api *api, const struct cublaslt_algo *algo,
	struct gemm_algorithm *algorithm)
{
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		const struct attribute *a = &attributes[i];
		int32_t *number = (int32_t *)((char *)algorithm + a->offset);
		uint16_t half = 0;
		size_t written = 0;
		void *value = a->bytes == 2 ? (void *)&half : (void *)number;

		*number = 0;
		if (api->cublasLtMatmulAlgoConfigGetAttribute(
			    algo, a->number, value, a->bytes, &written) != 0)
			return false;
		if (a->bytes == 2)
			*number = half;
	}
	return true;
}

/* False, and no error, where this cuBLASLt does not have it for this GEMM. */
static bool put_together(struct kernel_context *context, struct cuda_product *p,
	const struct gemm_algorithm *algorithm)
{
	const struct cuda_backend *b = cuda_backend(context);
	const struct key *key = &p->key;
	int type = cuda_type((enum dtype)key->dtype), c_type = cuda_type((enum dtype)key->c_dtype);
	struct cublaslt_algo algo = {0};
	struct cublaslt_heuristic found = {0};

	if (b->api->cublasLtMatmulAlgoInit(b->cublaslt, CUBLAS_COMPUTE_32F, CUDA_R_32F, type, type,
		    c_type, c_type, algorithm->id, &algo) != 0)
		return false;
	for (size_t i = 1; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		const struct attribute *a = &attributes[i];
		const int32_t *number = (const int32_t *)((const char *)algorithm + a->offset);
		uint16_t half = (uint16_t)*number;
		const void *value = a->bytes == 2 ? (const void *)&half : (const void *)number;

		if (b->api->cublasLtMatmulAlgoConfigSetAttribute(
			    &algo, a->number, value, a->bytes) != 0)
			return false;
	}
	if (b->api->cublasLtMatmulAlgoCheck(
		    b->cublaslt, p->description, p->a, p->b, p->c, p->c, &algo, &found) != 0 ||
		found.state != 0 || (int64_t)found.workspace_bytes > context->workspace_bytes)
		return false;
	p->algo = algo;
	return true;
}

static bool is_for(const struct gemm_choice *c, const struct key *key)
{
	return c->m == key->m && c->n == key->n && c->k == key->k && (int)c->dtype == key->dtype &&
	       (int)c->c_dtype == key->c_dtype && c->transpose_a == key->transpose_a &&
	       c->transpose_b == key->transpose_b;
}

bool cuda_take_choice(struct kernel_context *context, struct cuda_product *p)
{
	const struct cuda_backend *b = cuda_backend(context);

	if (p->key.alignment != 16)
		return false;
	for (int i = 0; i < b->n_choices; i++) {
		if (!is_for(&b->choices[i], &p->key))
			continue;
		if (!put_together(context, p, &b->choices[i].algorithm))
			return false;
		b->choices[i].taken = true;
		return true;
	}
	return false;
}

/* Parts that are added in place are rounded in between, in an order that varies. */
static bool repeats(const struct gemm_algorithm *algorithm)
{
	return algorithm->split_k <= 1 || algorithm->reduction != REDUCTION_IN_PLACE;
}

static int keep_algorithms(struct kernel_context *context, struct cuda_product *p,
	const struct cublaslt_heuristic *found, int n, struct gemm_algorithm *algorithms, int most)
{
	const struct cuda_api *api = cuda_backend(context)->api;
	int kept = 0;

	for (int i = 0; i < n && kept < most; i++)
		if (found[i].state == 0 && take_apart(api, &found[i].algo, &algorithms[kept]) &&
			repeats(&algorithms[kept]) && put_together(context, p, &algorithms[kept]))
			kept++;
	return kept;
}

int cuda_gemm_algorithms(struct kernel_context *context, const struct gemm *g,
	struct gemm_algorithm *algorithms, int most)
{
	struct cublaslt_heuristic found[MOST_CANDIDATES] = {0};
	struct cuda_product p = {0};
	int n = 0, status = 0, kept = 0;

	if (context->error.message[0] != '\0' || !cuda_key_of_shape(context, g, &p.key) ||
		!cuda_open_cublaslt(context))
		return 0;
	if (cuda_describe_product(context, &p) &&
		cuda_propose(context, &p, MOST_CANDIDATES, found, &n, &status) && status == 0)
		kept = keep_algorithms(context, &p, found, n, algorithms, most);
	cuda_forget_product(cuda_backend(context)->api, &p);
	return kept;
}

void cuda_choose_gemms(struct kernel_context *context, struct gemm_choice *choices, int n)
{
	struct cuda_backend *b = cuda_backend(context);

	cuda_forget_products(b);
	b->choices = choices;
	b->n_choices = n;
}

int64_t cuda_gemm_version(struct kernel_context *context)
{
	const struct cuda_api *api = cuda_backend(context)->api;

	return cuda_api_has_cublaslt(api) ? (int64_t)api->cublasLtGetVersion() : 0;
}
