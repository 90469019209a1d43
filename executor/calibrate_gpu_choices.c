/* Which way of cuBLASLt's is fastest for a product. Its first proposal is what it thinks best
 * without having tried; nothing is tried while a model trains, where the outcome of a race would
 * decide over bits. So it is tried here, and what won is written down. */
#include "executor/calibrate_gpu.h"

#include <string.h>

enum { WAYS = 8, ROUNDS = 3 };

/* What is faster by less may be so by chance. */
static const double worth = 1.02;

static struct gemm_choice choice_of(const struct gemm *g, const struct gemm_way *way)
{
	return (struct gemm_choice){.dtype = g->dtype,
		.c_dtype = g->c_dtype,
		.m = g->m,
		.n = g->n,
		.k = g->k,
		.transpose_a = g->transpose_a,
		.transpose_b = g->transpose_b,
		.way = *way};
}

/* NULL: as the library proposes first. */
static bool time_way(struct gpu_bench *g, struct gemm_case *c, const struct gemm_way *way,
	double *seconds, struct error *error)
{
	const struct device_kernels *device = g->base.kernels->device;
	struct gemm_choice choice;

	if (way != NULL)
		choice = choice_of(&c->gemm, way);
	device->choose_gemms(&g->base.context, way != NULL ? &choice : NULL, way != NULL ? 1 : 0);
	bool ok = gpu_time(g, gpu_run_gemm, c, seconds, error);
	device->choose_gemms(&g->base.context, NULL, 0);
	return ok;
}

/* Of samples as short as they may be. A way that the library then refuses is none. */
static bool find_fastest(struct gpu_bench *g, struct gemm_case *c, const struct gemm_way *ways,
	int n, int *fastest, struct error *error)
{
	double budget = g->base.budget, least = 0;
	struct error refusal = {0};

	*fastest = -1;
	g->base.budget = 0;
	for (int i = 0; i < n; i++) {
		double seconds;

		if (!time_way(g, c, &ways[i], &seconds, &refusal)) {
			/* Not what an event says: only the library's word is forgiven. */
			if (g->base.context.error.message[0] == '\0') {
				*error = refusal;
				return false;
			}
			g->base.context.error = (struct error){0};
			continue;
		}
		if (*fastest >= 0 && seconds >= least)
			continue;
		least = seconds;
		*fastest = i;
	}
	g->base.budget = budget;
	return true;
}

/* The clock of a GPU falls while it is measured: both in turn, and the least of each. */
static bool race(struct gpu_bench *g, struct gemm_case *c, const struct gemm_way *way,
	double *first, double *other, struct error *error)
{
	for (int i = 0; i < ROUNDS; i++) {
		double one, two;

		if (!time_way(g, c, NULL, &one, error) || !time_way(g, c, way, &two, error))
			return false;
		*first = i == 0 || one < *first ? one : *first;
		*other = i == 0 || two < *other ? two : *other;
	}
	return true;
}

static void keep(struct gpu_bench *g, const struct gemm *gemm, enum product_form form,
	const struct gemm_way *way, double gain)
{
	struct calibration *c = g->base.calibration;
	const struct calibration_choice choice = {.form = form,
		.dtype = gemm->dtype,
		.result = gemm->c_dtype,
		.m = gemm->m,
		.n = gemm->n,
		.k = gemm->k,
		.gain = gain,
		.algorithm = way->algorithm,
		.tile = way->tile,
		.stages = way->stages,
		.split_k = way->split_k,
		.reduction = way->reduction,
		.swizzle = way->swizzle,
		.custom = way->custom,
		.inner_shape = way->inner_shape,
		.cluster = way->cluster};

	if (c->n_choices == CALIBRATION_CHOICES || !calibration_add_choice(c, &choice))
		return;
	c->choices_library = g->base.kernels->device->gemm_version(&g->base.context);
	bench_say(&g->base,
		"    %s, %lld x %lld x %lld: algorithm %d, tile %d, is %.1f %% faster than the "
		"first proposal",
		product_form_names[form], (long long)gemm->m, (long long)gemm->n,
		(long long)gemm->k, way->algorithm, way->tile, 100 * (gain - 1));
}

bool calibrate_gpu_choice(struct gpu_bench *g, struct gemm_case *c, enum product_form form,
	double first, double *chosen, struct error *error)
{
	struct gemm_way ways[WAYS];
	double again, other;
	int fastest;

	*chosen = first;
	/* In fp32 few train, and slowly. */
	if (!g->base.options->choose || c->gemm.dtype != DTYPE_BF16)
		return true;
	int n = g->base.kernels->device->gemm_ways(&g->base.context, &c->gemm, ways, WAYS);
	if (!find_fastest(g, c, ways, n, &fastest, error))
		return false;
	if (fastest < 0)
		return true;
	if (!race(g, c, &ways[fastest], &again, &other, error))
		return false;
	if (again < worth * other)
		return true;
	keep(g, &c->gemm, form, &ways[fastest], again / other);
	*chosen = first * other / again;
	return true;
}
