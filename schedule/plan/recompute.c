/* Which leaves selective checkpointing computes again. */
#include "schedule/plan/plan.h"

#define BIT(m) (1u << RECOMPUTE_##m)

const char *const recompute_module_names[] = {
#define X(suffix, name) name,
	RECOMPUTE_MODULES(X)
#undef X
		NULL};

static const char usual[] = "usual";

struct name_set recompute_modules_of(unsigned of, struct arena *arena)
{
	return name_set_of(of, recompute_module_names, arena);
}

static bool parse(const struct field *field, const char *text, void *member, struct arena *arena)
{
	(void)field;
	return name_set_read(text, recompute_module_names, usual, member, arena);
}

const struct field_decoded recompute_modules_decoded = {
	.size = sizeof(struct name_set),
	.expectation = "usual, or core_attn, layernorm, mla_up_proj, moe_act, mlp, moe, "
		       "shared_experts, each once, several with +",
	.parse = parse,
	.zero = usual,
};

/* --- leaves --------------------------------------------------------------------------------------
 */

/* Modules that hold all leaves of a kind. */
static const unsigned char of_kind[MODULE_KIND_COUNT] = {
	[MODULE_ATTENTION_CORE] = BIT(CORE_ATTN),
	[MODULE_QUERY_DOWN_NORM] = BIT(MLA_UP_PROJ),
	[MODULE_KV_DOWN_NORM] = BIT(MLA_UP_PROJ),
	[MODULE_KV_UP] = BIT(MLA_UP_PROJ),
	[MODULE_GATE] = BIT(MLP),
	[MODULE_UP] = BIT(MLP),
	[MODULE_GATE_UP] = BIT(MLP),
	[MODULE_ACTIVATION] = BIT(MLP),
	[MODULE_DOWN] = BIT(MLP),
	[MODULE_ROUTER] = BIT(MOE),
	[MODULE_EXPERTS_GATE] = BIT(MOE),
	[MODULE_EXPERTS_UP] = BIT(MOE),
	[MODULE_EXPERTS_ACTIVATION] = BIT(MOE) | BIT(MOE_ACT),
	[MODULE_EXPERTS_DOWN] = BIT(MOE),
	[MODULE_SHARED_GATE] = BIT(MOE) | BIT(SHARED_EXPERTS),
	[MODULE_SHARED_UP] = BIT(MOE) | BIT(SHARED_EXPERTS),
	[MODULE_SHARED_ACTIVATION] = BIT(MOE) | BIT(SHARED_EXPERTS),
	[MODULE_SHARED_DOWN] = BIT(MOE) | BIT(SHARED_EXPERTS),
	[MODULE_SHARED_WEIGHT] = BIT(MOE) | BIT(SHARED_EXPERTS),
};

/* Returns the kind of the next leaf in the block; MODULE_MODEL: there is none. */
static enum module_kind kind_behind(const struct model *model, int leaf)
{
	const struct module *modules = model->modules;
	for (int m = leaf + 1; m < model->n_modules && modules[m].layer == modules[leaf].layer; m++)
		if (module_kind_is_leaf(modules[m].kind))
			return modules[m].kind;
	return MODULE_MODEL;
}

/* Transformer Engine computes a norm with the product behind it, where that alone reads it
 * (gpt_layer_specs.py). */
static const unsigned char of_norm_before[MODULE_KIND_COUNT] = {
	[MODULE_QUERY_DOWN] = BIT(LAYERNORM),
	[MODULE_ROUTER] = BIT(LAYERNORM),
	[MODULE_GATE] = BIT(MLP),
	[MODULE_UP] = BIT(MLP),
	[MODULE_GATE_UP] = BIT(MLP),
};

/* What holds leaves goes with the first one. */
static unsigned modules_of(const struct model *model, int leaf)
{
	while (!module_kind_is_leaf(model->modules[leaf].kind))
		leaf++;
	enum module_kind kind = model->modules[leaf].kind;
	enum module_kind behind = kind == MODULE_NORM ? kind_behind(model, leaf) : MODULE_MODEL;
	bool latent = model->architecture.kv_rank > 0;
	if (model->modules[leaf].layer < 0)
		return 0;
	if (kind == MODULE_QUERY)
		return latent ? BIT(MLA_UP_PROJ) : 0;
	if (behind == MODULE_QUERY)
		return latent ? BIT(LAYERNORM) : 0;
	return kind == MODULE_NORM ? of_norm_before[behind] : of_kind[kind];
}

bool model_has_recompute_module(const struct model *model, enum recompute_module which)
{
	for (int m = 0; m < model->n_modules; m++)
		if (modules_of(model, m) >> which & 1)
			return true;
	return false;
}

/* --- what is kept --------------------------------------------------------------------------------
 */

static bool is_product(const struct model *model, int module)
{
	const struct module *m = &model->modules[module];
	int adapter = m->adapter >= 0 ? 2 : 0;

	return m->n_parameters - adapter == 1 && module_is_linear(m->kind) &&
	       m->kind != MODULE_ROUTER && !module_kind_is_of_experts(m->kind);
}

bool plan_selective_keeps(const struct plan *plan, const struct model *model, int module)
{
	const struct module *modules = model->modules;
	unsigned named = plan->recompute_modules.of;
	bool flash = modules[module].kind == MODULE_ATTENTION_CORE &&
		     attention_is_flash(plan->attention);
	int products = 0;
	if (runtime_of(plan->runtime)->recomputes_modules)
		return !(modules_of(model, module) & (named != 0 ? named : BIT(CORE_ATTN)));
	if (flash || !is_product(model, module))
		return flash;
	for (int m = module; m >= 0 && modules[m].layer == modules[module].layer; m--)
		products += is_product(model, m);
	return products % 2 == 1;
}
