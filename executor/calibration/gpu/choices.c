/* Which way of cuBLASLt's is fastest for a product. Its first proposal is what it thinks best
 * without having tried. */
#include "executor/calibration/gpu/bench.h"

#include <string.h>

enum { WAYS = 8 };

/* A product, and its ways. */
struct subject {
	struct gemm_case *product;
	struct gemm_way ways[WAYS];
};

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

/* Only the library's word is forgiven, not what an event says. */
static bool time_way(const struct gpu_contest *contest, int way, double *seconds, bool *refused,
	struct error *error)
{
	struct gpu_bench *g = contest->gpu;
	struct kernel_context *context = &g->base.context;
	const struct device_kernels *device = g->base.kernels->device;
	const struct subject *s = contest->subject;
	struct gemm_choice choice;
	struct error failure = {0};
	int chosen = way != GPU_CONTEST_FIRST;

	if (chosen)
		choice = choice_of(&s->product->gemm, &s->ways[way]);
	device->choose_gemms(context, chosen ? &choice : NULL, chosen);
	bool ok = gpu_time(g, gpu_run_gemm, s->product, seconds, &failure);
	device->choose_gemms(context, NULL, 0);
	*refused = !ok && chosen && context->error.message[0] != '\0';
	if (*refused)
		context->error = (struct error){0};
	else if (!ok)
		*error = failure;
	return ok || *refused;
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
	struct subject subject = {.product = c};
	const struct gpu_contest contest = {g, &subject, time_way};
	double gain;
	int fastest;

	*chosen = first;
	/* In fp32 few train, and slowly. */
	if (!g->base.options->choose || c->gemm.dtype != DTYPE_BF16)
		return true;
	int n = g->base.kernels->device->gemm_ways(&g->base.context, &c->gemm, subject.ways, WAYS);
	if (!gpu_contest_fastest(&contest, n, &fastest, error))
		return false;
	if (fastest < 0)
		return true;
	if (!gpu_contest_gain(&contest, fastest, &gain, error))
		return false;
	if (!gpu_contest_is_won(gain))
		return true;
	keep(g, &c->gemm, form, &subject.ways[fastest], gain);
	*chosen = first / gain;
	return true;
}
