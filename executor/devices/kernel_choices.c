#include "executor/devices/kernel_choices.h"

static struct gemm_choice choice_of(const struct calibration_choice *c)
{
	return (struct gemm_choice){.dtype = c->dtype,
		.c_dtype = c->result,
		.m = c->m,
		.n = c->n,
		.k = c->k,
		.transpose_a = c->form == PRODUCT_WEIGHT_GRADIENT,
		.transpose_b = c->form == PRODUCT_FORWARD,
		.algorithm = {.id = c->algorithm,
			.tile = c->tile,
			.stages = c->stages,
			.split_k = c->split_k,
			.reduction = c->reduction,
			.swizzle = c->swizzle,
			.custom = c->custom,
			.inner_shape = c->inner_shape,
			.cluster = c->cluster}};
}

/* Returns why the choices cannot be used, or NULL where the library is the one with which they were
 * chosen. */
static const char *refuse(const char *name, int64_t chosen, int64_t here, struct arena *arena)
{
	if (here == chosen)
		return NULL;
	if (here == 0)
		return arena_printf(arena, "none used: chosen with %s %lld, here is none", name,
			(long long)chosen);
	return arena_printf(arena, "none used: chosen with %s %lld, here is %lld (calibrate again)",
		name, (long long)chosen, (long long)here);
}

static void use_products(struct gpu_choices *choices, const struct calibration *calibration,
	const struct device_kernels *device, struct kernel_context *context, struct arena *arena)
{
	if (calibration->n_choices == 0 || device->choose_gemms == NULL)
		return;
	choices->refused = refuse(
		"cuBLASLt", calibration->choices_library, device->gemm_version(context), arena);
	if (choices->refused != NULL)
		return;
	choices->n = calibration->n_choices;
	choices->choices = ARENA_ARRAY(arena, struct gemm_choice, choices->n);
	for (int i = 0; i < choices->n; i++)
		choices->choices[i] = choice_of(&calibration->choices[i]);
	device->choose_gemms(context, choices->choices, choices->n);
}

/* Looks for the library only where something of it was chosen, because loading it takes time. */
static void use_attention(struct gpu_choices *choices, const struct calibration *calibration,
	const struct device_kernels *device, struct kernel_context *context, struct arena *arena)
{
	if (calibration->n_attention == 0 || device->choose_attention == NULL)
		return;
	choices->attention_refused = refuse(
		"cuDNN", calibration->attention_library, device->attention_version(context), arena);
	if (choices->attention_refused != NULL)
		return;
	choices->n_attention = calibration->n_attention;
	choices->attention = ARENA_ARRAY(arena, struct attention_choice, choices->n_attention);
	for (int i = 0; i < choices->n_attention; i++) {
		const struct calibration_attention *a = &calibration->attention[i];

		choices->attention[i] = (struct attention_choice){.head_dim = a->head_dim,
			.length = a->length,
			.pass = a->pass == ATTENTION_IS_BACKWARD ? ATTENTION_BACKWARD
								 : ATTENTION_FORWARD,
			.head_bytes = calibration_attention_bytes(a, false),
			.shared_bytes = calibration_attention_bytes(a, true),
			.algorithm = {.engine = a->engine,
				.kernel = a->kernel,
				.cluster = a->cluster,
				.stream_k = a->stream_k,
				.tile_m = a->tile_m,
				.tile_n = a->tile_n,
				.stages = a->stages}};
	}
	device->choose_attention(context, choices->attention, choices->n_attention);
}

void gpu_choices_use(struct gpu_choices *choices, const struct calibration *calibration,
	const struct kernels *kernels, struct kernel_context *context, struct arena *arena)
{
	*choices = (struct gpu_choices){0};
	if (kernels->device == NULL)
		return;
	use_products(choices, calibration, kernels->device, context, arena);
	use_attention(choices, calibration, kernels->device, context, arena);
}

static const char *say(const char *refused, int taken, int n, struct arena *arena)
{
	return refused != NULL || n == 0 ? refused : arena_printf(arena, "%d of %d used", taken, n);
}

const char *gpu_choices_say(const struct gpu_choices *choices, struct arena *arena)
{
	int taken = 0;

	for (int i = 0; i < choices->n; i++)
		taken += choices->choices[i].taken;
	return say(choices->refused, taken, choices->n, arena);
}

const char *gpu_choices_say_attention(const struct gpu_choices *choices, struct arena *arena)
{
	int taken = 0;

	for (int i = 0; i < choices->n_attention; i++)
		taken += choices->attention[i].taken;
	return say(choices->attention_refused, taken, choices->n_attention, arena);
}
