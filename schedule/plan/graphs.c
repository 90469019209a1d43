/* Which leaves of a block are in a CUDA graph. */
#include "schedule/plan/plan.h"

const char *const graph_scope_names[] = {
#define X(suffix, name) name,
	GRAPH_SCOPES(X)
#undef X
		NULL};

static const char off[] = "off";

struct name_set graph_scopes_of(unsigned of, struct arena *arena)
{
	return name_set_of(of, graph_scope_names, arena);
}

static bool parse(const struct field *field, const char *text, void *member, struct arena *arena)
{
	(void)field;
	return name_set_read(text, graph_scope_names, off, member, arena);
}

const struct field_decoded cuda_graph_scope_decoded = {
	.size = sizeof(struct name_set),
	.expectation = "off, full_iteration, or attn, mlp, moe, moe_router, moe_preprocess, each "
		       "once, several with +",
	.parse = parse,
	.zero = off,
};

/* --- leaves --------------------------------------------------------------------------------------
 */

#define ROUTING (GRAPH_BIT(MOE) | GRAPH_BIT(MOE_ROUTER))

/* Other kinds are attention's. */
static const unsigned char of_kind[MODULE_KIND_COUNT] = {
	[MODULE_GATE] = GRAPH_BIT(MLP),
	[MODULE_UP] = GRAPH_BIT(MLP),
	[MODULE_GATE_UP] = GRAPH_BIT(MLP),
	[MODULE_ACTIVATION] = GRAPH_BIT(MLP),
	[MODULE_DOWN] = GRAPH_BIT(MLP),
	[MODULE_ROUTER] = ROUTING,
	[MODULE_SHARED_GATE] = ROUTING,
	[MODULE_SHARED_UP] = ROUTING,
	[MODULE_SHARED_ACTIVATION] = ROUTING,
	[MODULE_SHARED_DOWN] = ROUTING,
	[MODULE_SHARED_WEIGHT] = ROUTING,
	[MODULE_EXPERTS_GATE] = GRAPH_BIT(MOE),
	[MODULE_EXPERTS_UP] = GRAPH_BIT(MOE),
	[MODULE_EXPERTS_ACTIVATION] = GRAPH_BIT(MOE),
	[MODULE_EXPERTS_DOWN] = GRAPH_BIT(MOE),
};

/* The next leaf of the same block, or the one before (`step` -1); -1: there is none. */
static int leaf_beside(const struct model *model, int leaf, int step)
{
	const struct module *modules = model->modules;
	for (int m = leaf + step; m >= 0 && m < model->n_modules; m += step) {
		if (modules[m].layer != modules[leaf].layer)
			return -1;
		if (module_kind_is_leaf(modules[m].kind))
			return m;
	}
	return -1;
}

/* A norm goes with the leaf that it feeds; behind a part of a block, with that part. */
static int part_of(const struct model *model, int leaf)
{
	int next = leaf_beside(model, leaf, 1);
	if (model->modules[leaf].kind != MODULE_NORM)
		return leaf;
	return next >= 0 && model->modules[next].kind != MODULE_NORM ? next
								     : leaf_beside(model, leaf, -1);
}

/* What holds leaves goes with the first one. */
static unsigned scopes_of(const struct model *model, int leaf)
{
	if (model->modules[leaf].layer < 0)
		return 0;
	while (!module_kind_is_leaf(model->modules[leaf].kind))
		leaf++;
	int part = part_of(model, leaf);
	unsigned of = part >= 0 ? of_kind[model->modules[part].kind] : 0;
	return of != 0 ? of : GRAPH_BIT(ATTN);
}

bool plan_captures(const struct plan *plan, const struct model *model, int leaf)
{
	return plan->cuda_graph_scope.of != 0 &&
	       (scopes_of(model, leaf) & plan->cuda_graph_scope.of) != 0;
}

bool plan_begins_graph(const struct plan *plan, const struct model *model, int leaf)
{
	int before = leaf_beside(model, leaf, -1);
	return plan_captures(plan, model, leaf) &&
	       (before < 0 || !plan_captures(plan, model, before));
}

bool model_has_graph_scope(const struct model *model, enum graph_scope scope)
{
	if (scope == GRAPH_MOE_PREPROCESS)
		scope = GRAPH_MOE_ROUTER;
	for (int m = 0; m < model->n_modules; m++)
		if (scopes_of(model, m) >> scope & 1)
			return true;
	return scope == GRAPH_FULL_ITERATION;
}
