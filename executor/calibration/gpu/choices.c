/* Autotuning finds which algorithm of cuBLASLt is fastest for a GEMM. The first result of its
 * heuristic is what it expects to be fastest without having tried. */
#include "executor/calibration/gpu/bench.h"

#include <string.h>

enum { ALGORITHMS = 8 };

/* A GEMM, and the algorithms for it. */
struct subject {
	struct kernel_case *product;
	struct gemm_algorithm algorithms[ALGORITHMS];
};

static struct gemm_choice choice_of(const struct gemm *g, const struct gemm_algorithm *algorithm)
{
	return (struct gemm_choice){.dtype = g->dtype,
		.c_dtype = g->c_dtype,
		.m = g->m,
		.n = g->n,
		.k = g->k,
		.transpose_a = g->transpose_a,
		.transpose_b = g->transpose_b,
		.algorithm = *algorithm};
}

/* Forgives what the library refuses, but not what an event says. */
static bool time_algorithm(const struct autotune *autotune, int algorithm, double *seconds,
	bool *refused, struct error *error)
{
	struct gpu_bench *g = autotune->gpu;
	struct kernel_context *context = &g->base.context;
	const struct device_kernels *device = g->base.kernels->device;
	const struct subject *s = autotune->subject;
	struct gemm_choice choice;
	struct error failure = {0};
	int chosen = algorithm != AUTOTUNE_DEFAULT;

	if (chosen)
		choice = choice_of(&s->product->of.gemm, &s->algorithms[algorithm]);
	device->choose_gemms(context, chosen ? &choice : NULL, chosen);
	bool ok = gpu_time(g, run_gemm, s->product, seconds, &failure);
	device->choose_gemms(context, NULL, 0);
	*refused = !ok && chosen && context->error.message[0] != '\0';
	if (*refused)
		context->error = (struct error){0};
	else if (!ok)
		*error = failure;
	return ok || *refused;
}

static void keep(struct gpu_bench *g, const struct gemm *gemm, enum product_form form,
	const struct gemm_algorithm *algorithm, double gain)
{
	struct calibration *c = g->base.calibration;
	const struct calibration_choice choice = {.form = form,
		.dtype = gemm->dtype,
		.result = gemm->c_dtype,
		.m = gemm->m,
		.n = gemm->n,
		.k = gemm->k,
		.gain = gain,
		.algorithm = algorithm->id,
		.tile = algorithm->tile,
		.stages = algorithm->stages,
		.split_k = algorithm->split_k,
		.reduction = algorithm->reduction,
		.swizzle = algorithm->swizzle,
		.custom = algorithm->custom,
		.inner_shape = algorithm->inner_shape,
		.cluster = algorithm->cluster};

	if (c->n_choices == CALIBRATION_CHOICES || !calibration_add_choice(c, &choice))
		return;
	c->choices_library = g->base.kernels->device->gemm_version(&g->base.context);
	bench_say(&g->base,
		"    %s, %lld x %lld x %lld: algorithm %d, tile %d, is %.1f %% faster than the "
		"first proposal",
		product_form_names[form], (long long)gemm->m, (long long)gemm->n,
		(long long)gemm->k, algorithm->id, algorithm->tile, 100 * (gain - 1));
}

static bool choose(struct gpu_bench *g, struct kernel_case *c, enum product_form form, double first,
	double *chosen, struct error *error)
{
	struct subject subject = {.product = c};
	const struct autotune autotune = {g, &subject, time_algorithm};
	double gain;
	int fastest;
	int n = g->base.kernels->device->gemm_algorithms(
		&g->base.context, &c->of.gemm, subject.algorithms, ALGORITHMS);

	if (!autotune_fastest(&autotune, n, &fastest, error))
		return false;
	if (fastest < 0)
		return true;
	if (!autotune_gain(&autotune, fastest, &gain, error))
		return false;
	if (!autotune_is_faster(gain))
		return true;
	keep(g, &c->of.gemm, form, &subject.algorithms[fastest], gain);
	*chosen = first / gain;
	return true;
}

/* Tries the algorithms on the multiprocessors that collectives leave, where --nccl says how many
 * they may take, because another one may be fastest there. What a product takes is still measured
 * on all of the GPU, since the cost model has a term for collectives. */
bool calibrate_gpu_choice(struct gpu_bench *g, struct kernel_case *c, enum product_form form,
	double first, double *chosen, struct error *error)
{
	struct kernel_context *context = &g->base.context;
	int alone = context->beside, most = g->base.options->nccl.max_ctas;

	*chosen = first;
	/* Few train in fp32, which is slow. */
	if (!g->base.options->choose || c->of.gemm.dtype != DTYPE_BF16)
		return true;
	context->beside = alone != 0 && most > 0 ? most : alone;
	bool ok = choose(g, c, form, first, chosen, error);
	context->beside = alone;
	return ok;
}
