/* Wrap policies say which runs of the module tree become FSDP units. The rules are those of
 * PyTorch's torch/distributed/fsdp/wrap.py (2.6.0); tests/schedule has golden lists. */
#include "schedule/units/units.h"

struct wrap {
	const struct model *model;
	struct wrapped *wrapped;
	int n;
	int64_t min_parameters;
};

static void wrap_add(struct wrap *wrap, int module, int end)
{
	wrap->wrapped[wrap->n++] = (struct wrapped){module, end};
}

/* Does [module, end) hold exactly one end of a tied weight? Only the head, the last module, has
 * one.
 */
static bool splits_tie(const struct model *model, int module)
{
	int end = model->modules[module].end, head = model->n_modules - 1;
	int tied = model->modules[head].tied_parameter;
	if (tied < 0)
		return false;
	int owner = model->parameters[tied].module;
	bool head_inside = head >= module && head < end;
	bool owner_inside = owner >= module && owner < end;
	return head_inside != owner_inside;
}

static void wrap_blocks(struct wrap *wrap, int64_t k)
{
	const struct model *model = wrap->model;
	int64_t count = 0;
	for (int i = 0; i < model->n_modules; i++) {
		if (model->modules[i].kind != MODULE_BLOCK)
			continue;
		if (count++ % k == 0)
			wrap_add(wrap, i, model->modules[i].end);
		else
			wrap->wrapped[wrap->n - 1].end_module = model->modules[i].end;
	}
}

/* Wraps by size as _recursive_wrap runs size_based_auto_wrap_policy: modules below the threshold
 * are not entered, and a module is wrapped when what its children left over reaches the threshold.
 * The order is post-order, and the caller sorts. Returns how many parameters are wrapped inside. */
static int64_t wrap_by_size(struct wrap *wrap, int module)
{
	const struct model *model = wrap->model;
	int64_t all = model_subtree_parameters(model, module), wrapped = 0;
	if (all < wrap->min_parameters)
		return 0;
	for (int child = module + 1; child < model->modules[module].end;
		child = model->modules[child].end)
		wrapped += wrap_by_size(wrap, child);
	bool may = module != 0 && model->modules[module].kind != MODULE_LAYERS &&
		   !splits_tie(model, module);
	if (!may || all - wrapped < wrap->min_parameters)
		return wrapped;
	wrap_add(wrap, module, model->modules[module].end);
	return all;
}

/* Sorts into preorder: by start, and an outer unit before the inner one of the same start. */
static void sort_wrapped(struct wrapped *wrapped, int n)
{
	for (int i = 1; i < n; i++) {
		struct wrapped key = wrapped[i];
		int j = i - 1;
		while (j >= 0 && (wrapped[j].module > key.module ||
					 (wrapped[j].module == key.module &&
						 wrapped[j].end_module < key.end_module))) {
			wrapped[j + 1] = wrapped[j];
			j--;
		}
		wrapped[j + 1] = key;
	}
}

/* "size:N" may already have wrapped the module. */
static void wrap_apart(struct wrap *wrap, int module, int end)
{
	for (int i = 0; i < wrap->n; i++)
		if (wrap->wrapped[i].module == module && wrap->wrapped[i].end_module == end)
			return;
	wrap_add(wrap, module, end);
}

static void wrap_embedding(struct wrap *wrap)
{
	const struct model *model = wrap->model;
	for (int i = 0; i < model->n_modules; i++)
		if (model->modules[i].kind == MODULE_EMBEDDING)
			wrap_apart(wrap, i, model->modules[i].end);
}

/* Wraps the head with the norm before it, as torchtitan groups them, because they compute one after
 * the other. Units by size are single modules, and that norm lies inside of another one, so there
 * the head is alone. */
static void wrap_head(struct wrap *wrap, bool single)
{
	const struct model *model = wrap->model;
	int head = model->n_modules - 1;
	if (model->modules[head].layer >= 0) /* a stage without a head */
		return;
	bool normed = !single && head > 0 && model->modules[head - 1].kind == MODULE_NORM &&
		      model->modules[head - 1].layer < 0;
	wrap_apart(wrap, normed ? head - 1 : head, model->n_modules);
}

/* DeepSpeed gathers each module that has parameters of its own. Both ends of a tied weight stay in
 * the root. */
static void wrap_leaves(struct wrap *wrap)
{
	const struct model *model = wrap->model;
	int tied = model->modules[model->n_modules - 1].tied_parameter;
	for (int m = 1; m < model->n_modules; m++)
		if (model->modules[m].n_parameters > 0 &&
			(tied < 0 || model->parameters[tied].module != m))
			wrap_add(wrap, m, model->modules[m].end);
}

/* On a stage the table gets a unit of its own, so that its shards are those of the other stage. */
static void wrap_table(struct wrap *wrap)
{
	int table = model_shared_table(wrap->model);
	if (table < 0)
		return;
	int module = wrap->model->parameters[table].module;
	wrap_apart(wrap, module, wrap->model->modules[module].end);
}

/* As in torchtitan, what is cut over expert ranks is gathered by itself, over other ranks than the
 * rest. */
static void wrap_experts(struct wrap *wrap)
{
	const struct model *model = wrap->model;
	for (int i = 0; i < model->n_modules; i++)
		if (model->modules[i].kind == MODULE_EXPERTS)
			wrap_apart(wrap, i, model->modules[i].end);
}

int wrap_modules(const struct plan *plan, const struct model *model, struct arena *arena,
	struct wrapped **wrapped)
{
	struct wrap wrap = {.model = model};
	const struct wrap_policy *policy = &plan->wrap;
	wrap.wrapped = ARENA_ARRAY(arena, struct wrapped, model->n_modules + 3);
	wrap_add(&wrap, 0, model->n_modules);
	if (plan_layout(plan) == LAYOUT_PARTITIONED) {
		wrap_leaves(&wrap);
		*wrapped = wrap.wrapped;
		return wrap.n;
	}
	switch (policy->kind) {
	case WRAP_BLOCK:
		wrap_blocks(&wrap, 1);
		break;
	case WRAP_BLOCKS:
		wrap_blocks(&wrap, policy->argument);
		break;
	case WRAP_SIZE:
		wrap.min_parameters = policy->argument;
		wrap_by_size(&wrap, 0);
		break;
	case WRAP_MODEL:
		break;
	}
	if (policy->embedding)
		wrap_embedding(&wrap);
	if (policy->head)
		wrap_head(&wrap, policy->kind == WRAP_SIZE);
	wrap_table(&wrap);
	if (plan->mesh.expert > 1)
		wrap_experts(&wrap);
	sort_wrapped(wrap.wrapped, wrap.n);
	*wrapped = wrap.wrapped;
	return wrap.n;
}
