/* torchtitan's linear layers in float8 and mxfp8. Keys: 0.2.2 (config/job_config.py); main b5bcd76c
 * (components/quantization/float8.py, whose recipe is rowwise where nothing is said, and mx.py). */
#include <string.h>

#include "frameworks/targets/torchtitan.h"

static const char *if_mx(struct exporting *exporting, const char *text)
{
	return exporting->plan->fp8 == FP8_MXFP8 ? text : NULL;
}

static const char *if_fp8(struct exporting *exporting, const char *text)
{
	enum fp8_recipe recipe = exporting->plan->fp8;

	return recipe != FP8_OFF && recipe != FP8_MXFP8 ? text : NULL;
}

void titan_adapt_float8(struct exporting *exporting, struct plan *plan)
{
	if (plan->fp8 == FP8_DELAYED || plan->fp8 == FP8_BLOCKWISE)
		export_change(exporting, plan, KNOB_FP8, "tensorwise",
			"torchao scales by what a tensor holds");
	if (plan->fp8 == FP8_MXFP8 && plan->compile && plan->mesh.tensor > 1 &&
		exporting->target->syntax == SYNTAX_TOML)
		export_change(exporting, plan, KNOB_COMPILE, "false",
			"torchtitan 0.2 does not compile mxfp8 over tensor ranks");
}

const char *titan_converter(struct exporting *exporting)
{
	return exporting->plan->fp8 == FP8_MXFP8 ? MX : if_fp8(exporting, FLOAT8);
}

const char *titan_mx_recipe(struct exporting *exporting)
{
	return if_mx(exporting, "mxfp8_cublas");
}

const char *titan_mx_filtered(struct exporting *exporting)
{
	return if_mx(exporting, "output");
}

const char *titan_recipe(struct exporting *exporting)
{
	return if_fp8(exporting, export_knob(exporting->plan, KNOB_FP8, exporting->arena));
}

const char *titan_filtered(struct exporting *exporting)
{
	return if_fp8(exporting, "output");
}

const char *titan_gathers(struct exporting *exporting)
{
	return exporting->plan->fp8_param_gather ? "true" : NULL;
}

/* Scales of rows are not gathered. */
static void set_gathers(struct importing *importing, const char *recipe, const char *gathers)
{
	if (import_is(importing, gathers, "true") && strcmp(recipe, "tensorwise") == 0)
		import_set(importing, KNOB_FP8_PARAM_GATHER, "on", gathers);
}

static void set_fp8(struct importing *importing, const char *recipe, const char *path)
{
	if (strcmp(recipe, "tensorwise") == 0 || strcmp(recipe, "rowwise") == 0)
		import_set(importing, KNOB_FP8, recipe, path);
	else
		import_note(importing, path, "%.40s: predicted as bf16", recipe);
	set_gathers(importing, recipe, FLOAT8 ".enable_fsdp_float8_all_gather");
	set_gathers(importing, recipe, "float8.enable_fsdp_float8_all_gather");
}

/* Of every converter that the file names; without a recipe a tensor has one scale. */
void titan_finish_converters(struct importing *importing)
{
	static const char path[] = "model.converters[]";
	const struct source *source = importing->source;

	for (int i = 0; i < source->n_leaves; i++) {
		const struct leaf *leaf = &source->leaves[i];
		const char *name = leaf->node->text;
		if (strcmp(leaf->path, path) != 0)
			continue;
		if (strcmp(name, FLOAT8) == 0 || strcmp(name, "float8") == 0)
			set_fp8(importing,
				import_text(importing, FLOAT8 ".recipe_name",
					import_text(importing, "float8.recipe_name", "tensorwise")),
				path);
		else if (strcmp(name, MX) == 0 || strcmp(name, "mx") == 0)
			import_set(importing, KNOB_FP8, "mxfp8", path);
		else
			import_note(importing, path, "%.60s: is not predicted", name);
	}
}

void titan_finish_float8(struct importing *importing)
{
	static const char path[] = "model_registry.converters";
	const char *converters = import_text(importing, path, "");

	if (strstr(converters, "MXFP8LinearConverter") != NULL)
		import_set(importing, KNOB_FP8, "mxfp8", path);
	else if (strstr(converters, "Float8LinearConverter") != NULL)
		set_fp8(importing, import_text(importing, "Config.recipe_name", "rowwise"), path);
	else if (import_find(importing, "llama3_405b*") != NULL)
		import_note(importing, "llama3_405b*",
			"multiplies in float8 unless its model_spec is another: add --fp8 rowwise");
}
