/* oneDNN's matmul, by the C API of version 2 or 3, which is loaded when a context is opened: the
 * library takes milliseconds that every start would pay. One primitive per shape is built on first
 * use and kept in the context; its scratchpad is our workspace. Executing a primitive still
 * allocates inside oneDNN (measured with 2.6.3: 6 to 8 calls and 264 bytes, 74 kB for an odd shape
 * with padded rows), which is why this is not the default. */
#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "kernels/common/common.h"
#include "kernels/cpu/library.h"
#include "kernels/cpu/threads.h"

/* The file is that of the version whose header this is compiled with. */
#define FILE_OF(major)   "libdnnl.so." DIGITS_OF(major)
#define DIGITS_OF(major) #major

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t memory_desc;
#define VERSION_FUNCTIONS(X)                                                                       \
	X(matmul_primitive_desc_create)                                                            \
	X(memory_desc_create_with_strides)                                                         \
	X(memory_desc_destroy)
#else
typedef const dnnl_memory_desc_t *memory_desc;
#define VERSION_FUNCTIONS(X)                                                                       \
	X(matmul_desc_init)                                                                        \
	X(memory_desc_init_by_strides)                                                             \
	X(primitive_desc_create)
#endif

/* X(name without dnnl_) */
#define FUNCTIONS(X)                                                                               \
	VERSION_FUNCTIONS(X)                                                                       \
	X(engine_create)                                                                           \
	X(engine_destroy)                                                                          \
	X(memory_create)                                                                           \
	X(memory_desc_get_size)                                                                    \
	X(memory_destroy)                                                                          \
	X(memory_set_data_handle)                                                                  \
	X(post_ops_append_sum)                                                                     \
	X(post_ops_create)                                                                         \
	X(post_ops_destroy)                                                                        \
	X(primitive_attr_create)                                                                   \
	X(primitive_attr_destroy)                                                                  \
	X(primitive_attr_set_post_ops)                                                             \
	X(primitive_attr_set_scratchpad_mode)                                                      \
	X(primitive_create)                                                                        \
	X(primitive_desc_destroy)                                                                  \
	X(primitive_desc_query_md)                                                                 \
	X(primitive_destroy)                                                                       \
	X(primitive_execute)                                                                       \
	X(stream_create)                                                                           \
	X(stream_destroy)                                                                          \
	X(stream_wait)

struct api {
#define X(name) __typeof__(dnnl_##name) *name;
	FUNCTIONS(X)
#undef X
};

static struct api dnnl;

static void load(struct error *error)
{
#define X(name) {"dnnl_" #name, offsetof(struct api, name)},
	static const struct symbol symbols[] = {FUNCTIONS(X)};
#undef X
	static const char file[] = FILE_OF(DNNL_VERSION_MAJOR);
	const char *missing = library_open(file, symbols, COUNT_OF(symbols), &dnnl);

	if (missing != NULL)
		error_set(error, EXIT_CODE_ENVIRONMENT,
			"oneDNN cannot be used here: "
			"%s was not found; install libdnnl%s, or take the kernels `cpu`",
			missing, strrchr(file, '.') + 1);
}

static struct shared_library library = LIBRARY(load, &dnnl);

bool onednn_open(struct error *error)
{
	return library_table(&library, error) != NULL;
}

enum { A, B, C, SCRATCHPAD, ARGUMENTS };

struct prepared {
	struct gemm shape;          /* pointers NULL */
	dnnl_primitive_t primitive; /* NULL: oneDNN cannot do this one */
	dnnl_memory_t memory[ARGUMENTS];
};

struct cache {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	struct prepared *prepared;
	int count, capacity;
};

static struct cache *open_cache(struct kernel_context *context)
{
	struct cache *cache = context->backend;

	if (cache)
		return cache;
	cache = calloc(1, sizeof(*cache));
	if (!cache)
		base_out_of_memory(sizeof(*cache));
	context->backend = cache;
	if (dnnl.engine_create(&cache->engine, dnnl_cpu, 0) != dnnl_success ||
		dnnl.stream_create(&cache->stream, cache->engine, dnnl_stream_default_flags) !=
			dnnl_success)
		cache->stream = NULL;
	return cache;
}

void onednn_close(struct kernel_context *context)
{
	struct cache *cache = context->backend;

	for (int i = 0; cache && i < cache->count; i++) {
		for (int j = 0; j < ARGUMENTS; j++)
			dnnl.memory_destroy(cache->prepared[i].memory[j]);
		dnnl.primitive_destroy(cache->prepared[i].primitive);
	}
	if (cache) {
		dnnl.stream_destroy(cache->stream);
		dnnl.engine_destroy(cache->engine);
		free(cache->prepared);
	}
	free(cache);
	context->backend = NULL;
}

/* Returns what tells two products apart for oneDNN. */
static struct gemm shape_of(const struct gemm *g)
{
	struct gemm shape;

	memset(&shape, 0, sizeof(shape)); /* padding too: shapes are compared as bytes */
	shape.m = g->m;
	shape.n = g->n;
	shape.k = g->k;
	shape.lda = g->lda;
	shape.ldb = g->ldb;
	shape.ldc = g->ldc;
	shape.transpose_a = g->transpose_a;
	shape.transpose_b = g->transpose_b;
	shape.accumulate = g->accumulate;
	shape.dtype = g->dtype;
	shape.c_dtype = g->c_dtype;
	return shape;
}

static dnnl_primitive_attr_t attributes(bool accumulate)
{
	dnnl_primitive_attr_t attr = NULL;
	dnnl_post_ops_t ops = NULL;

	if (dnnl.primitive_attr_create(&attr) != dnnl_success)
		return NULL;
	dnnl.primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
	if (accumulate && dnnl.post_ops_create(&ops) == dnnl_success) {
#if DNNL_VERSION_MAJOR >= 3
		dnnl.post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
#else
		dnnl.post_ops_append_sum(ops, 1.0f);
#endif
		dnnl.primitive_attr_set_post_ops(attr, ops);
		dnnl.post_ops_destroy(ops);
	}
	return attr;
}

/* A matrix of rows x columns whose stored rows are `ld` apart; stored the other way round when
 * transposed. */
static void strides_of(dnnl_dims_t strides, int64_t ld, bool transpose)
{
	strides[0] = transpose ? 1 : ld;
	strides[1] = transpose ? ld : 1;
}

static dnnl_data_type_t type_of(enum dtype dtype)
{
	return dtype == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_primitive_desc_t describe(struct cache *cache, const struct gemm *g)
{
	dnnl_primitive_attr_t attr = attributes(g->accumulate);
	dnnl_dims_t dims[3] = {{g->m, g->k}, {g->k, g->n}, {g->m, g->n}}, strides[3];
	dnnl_memory_desc_t md[3];
	dnnl_data_type_t types[3] = {type_of(g->dtype), type_of(g->dtype), type_of(g->c_dtype)};
	dnnl_primitive_desc_t pd = NULL;

	strides_of(strides[A], g->lda, g->transpose_a);
	strides_of(strides[B], g->ldb, g->transpose_b);
	strides_of(strides[C], g->ldc, false);
#if DNNL_VERSION_MAJOR >= 3
	for (int i = 0; i < 3; i++)
		dnnl.memory_desc_create_with_strides(&md[i], 2, dims[i], types[i], strides[i]);
	if (dnnl.matmul_primitive_desc_create(
		    &pd, cache->engine, md[A], md[B], NULL, md[C], attr) != dnnl_success)
		pd = NULL;
	for (int i = 0; i < 3; i++)
		dnnl.memory_desc_destroy(md[i]);
#else
	dnnl_matmul_desc_t matmul;

	for (int i = 0; i < 3; i++)
		dnnl.memory_desc_init_by_strides(&md[i], 2, dims[i], types[i], strides[i]);
	if (dnnl.matmul_desc_init(&matmul, &md[A], &md[B], NULL, &md[C]) != dnnl_success ||
		dnnl.primitive_desc_create(&pd, &matmul, attr, cache->engine, NULL) != dnnl_success)
		pd = NULL;
#endif
	dnnl.primitive_attr_destroy(attr);
	return pd;
}

static bool create_memory(struct cache *cache, struct prepared *p, dnnl_primitive_desc_t pd)
{
	static const dnnl_query_t queries[ARGUMENTS] = {dnnl_query_src_md, dnnl_query_weights_md,
		dnnl_query_dst_md, dnnl_query_scratchpad_md};

	for (int i = 0; i < ARGUMENTS; i++) {
		memory_desc md = dnnl.primitive_desc_query_md(pd, queries[i], 0);

		if (dnnl.memory_create(&p->memory[i], md, cache->engine, DNNL_MEMORY_NONE) !=
			dnnl_success)
			return false;
	}
	return dnnl.memory_desc_get_size(dnnl.primitive_desc_query_md(
		       pd, dnnl_query_scratchpad_md, 0)) <= KERNELS_WORKSPACE_BYTES;
}

static struct prepared *build(struct cache *cache, const struct gemm *shape)
{
	struct prepared *p;
	dnnl_primitive_desc_t pd;

	cache->prepared = array_grow(
		cache->prepared, &cache->capacity, cache->count + 1, sizeof(*cache->prepared));
	p = &cache->prepared[cache->count++];
	memset(p, 0, sizeof(*p));
	p->shape = *shape;
	pd = cache->stream ? describe(cache, shape) : NULL;
	if (pd && create_memory(cache, p, pd) &&
		dnnl.primitive_create(&p->primitive, pd) != dnnl_success)
		p->primitive = NULL;
	if (pd)
		dnnl.primitive_desc_destroy(pd);
	return p;
}

/* oneDNN takes as many threads as OpenMP would give it: both when it builds and when it runs. */
static void set_threads(const struct kernel_context *context)
{
#if defined(_OPENMP)
	omp_set_num_threads(context->threads > 1 ? context->threads : 1);
#else
	(void)context;
#endif
}

static struct prepared *find(struct kernel_context *context, const struct gemm *g)
{
	struct cache *cache = open_cache(context);
	struct gemm shape = shape_of(g);

	set_threads(context);
	for (int i = 0; i < cache->count; i++) {
		if (memcmp(&cache->prepared[i].shape, &shape, sizeof(shape)) == 0)
			return &cache->prepared[i];
	}
	return build(cache, &shape);
}

void onednn_prepare(struct kernel_context *context, const struct gemm *g)
{
	find(context, g);
}

/* The C API takes pointers to mutable data for inputs too. */
static void *mutable(const void *p)
{
	void *q;

	memcpy(&q, &p, sizeof(q));
	return q;
}

bool onednn_gemm(struct kernel_context *context, const struct gemm *g)
{
	struct prepared *p = find(context, g);
	struct cache *cache = context->backend;
	dnnl_exec_arg_t arguments[ARGUMENTS] = {{DNNL_ARG_SRC, p->memory[A]},
		{DNNL_ARG_WEIGHTS, p->memory[B]}, {DNNL_ARG_DST, p->memory[C]},
		{DNNL_ARG_SCRATCHPAD, p->memory[SCRATCHPAD]}};

	if (!p->primitive || g->m <= 0 || g->n <= 0 || g->k <= 0)
		return false;
	dnnl.memory_set_data_handle(p->memory[A], mutable(g->a));
	dnnl.memory_set_data_handle(p->memory[B], mutable(g->b));
	dnnl.memory_set_data_handle(p->memory[C], g->c);
	dnnl.memory_set_data_handle(p->memory[SCRATCHPAD], context->workspace);
	return dnnl.primitive_execute(p->primitive, cache->stream, ARGUMENTS, arguments) ==
		       dnnl_success &&
	       dnnl.stream_wait(cache->stream) == dnnl_success;
}
