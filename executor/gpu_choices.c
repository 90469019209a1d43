#include "executor/gpu_choices.h"

static struct gemm_choice choice_of(const struct calibration_choice *c)
{
	return (struct gemm_choice){.dtype = c->dtype,
		.c_dtype = c->result,
		.m = c->m,
		.n = c->n,
		.k = c->k,
		.transpose_a = c->form == PRODUCT_WEIGHT_GRADIENT,
		.transpose_b = c->form == PRODUCT_FORWARD,
		.way = {.algorithm = c->algorithm,
			.tile = c->tile,
			.stages = c->stages,
			.split_k = c->split_k,
			.reduction = c->reduction,
			.swizzle = c->swizzle,
			.custom = c->custom,
			.inner_shape = c->inner_shape,
			.cluster = c->cluster}};
}

void gpu_choices_use(struct gpu_choices *choices, const struct calibration *calibration,
	const struct kernels *kernels, struct kernel_context *context, struct arena *arena)
{
	*choices = (struct gpu_choices){0};
	if (calibration->n_choices == 0 || kernels->device == NULL ||
		kernels->device->choose_gemms == NULL)
		return;
	int64_t here = kernels->device->gemm_version(context);
	if (here != calibration->choices_library) {
		choices->refused = arena_printf(arena,
			"none used: chosen with cuBLASLt %lld, here is %lld (calibrate again)",
			(long long)calibration->choices_library, (long long)here);
		return;
	}
	choices->n = calibration->n_choices;
	choices->choices = ARENA_ARRAY(arena, struct gemm_choice, choices->n);
	for (int i = 0; i < choices->n; i++)
		choices->choices[i] = choice_of(&calibration->choices[i]);
	kernels->device->choose_gemms(context, choices->choices, choices->n);
}

const char *gpu_choices_say(const struct gpu_choices *choices, struct arena *arena)
{
	int taken = 0;

	if (choices->refused != NULL || choices->n == 0)
		return choices->refused;
	for (int i = 0; i < choices->n; i++)
		taken += choices->choices[i].taken;
	return arena_printf(arena, "%d of %d used", taken, choices->n);
}
