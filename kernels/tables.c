/* Which tables there are, and which is the best that this machine can run. */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/kernels.h"

#define LEVELS_OF(level)                                                                           \
	extern const struct kernels cpu_builtin_##level;                                           \
	extern const struct kernels cpu_onednn_##level;                                            \
	extern const struct kernels cpu_cblas_##level;
LEVELS_OF(base)
LEVELS_OF(v3)
LEVELS_OF(v4)
LEVELS_OF(v4bf16)
#undef LEVELS_OF

struct level {
	const struct kernels *builtin, *onednn, *cblas;
	bool (*supported)(void);
};

static bool always(void)
{
	return true;
}

#if HAVE_V3 || HAVE_V4
static bool has_v3(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	       __builtin_cpu_supports("bmi2");
}
#endif

#if HAVE_V4
static bool has_v4(void)
{
	return has_v3() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

#if HAVE_V4BF16
static bool has_v4bf16(void)
{
	return has_v4() && __builtin_cpu_supports("avx512bf16");
}
#endif

#if HAVE_ONEDNN
#define ONEDNN(level) .onednn = &cpu_onednn_##level,
#else
#define ONEDNN(level)
#endif
#if HAVE_CBLAS
#define CBLAS(level) .cblas = &cpu_cblas_##level,
#else
#define CBLAS(level)
#endif
#define LEVEL(level, test)                                                                         \
	{.builtin = &cpu_builtin_##level, ONEDNN(level) CBLAS(level).supported = test},

/* Best first. */
static const struct level levels[] = {
#if HAVE_V4BF16
	LEVEL(v4bf16, has_v4bf16)
#endif
#if HAVE_V4
		LEVEL(v4, has_v4)
#endif
#if HAVE_V3
			LEVEL(v3, has_v3)
#endif
				LEVEL(base, always)};

enum { LEVEL_COUNT = sizeof(levels) / sizeof(levels[0]), MOST_TABLES = LEVEL_COUNT + 4 };

static const struct kernels *tables[MOST_TABLES];
static int n_tables;

static void append(const struct kernels *table)
{
	if (table)
		tables[n_tables++] = table;
}

static void list_tables(void)
{
	int best = 0;

	while (!levels[best].supported())
		best++;
	for (int i = best; i < LEVEL_COUNT; i++)
		append(levels[i].builtin);
	append(levels[best].onednn);
	append(levels[best].cblas);
}

/* Ranks may be threads of one process. */
const struct kernels *const *kernels_all(void)
{
	static pthread_once_t listed = PTHREAD_ONCE_INIT;

	pthread_once(&listed, list_tables);
	return tables;
}

void kernels_add(const struct kernels *table)
{
	kernels_all();
	append(table);
}

const struct kernels *kernels_cpu(void)
{
	return kernels_all()[0];
}

const struct kernels *kernels_by_name(const char *name)
{
	const struct kernels *const *table = kernels_all();

	if (strcmp(name, "cpu") == 0)
		return tables[0];
	if (strcmp(name, "cuda") == 0)
		return kernels_cuda();
	while (*table && strcmp((*table)->name, name) != 0)
		table++;
	return *table;
}
