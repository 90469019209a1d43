#include "tests/kernels/cuda_on_cpu/api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/bf16.h"
#include "kernels/cuda/device/device.h"
#include "tests/kernels/cuda_on_cpu/machine.h"
#include "tests/kernels/fake_cudnn.h"
#include "tests/kernels/reference/reference.h"

struct cuda_calls cuda_calls;

#define X(name, launch, threads) void cuda_on_cpu_##name(const void *arguments);
CUDA_KERNELS(X)
#undef X

static const struct kernel {
	const char *name;
	void (*run)(const void *arguments);
	int most_threads;
} kernels[CUDA_KERNEL_COUNT] = {
#define X(name, launch, threads) {#name, cuda_on_cpu_##name, threads},
	CUDA_KERNELS(X)
#undef X
};
static int shared_allowed[CUDA_KERNEL_COUNT];

enum {
	INVALID_VALUE = 1,
	NOT_FOUND = 500,
	SHARED_BY_DEFAULT = 48 << 10,
	SHARED_MOST = 227 << 10,
	MULTIPROCESSORS = 3,
	CACHE_BYTES = 24 << 10, /* so small that lookups go by slices of a row */
};

/* --- driver --- */

static int get_error_string(int result, const char **text)
{
	*text = result == NOT_FOUND ? "not found" : "invalid";
	return 0;
}

static int get_device(int *device)
{
	*device = 0;
	return 0;
}

/* One GPU, whose context, streams and events are names only. */
static char anything;

static int get_count(int *count)
{
	*count = 1;
	return 0;
}

static int get_ordinal(int *device, int ordinal)
{
	*device = ordinal;
	return 0;
}

static int get_name(char *name, int length, int device)
{
	(void)device;
	snprintf(name, (size_t)length, "CUDA on this CPU");
	return 0;
}

static int retain(void **context, int device)
{
	(void)device;
	*context = &anything;
	return 0;
}

static int release_context(int device)
{
	(void)device;
	return 0;
}

static int create_stream(void **stream, unsigned flags, int priority)
{
	(void)flags, (void)priority;
	*stream = &anything;
	return 0;
}

static int create_event(void **event, unsigned flags)
{
	(void)flags;
	*event = &anything;
	return 0;
}

static int record(void *event, void *stream)
{
	(void)event, (void)stream;
	return 0;
}

static int get_attribute(int *value, int attribute, int device)
{
	(void)device;
	*value = attribute == CUDA_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN ? SHARED_MOST
		 : attribute == CUDA_ATTRIBUTE_MULTIPROCESSORS      ? MULTIPROCESSORS
		 : attribute == CUDA_ATTRIBUTE_CACHE_BYTES          ? CACHE_BYTES
								    : 0;
	return 0;
}

/* A handle that there is nothing to do with. */
static int accept(void *handle)
{
	(void)handle;
	return 0;
}

static int no_time(float *milliseconds, void *start, void *end)
{
	(void)start, (void)end;
	*milliseconds = 1.0f;
	return 0;
}

static int allocate(uint64_t *address, size_t bytes)
{
	void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);

	*address = (uint64_t)(uintptr_t)memory;
	cuda_calls.allocations++;
	return memory == NULL;
}

static int release(uint64_t address)
{
	free((void *)(uintptr_t)address);
	cuda_calls.frees++;
	return 0;
}

static int copy(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
	(void)stream;
	memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
	return 0;
}

static int set_bytes(uint64_t to, unsigned char value, size_t bytes, void *stream)
{
	(void)stream;
	memset((void *)(uintptr_t)to, value, bytes);
	return 0;
}

static int load_library(void **library, const void *image, int *jit_options, void **jit_values,
	unsigned n_jit, int *options, void **values, unsigned n_options)
{
	(void)jit_options, (void)jit_values, (void)n_jit;
	(void)options, (void)values, (void)n_options;
	*library = (void *)(uintptr_t)image;
	return 0;
}

static int unload_library(void *library)
{
	(void)library;
	return 0;
}

static int get_kernel(void **kernel, void *library, const char *name)
{
	(void)library;
	for (int i = 0; i < CUDA_KERNEL_COUNT; i++)
		if (strcmp(kernels[i].name, name) == 0) {
			*kernel = (void *)(uintptr_t)&kernels[i];
			return 0;
		}
	return NOT_FOUND;
}

static int set_attribute(int attribute, int value, void *kernel, int device)
{
	(void)device;
	if (attribute != CUDA_FUNCTION_MAX_DYNAMIC_SHARED || value > SHARED_MOST)
		return INVALID_VALUE;
	shared_allowed[(const struct kernel *)kernel - kernels] = value;
	return 0;
}

static int launch(void *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
	unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
	void **extra)
{
	const struct kernel *k = kernel;

	(void)stream;
	cuda_calls.launches++;
	cuda_calls.blocks = (int64_t)grid_x * grid_y * grid_z;
	cuda_calls.hopper_launches += strstr(k->name, "hopper") != NULL;
	if (grid_x == 0 || grid_y == 0 || grid_y > 65535 || grid_z == 0 || grid_z > 65535 ||
		block_x == 0 || (int)block_x > k->most_threads || block_x % 32 != 0 ||
		block_y != 1 || block_z != 1 || extra ||
		((int)shared_bytes > SHARED_BY_DEFAULT &&
			(int)shared_bytes > shared_allowed[k - kernels])) {
		fprintf(stderr, "cuda on cpu: %s: wrong launch\n", k->name);
		return INVALID_VALUE;
	}
	cuda_run(k->run, arguments[0], (struct cuda_index){grid_x, grid_y, grid_z},
		(struct cuda_index){block_x, 1, 1}, shared_bytes);
	return 0;
}

/* --- cuBLASLt, by columns --- */

struct description {
	int32_t compute, transpose_a, transpose_b, epilogue, multiprocessors;
	void *bias; /* read, or the gradient that is written */
	void *aux;
	int64_t aux_ld;
	const float *scale_a, *scale_b; /* of operands in fp8 */
	int32_t scale_mode_a, scale_mode_b;
};

struct layout {
	int type;
	int64_t rows, columns, leading;
};

enum { E4M3 = 28, E5M2 = 29, OUTER_VEC = 3 };

static bool is_fp8(const struct layout *layout)
{
	return layout->type == E4M3 || layout->type == E5M2;
}

static void *copy_of(const void *from, size_t bytes)
{
	void *to = malloc(bytes);

	if (!to)
		abort();
	return memcpy(to, from, bytes);
}

static int lt_create(void **handle)
{
	*handle = malloc(1);
	return *handle == NULL;
}

static int lt_destroy(void *object)
{
	free(object);
	return 0;
}

static int description_create(void **description, int compute, int scale)
{
	const struct description fresh = {.compute = compute, .epilogue = 1};

	if ((compute != 68 && compute != 77) || scale != 0)
		return 7;
	*description = copy_of(&fresh, sizeof(fresh));
	return 0;
}

static int description_set(void *description, int attribute, const void *value, size_t bytes)
{
	struct description *d = description;
	const struct {
		int attribute;
		void *to;
		size_t bytes;
	} attributes[] = {{3, &d->transpose_a, 4}, {4, &d->transpose_b, 4}, {7, &d->epilogue, 4},
		{8, &d->bias, sizeof(void *)}, {11, &d->aux, sizeof(void *)}, {12, &d->aux_ld, 8},
		{15, &d->multiprocessors, 4}, {17, &d->scale_a, sizeof(void *)},
		{18, &d->scale_b, sizeof(void *)}, {31, &d->scale_mode_a, 4},
		{32, &d->scale_mode_b, 4}};

	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (attributes[i].attribute == attribute && attributes[i].bytes == bytes) {
			memcpy(attributes[i].to, value, bytes);
			return 0;
		}
	return 7;
}

static int layout_create(void **layout, int type, uint64_t rows, uint64_t columns, int64_t leading)
{
	const struct layout fresh = {type, (int64_t)rows, (int64_t)columns, leading};

	if ((type != 0 && type != 14 && !is_fp8(&fresh)) || leading < fresh.rows)
		return 7;
	*layout = copy_of(&fresh, sizeof(fresh));
	return 0;
}

static int preference_create(void **preference)
{
	return lt_create(preference);
}

static int preference_set(void *preference, int attribute, const void *value, size_t bytes)
{
	(void)preference, (void)value;
	return attribute == 1 ? bytes != 8 : bytes != 4 || attribute < 5 || attribute > 8;
}

/* An algorithm is its attributes, 32 bits each, of which the first is its number. */
enum { ATTRIBUTES = 9, SPLIT_K = 2, REDUCTION = 3, IN_PLACE = 1 };

static int32_t attribute_of(const struct cublaslt_algo *algo, int attribute)
{
	int32_t value;

	memcpy(&value, (const char *)algo->data + 4 * attribute, sizeof(value));
	return value;
}

static void put_attribute(struct cublaslt_algo *algo, int attribute, int32_t value)
{
	memcpy((char *)algo->data + 4 * attribute, &value, sizeof(value));
}

static size_t attribute_bytes(int attribute)
{
	return attribute < 7 ? 4 : 2;
}

static int algo_get(
	const struct cublaslt_algo *algo, int attribute, void *value, size_t bytes, size_t *written)
{
	int32_t word;

	if (attribute < 0 || attribute >= ATTRIBUTES || bytes != attribute_bytes(attribute))
		return 7;
	word = attribute_of(algo, attribute);
	memcpy(value, &word, bytes);
	*written = bytes;
	return 0;
}

static int algo_set(struct cublaslt_algo *algo, int attribute, const void *value, size_t bytes)
{
	int32_t word = 0;

	if (attribute < 1 || attribute >= ATTRIBUTES || bytes != attribute_bytes(attribute))
		return 7;
	memcpy(&word, value, bytes);
	put_attribute(algo, attribute, word);
	return 0;
}

static int algo_init(void *handle, int compute, int scale, int a, int b, int c, int d, int id,
	struct cublaslt_algo *algo)
{
	(void)handle, (void)scale;
	if ((compute != 68 && compute != 77) || a != b || c != d || id < 42 || id > 46)
		return 7;
	*algo = (struct cublaslt_algo){0};
	put_attribute(algo, 0, id);
	return 0;
}

/* 44 has no epilogues; 46 wants more memory than anybody gives. */
static int algo_check(void *handle, void *description, void *a, void *b, void *c, void *d,
	const struct cublaslt_algo *algo, struct cublaslt_heuristic *found)
{
	const struct description *how = description;
	int32_t id = attribute_of(algo, 0);

	(void)handle, (void)a, (void)b, (void)c, (void)d;
	*found = (struct cublaslt_heuristic){
		.algo = *algo, .workspace_bytes = id == 46 ? (size_t)1 << 40 : 0};
	return id == 44 && how->epilogue != 1 ? 15 : 0;
}

/* The second is refused when it is used, as some are; the fourth splits, and adds in place. */
static int heuristic(void *handle, void *description, void *a, void *b, void *c, void *d,
	void *preference, int wanted, struct cublaslt_heuristic *found, int *n_found)
{
	const struct description *how = description;

	(void)handle, (void)a, (void)b, (void)c, (void)d, (void)preference;
	cuda_calls.heuristics++;
	if (cuda_calls.without_epilogues && how->epilogue != 1)
		return 15;
	*n_found = wanted < 4 ? wanted : 4;
	for (int i = 0; i < *n_found; i++) {
		found[i] = (struct cublaslt_heuristic){0};
		put_attribute(&found[i].algo, 0, 42 + i);
		for (int j = 1; j < ATTRIBUTES; j++)
			put_attribute(&found[i].algo, j, i == 2 ? 100 + j : 0);
		put_attribute(&found[i].algo, SPLIT_K, i == 3 ? 4 : 1);
		put_attribute(&found[i].algo, REDUCTION, i == 3 ? IN_PLACE : 0);
	}
	return 0;
}

static enum dtype dtype_of(const struct layout *layout)
{
	return layout->type == 14 ? DTYPE_BF16 : DTYPE_FP32;
}

static double element(const void *x, const struct layout *l, bool transpose, int64_t i, int64_t j)
{
	int64_t row = transpose ? j : i, column = transpose ? i : j;

	if (row >= l->rows || column >= l->columns)
		abort();
	if (is_fp8(l))
		return reference_fp8_value(((const uint8_t *)x)[column * l->leading + row],
			l->type == E4M3 ? FP8_E4M3 : FP8_E5M2);
	return element_get(dtype_of(l), x, column * l->leading + row);
}

/* op(x)[rows, columns] as doubles, a column after the other. */
static double *columns_of(
	const void *x, const struct layout *l, bool transpose, int64_t rows, int64_t columns)
{
	double *all = malloc((size_t)(rows * columns + 1) * sizeof(*all));

	if (all == NULL)
		abort();
	for (int64_t j = 0; j < columns; j++)
		for (int64_t i = 0; i < rows; i++)
			all[j * rows + i] = element(x, l, transpose, i, j);
	return all;
}

/* As Hopper has them: both operands in fp8, not both in e5m2, along k, aligned, each with a scale;
 * and no scale of others. */
static bool fp8_is_right(const struct description *how, const void *a, const struct layout *la,
	const void *b, const struct layout *lb, const void *d, const struct layout *ld)
{
	int64_t aligned = (int64_t)((uintptr_t)a | (uintptr_t)b | (uintptr_t)d) | la->leading |
			  lb->leading | ld->leading * dtype_bytes(dtype_of(ld)) | la->columns |
			  lb->columns;
	bool modes = how->scale_mode_a == how->scale_mode_b &&
		     (how->scale_mode_a == 0 || how->scale_mode_a == OUTER_VEC);

	if (!is_fp8(la) && !is_fp8(lb))
		return how->scale_a == NULL && how->scale_b == NULL && how->scale_mode_a == 0 &&
		       how->scale_mode_b == 0;
	return is_fp8(la) && is_fp8(lb) && (la->type == E4M3 || lb->type == E4M3) &&
	       how->transpose_a == 1 && how->transpose_b == 0 && how->epilogue == 1 &&
	       aligned % 16 == 0 && how->scale_a != NULL && how->scale_b != NULL && modes;
}

/* The product of row i and column j of D added to `sum`. */
static double add_terms(const struct description *how, double sum, const double *left,
	const double *right, int64_t k, int64_t i, int64_t j)
{
	bool vectors = how->scale_mode_a == OUTER_VEC;
	double terms = how->scale_a == NULL ? sum : 0;

	for (int64_t p = 0; p < k; p++)
		terms += left[p] * right[p];
	if (how->scale_a == NULL)
		return terms;
	return sum + terms * how->scale_b[vectors ? j : 0] * how->scale_a[vectors ? i : 0];
}

/* Sums over k of what stands in the columns of op(B). */
static void sum_columns(
	const struct description *how, const double *b, const struct layout *ld, int64_t k)
{
	for (int64_t j = 0; j < ld->columns; j++) {
		double sum = 0;

		for (int64_t p = 0; p < k; p++)
			sum += b[j * k + p];
		element_put(dtype_of(ld), how->bias, j, (float)sum);
	}
}

/* Returns the slope of 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3). */
static double gelu_slope(double x)
{
	double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));

	return 0.5 * (1 + t) +
	       0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static int matmul(void *handle, void *description, const void *alpha, const void *a, void *layout_a,
	const void *b, void *layout_b, const void *beta, const void *c, void *layout_c, void *d,
	void *layout_d, const struct cublaslt_algo *algo, void *workspace, size_t workspace_bytes,
	void *stream)
{
	const struct description *how = description;
	const struct layout *la = layout_a, *lb = layout_b, *ld = layout_d;
	int64_t k = how->transpose_a ? la->rows : la->columns;
	bool gelu = how->epilogue & 32;

	(void)handle, (void)stream, (void)workspace_bytes;
	cuda_calls.products++;
	cuda_calls.multiprocessors = how->multiprocessors;
	cuda_calls.e5m2 = (la->type == E5M2) + 2 * (lb->type == E5M2);
	cuda_calls.algorithm = attribute_of(algo, 0);
	if (cuda_calls.algorithm < 42 || cuda_calls.algorithm == 43 || !workspace ||
		layout_c != layout_d || *(const float *)alpha != 1.0f ||
		!fp8_is_right(how, a, la, b, lb, d, ld) ||
		k != (how->transpose_b ? lb->columns : lb->rows))
		return 7;
	/* Both by their sums: rows of op(A), columns of op(B). */
	double *left = columns_of(a, la, !how->transpose_a, k, ld->rows);
	double *right = columns_of(b, lb, how->transpose_b, k, ld->columns);
	if (how->epilogue == 512)
		sum_columns(how, right, ld, k);
	for (int64_t j = 0; j < ld->columns; j++)
		for (int64_t i = 0; i < ld->rows; i++) {
			double sum = (double)*(const float *)beta == 0.0
					     ? 0.0
					     : element(c, ld, false, i, j);

			sum = add_terms(how, sum, left + i * k, right + j * k, k, i, j);
			if (how->epilogue & 4)
				sum += element_get(dtype_of(ld), how->bias, i);
			if (how->epilogue & 64)
				sum *= gelu_slope(
					element_get(dtype_of(ld), how->aux, j * how->aux_ld + i));
			else if (how->epilogue & 128)
				element_put(
					dtype_of(ld), how->aux, j * how->aux_ld + i, (float)sum);
			if (gelu)
				sum = 0.5 * sum *
				      (1.0 + tanh(0.7978845608028654 *
						     (sum + 0.044715 * sum * sum * sum)));
			element_put(dtype_of(ld), d, j * ld->leading + i, (float)sum);
		}
	free(left);
	free(right);
	return 0;
}

static size_t version(void)
{
	return cuda_calls.version > 0 ? cuda_calls.version : 130000;
}

const struct cuda_api cuda_on_cpu = {
	.cuGetErrorString = get_error_string,
	.cuCtxGetDevice = get_device,
	.cuDeviceGetAttribute = get_attribute,
	.cuMemAlloc = allocate,
	.cuMemFree = release,
	.cuMemcpyAsync = copy,
	.cuMemsetD8Async = set_bytes,
	.cuStreamSynchronize = accept,
	.cuDeviceGetCount = get_count,
	.cuDeviceGet = get_ordinal,
	.cuDeviceGetName = get_name,
	.cuDevicePrimaryCtxRetain = retain,
	.cuDevicePrimaryCtxRelease = release_context,
	.cuCtxSetCurrent = accept,
	.cuStreamCreateWithPriority = create_stream,
	.cuStreamDestroy = accept,
	.cuEventCreate = create_event,
	.cuEventDestroy = accept,
	.cuEventRecord = record,
	.cuEventSynchronize = accept,
	.cuEventElapsedTime = no_time,
	.cuLibraryLoadData = load_library,
	.cuLibraryUnload = unload_library,
	.cuLibraryGetKernel = get_kernel,
	.cuKernelSetAttribute = set_attribute,
	.cuLaunchKernel = launch,
	.cublasLtCreate = lt_create,
	.cublasLtDestroy = lt_destroy,
	.cublasLtMatmulDescCreate = description_create,
	.cublasLtMatmulDescDestroy = lt_destroy,
	.cublasLtMatmulDescSetAttribute = description_set,
	.cublasLtMatrixLayoutCreate = layout_create,
	.cublasLtMatrixLayoutDestroy = lt_destroy,
	.cublasLtMatmulPreferenceCreate = preference_create,
	.cublasLtMatmulPreferenceDestroy = lt_destroy,
	.cublasLtMatmulPreferenceSetAttribute = preference_set,
	.cublasLtMatmulAlgoGetHeuristic = heuristic,
	.cublasLtMatmulAlgoInit = algo_init,
	.cublasLtMatmulAlgoConfigSetAttribute = algo_set,
	.cublasLtMatmulAlgoConfigGetAttribute = algo_get,
	.cublasLtMatmulAlgoCheck = algo_check,
	.cublasLtMatmul = matmul,
	.cublasLtGetVersion = version,
	.cudnn = fake_cudnn_find,
	.image = "the kernels of kernels.cpp",
	.image_bytes = 1,
};
