/* Megatron-LM's linear layers in fp8 and fp4, and Megatron-Bridge's, which have a name for each
 * way. */
#include <string.h>
#include <strings.h>

#include "frameworks/targets/megatron.h"

#define MODEL(name) "model." name
#define MIXED(name) "mixed_precision." name

/* --- export --------------------------------------------------------------------------------- */

/* Where blocks have scales, gradients are in e4m3, too. */
const char *megatron_fp8_format(struct exporting *exporting)
{
	enum fp8_recipe recipe = exporting->plan->fp8;

	return recipe == FP8_OFF || recipe == FP8_NVFP4         ? NULL
	       : recipe == FP8_BLOCKWISE || recipe == FP8_MXFP8 ? "e4m3"
								: "hybrid";
}

const char *megatron_fp8_recipe(struct exporting *exporting)
{
	return megatron_fp8_format(exporting) != NULL
		       ? export_knob(exporting->plan, KNOB_FP8, exporting->arena)
		       : NULL;
}

static bool is_fp4(const struct exporting *exporting)
{
	return exporting->plan->fp8 == FP8_NVFP4;
}

const char *megatron_gathers_fp8(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->fp8_param_gather && !is_fp4(exporting));
}

const char *megatron_fp4_format(struct exporting *exporting)
{
	return is_fp4(exporting) ? "e2m1" : NULL;
}

const char *megatron_fp4_recipe(struct exporting *exporting)
{
	return is_fp4(exporting) ? "nvfp4" : NULL;
}

const char *megatron_gathers_fp4(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->fp8_param_gather && is_fp4(exporting));
}

const char *megatron_gathers_in_gradients(struct exporting *exporting)
{
	return megatron_if_true(
		exporting->plan->fp8_param_gather && exporting->plan->fp8 == FP8_MXFP8);
}

/* Megatron-Bridge's recipes, most of which keep weights in fp8 or fp4; that of tensors leaves the
 * first and the last block in bf16 (training/mixed_precision.py). */
static const char *const mixed[] = {[FP8_TENSORWISE] = "bf16_with_fp8_current_scaling_mixed",
	[FP8_DELAYED] = "bf16_with_fp8_delayed_scaling_mixed",
	[FP8_BLOCKWISE] = "bf16_with_fp8_subchannel_scaling_mixed",
	[FP8_MXFP8] = "bf16_with_mxfp8_mixed",
	[FP8_NVFP4] = "bf16_with_nvfp4_mixed"};

bool megatron_precision_keeps(enum fp8_recipe recipe)
{
	return recipe != FP8_BLOCKWISE;
}

const char *megatron_precision(enum fp8_recipe recipe)
{
	return mixed[recipe];
}

/* --- import --------------------------------------------------------------------------------- */

static void set_fp8(
	struct importing *importing, const char *recipe, const char *path, const char *gather)
{
	static const char *const known[] = {"delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4"};
	bool is_known = false;

	for (int i = 0; i < COUNT_OF(known); i++)
		is_known = is_known || strcmp(recipe, known[i]) == 0;
	if (is_known)
		import_set(importing, KNOB_FP8, recipe, path);
	else
		import_note(importing, path, "%.40s: predicted as bf16", recipe);
	if (is_known && gather != NULL)
		import_set(importing, KNOB_FP8_PARAM_GATHER, "on", gather);
}

/* The recipe is read where there is a format. Gradients in e4m3 take as long. */
void megatron_finish_fp8(struct importing *importing)
{
	const char *recipe = import_text(importing, "fp8-recipe", "delayed");
	const char *path =
		import_find(importing, "fp8-recipe") != NULL ? "fp8-recipe" : "fp8-format";

	if (import_find(importing, "fp8-format") != NULL)
		set_fp8(importing, recipe, path,
			import_find(importing, "fp8-param-gather") != NULL ? "fp8-param-gather"
									   : NULL);
	else if (import_find(importing, "fp4-format") != NULL)
		set_fp8(importing, import_text(importing, "fp4-recipe", "nvfp4"), "fp4-format",
			import_find(importing, "fp4-param-gather") != NULL ? "fp4-param-gather"
									   : NULL);
}

/* As registered, with underscores, or with hyphens. */
static bool is_name(const char *name, const char *registered)
{
	while (*name != '\0' && (*name == *registered || (*name == '-' && *registered == '_')))
		name++, registered++;
	return *name == *registered;
}

static void finish_named_fp8(struct importing *importing, const char *name)
{
	for (int i = 0; i < COUNT_OF(mixed); i++) {
		if (mixed[i] == NULL || !is_name(name, mixed[i]))
			continue;
		if (i == FP8_TENSORWISE)
			import_note(importing, "mixed_precision",
				"the first and the last block in bf16: predicted in fp8");
		set_fp8(importing, knob_name(KNOB_FP8, i), "mixed_precision",
			megatron_precision_keeps((enum fp8_recipe)i) ? "mixed_precision" : NULL);
		return;
	}
	if (strstr(name, "fp8") != NULL || strstr(name, "fp4") != NULL)
		import_note(importing, "mixed_precision", "%.40s: is predicted as bf16", name);
}

/* The model's own is written over by mixed_precision. */
static void note_models_fp8(struct importing *importing)
{
	const char *own = import_text(importing, MODEL("fp8"), "false");

	if (strcasecmp(own, "false") != 0)
		import_note(importing, MODEL("fp8"), "%.40s: mixed_precision decides", own);
}

/* NeMo 1 has a switch, and scales of the last steps. */
static bool finish_fp8_switch(struct importing *importing, const char *gather, struct error *error)
{
	bool is_fp8;

	if (!import_switch(importing, MODEL("fp8"), &is_fp8, false, error))
		return false;
	if (is_fp8)
		set_fp8(importing, "delayed", MODEL("fp8"), gather);
	return true;
}

/* Is the key there, with a value? */
static bool is_given(const struct importing *importing, const char *path)
{
	return import_find(importing, path) != NULL &&
	       !import_is_unset(import_find(importing, path));
}

bool megatron_finish_mixed_precision(
	struct importing *importing, bool has_recipe, struct error *error)
{
	static const char gather[] = MIXED("fp8_param_gather"), fp4[] = MIXED("fp4_param_gather");
	bool gathers, gathers_fp4;

	if (!import_switch(importing, gather, &gathers, false, error) ||
		!import_switch(importing, fp4, &gathers_fp4, false, error))
		return false;
	if (!has_recipe)
		return finish_fp8_switch(importing, gathers ? gather : NULL, error);
	note_models_fp8(importing);
	if (is_given(importing, MIXED("fp4")))
		set_fp8(importing, import_text(importing, MIXED("fp4_recipe"), "nvfp4"),
			MIXED("fp4"), gathers_fp4 ? fp4 : NULL);
	else if (import_find(importing, MIXED("fp8")) == NULL)
		finish_named_fp8(importing, import_text(importing, "mixed_precision", ""));
	else if (is_given(importing, MIXED("fp8")))
		set_fp8(importing, import_text(importing, MIXED("fp8_recipe"), "tensorwise"),
			MIXED("fp8"), gathers ? gather : NULL);
	return true;
}
