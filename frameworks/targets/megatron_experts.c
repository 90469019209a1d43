/* Megatron-LM's experts: the keys that say how they are shared out, and how rows reach them. */
#include <string.h>

#include "frameworks/targets/megatron.h"

/* --- export --------------------------------------------------------------------------------- */

const char *megatron_experts(struct exporting *exporting)
{
	return exporting->plan->mesh.expert > 1
		       ? export_knob(exporting->plan, KNOB_EXPERT, exporting->arena)
		       : NULL;
}

const char *megatron_expert_tensor(struct exporting *exporting)
{
	return exporting->plan->mesh.expert > 1
		       ? export_knob(exporting->plan, KNOB_EXPERT_TENSOR, exporting->arena)
		       : NULL;
}

const char *megatron_capacity(struct exporting *exporting)
{
	return exporting->plan->capacity_factor > 0
		       ? export_knob(exporting->plan, KNOB_CAPACITY_FACTOR, exporting->arena)
		       : NULL;
}

const char *megatron_pads(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->capacity_factor > 0);
}

static bool has_experts(const struct exporting *exporting)
{
	return exporting->model->architecture.experts > 0;
}

const char *megatron_dispatcher(struct exporting *exporting)
{
	const struct plan *plan = exporting->plan;
	const char *kind = plan->expert_dispatch == DISPATCH_DEEPEP ? "flex"
			   : plan_gathers_tokens(plan)              ? "allgather"
								    : "alltoall";
	return has_experts(exporting) ? kind : NULL;
}

const char *megatron_deepep(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->expert_dispatch == DISPATCH_DEEPEP);
}

const char *megatron_grouped(struct exporting *exporting)
{
	return megatron_if_true(has_experts(exporting));
}

const char *megatron_permute(struct exporting *exporting)
{
	return megatron_if_true(has_experts(exporting) && !exporting->plan->unfused_permute);
}

const char *megatron_router_dtype(struct exporting *exporting)
{
	return has_experts(exporting) ? "fp32" : NULL;
}

const char *megatron_rows_beside(struct exporting *exporting)
{
	return megatron_if_true(exporting->plan->expert_overlap);
}

/* --- import --------------------------------------------------------------------------------- */

/* Its default is the simplest dispatcher; flex is DeepEP, unless the file names another. */
static void finish_dispatcher(
	struct importing *importing, const struct megatron_names *names, bool whole_experts)
{
	const char *usual = names->has_recipe ? "alltoall" : "allgather";
	const char *kind = import_text(importing, names->dispatcher, usual);
	const char *backend = import_text(importing, names->backend, "deepep");
	bool grouped = names->has_recipe;
	struct error error = {0};

	if (strcmp(kind, "flex") == 0 && whole_experts) {
		import_set(importing, KNOB_EXPERT_DISPATCH, "deepep", names->dispatcher);
		if (strcmp(backend, "deepep") != 0)
			import_note(
				importing, names->backend, "%.40s: predicted as deepep", backend);
	} else if (strcmp(kind, "alltoall") != 0)
		import_note(importing, names->dispatcher, "%.40s: predicted as alltoall", kind);
	if (import_switch(importing, names->grouped, &grouped, grouped, &error) && !grouped)
		import_note(importing, names->grouped,
			"experts one after another: predicted as one grouped product");
}

static bool finish_capacity(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	const char *text = import_text(importing, names->capacity, NULL);
	double factor = 0;
	bool pads;

	if (!import_switch(importing, names->pads, &pads, false, error))
		return false;
	if (text != NULL && !parse_number(text, &factor))
		return import_fail(importing, names->capacity, error,
			"expected a number above 0, got \"%.40s\"", text);
	if (text == NULL || factor <= 0)
		return true;
	if (!pads)
		import_note(importing, names->capacity,
			"without padding: predicted with as many rows for every expert");
	import_set(importing, KNOB_CAPACITY_FACTOR, text, names->capacity);
	return true;
}

/* Recipes have the fused kernels, Megatron-LM has to be told. */
static bool finish_permute(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	bool fused;

	if (!import_switch(importing, names->permute, &fused, names->has_recipe, error))
		return false;
	if (!fused && (names->has_recipe || import_find(importing, names->experts) != NULL))
		import_set(importing, KNOB_UNFUSED_PERMUTE, "on",
			import_find(importing, names->permute) != NULL ? names->permute : NULL);
	return true;
}

/* Experts are cut as the rest is where the file does not say. */
bool megatron_finish_experts(
	struct importing *importing, const struct megatron_names *names, struct error *error)
{
	int64_t tensor, experts, each;
	bool beside;

	if (!import_count(importing, names->tensor, &tensor, 1, error) ||
		!import_count(importing, names->expert, &experts, 1, error) ||
		!import_count(importing, names->expert_tensor, &each, tensor, error))
		return false;
	if (experts == 1 && each != tensor)
		import_note(importing, names->expert_tensor,
			"%lld: with one expert rank predicted as %lld, as the rest is cut",
			(long long)each, (long long)tensor);
	if (!finish_permute(importing, names, error))
		return false;
	if (experts == 1)
		return true;
	import_set_count(importing, KNOB_EXPERT_TENSOR, each,
		import_find(importing, names->expert_tensor) != NULL ? names->expert_tensor : NULL);
	finish_dispatcher(importing, names, each == 1);
	if (!import_switch(importing, names->rows_beside, &beside, false, error))
		return false;
	if (beside)
		import_set(importing, KNOB_EXPERT_OVERLAP, "on", names->rows_beside);
	return finish_capacity(importing, names, error);
}
