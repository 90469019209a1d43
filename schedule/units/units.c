/* Makes units and lays their parameters out: FlatParameter, FSDP2's per-parameter shards, DDP's
 * buckets (docs/runtimes.md). */
#include "schedule/units/layout.h"

/* These units are open while modules are walked in preorder. They nest at most as deep as the
 * tree. */
struct open_units {
	int stack[64];
	int depth, next;
};

/* Returns the innermost unit that holds a module. Modules must come in ascending order. */
static int innermost_unit(const struct unit *units, int n, int module, struct open_units *open)
{
	while (open->next < n && units[open->next].module <= module) {
		while (open->depth > 0 &&
			units[open->stack[open->depth - 1]].end_module <= units[open->next].module)
			open->depth--;
		open->stack[open->depth++] = open->next++;
	}
	while (units[open->stack[open->depth - 1]].end_module <= module)
		open->depth--;
	return open->stack[open->depth - 1];
}

const char *unit_name(const struct model *model, struct wrapped wrapped, struct arena *arena)
{
	const struct module *first = &model->modules[wrapped.module];
	if (wrapped.module == 0)
		return "root";
	if (first->end == wrapped.end_module)
		return first->name;
	if (first->kind == MODULE_NORM) /* the final norm and the head */
		return arena_printf(
			arena, "%s+%s", first->name, model->modules[wrapped.end_module - 1].name);
	int last = first->layer;
	for (int i = wrapped.module; i < wrapped.end_module; i++)
		last = model->modules[i].layer > last ? model->modules[i].layer : last;
	return arena_printf(arena, "%s..%d", first->name, last);
}

void units_choose(const struct plan *plan, struct unit *units, int n)
{
	int64_t place = 0, behind_root = 0;
	for (int u = 0; u < n; u++) {
		units[u].reshard_group = 0;
		units[u].offload = OFFLOAD_NONE;
		if (units[u].parameters == 0)
			continue;
		if (u > 0 && units_are_twins(&units[u - 1], &units[u])) {
			units[u].reshard_group = units[u - 1].reshard_group;
			units[u].offload = units[u - 1].offload;
			continue;
		}
		units[u].offload = plan_offload_at(plan, place++);
		if (units[u].module > 0)
			units[u].reshard_group = plan_reshard_group_at(plan, behind_root++);
		else if (plan_reshards_root(plan))
			units[u].reshard_group = -1;
	}
}

int64_t unit_shard_ranks(const struct unit *unit, const struct plan *plan)
{
	return unit->of_experts ? plan_expert_shard_ranks(plan) : plan_shard_ranks(plan);
}

int64_t unit_shard_stride(const struct unit *unit, const struct plan *plan)
{
	return unit->of_experts ? plan->mesh.expert * plan_expert_tensor(plan) : plan->mesh.tensor;
}

int64_t unit_shard_place(const struct unit *unit, const struct plan *plan, int64_t rank)
{
	return rank / unit_shard_stride(unit, plan) % unit_shard_ranks(unit, plan);
}

int64_t unit_reduce_ranks(const struct unit *unit, const struct plan *plan)
{
	return unit->of_experts ? plan_expert_reduce_ranks(plan) : plan_reduce_ranks(plan);
}

int64_t unit_shard_bytes(const struct unit *unit, const struct plan *plan)
{
	return unit->trained_chunk * dtype_bytes(plan->master_dtype) +
	       (unit->chunk - unit->trained_chunk) * dtype_bytes(plan->param_dtype);
}

/* --- frozen and trained ------------------------------------------------------------------------
 */

/* Names the unit of trained parameters beside a unit of frozen ones: "NAME:trained". */
static const char *unit_twin_name(const char *name, struct arena *arena)
{
	return arena_printf(arena, "%s:trained", name);
}

/* Finds which kinds of parameters the wrapped modules own: bit 0 is for frozen, bit 1 for
 * trained. */
static unsigned *kinds_owned(
	const struct model *model, const int *owner, int n, struct arena *arena)
{
	unsigned *kinds = ARENA_ARRAY(arena, unsigned, n);
	for (int p = 0; p < model->n_parameters; p++)
		kinds[owner[p]] |= 1u << model->parameters[p].trainable;
	return kinds;
}

/* A flat unit that holds both becomes two: the frozen parameters come first, in the outer one.
 * Owners are then numbers of the new list, whose length is returned. */
static int split_units(
	const struct model *model, struct arena *arena, struct unit **units, int n, int *owner)
{
	const unsigned *kinds = kinds_owned(model, owner, n, arena);
	int *first = ARENA_ARRAY(arena, int, n), split = 0;
	struct unit *of = ARENA_ARRAY(arena, struct unit, 2 * n);
	for (int u = 0; u < n; u++) {
		first[u] = u + split;
		of[first[u]] = (*units)[u];
		if (kinds[u] != 3)
			continue;
		split++;
		of[first[u] + 1] = (*units)[u];
		of[first[u] + 1].name = unit_twin_name((*units)[u].name, arena);
	}
	for (int p = 0; p < model->n_parameters; p++)
		owner[p] =
			first[owner[p]] + (kinds[owner[p]] == 3 && model->parameters[p].trainable);
	*units = of;
	return n + split;
}

int units_build(const struct plan *plan, const struct model *model, struct arena *arena,
	struct unit **units)
{
	const struct runtime *runtime = runtime_of(plan->runtime);
	struct open_units open = {.depth = 0};
	struct wrapped *wrapped;
	int n = wrap_modules(plan, model, arena, &wrapped);
	*units = ARENA_ARRAY(arena, struct unit, n);
	int *owner = ARENA_ARRAY(arena, int, model->n_parameters);
	for (int u = 0; u < n; u++) {
		(*units)[u].name = unit_name(model, wrapped[u], arena);
		(*units)[u].module = wrapped[u].module;
		(*units)[u].end_module = wrapped[u].end_module;
		(*units)[u].of_experts = plan->mesh.expert > 1 &&
					 model->modules[wrapped[u].module].kind == MODULE_EXPERTS;
	}
	for (int p = 0; p < model->n_parameters; p++)
		owner[p] = innermost_unit(*units, n, model->parameters[p].module, &open);
	if (plan_layout(plan) != LAYOUT_PER_PARAMETER)
		n = split_units(model, arena, units, n, owner);
	int *counts = ARENA_ARRAY(arena, int, n);
	for (int p = 0; p < model->n_parameters; p++)
		counts[owner[p]]++;
	for (int u = 0; u < n; u++)
		(*units)[u].slices = ARENA_ARRAY(arena, struct unit_slice, counts[u]);
	for (int p = 0; p < model->n_parameters; p++)
		unit_add_slice(&(*units)[owner[p]], model, p);
	int64_t alignment = max_i64(1, runtime->alignment_bytes / dtype_bytes(plan->param_dtype));
	for (int u = 0; u < n; u++) {
		int64_t ranks = unit_shard_ranks(&(*units)[u], plan);
		if (plan_layout(plan) == LAYOUT_PARTITIONED)
			unit_lay_out_flat(&(*units)[u], model, ranks, ranks);
		else if (plan_layout(plan) == LAYOUT_PER_PARAMETER)
			unit_lay_out_per_parameter(&(*units)[u], model, ranks);
		else
			unit_lay_out_flat(&(*units)[u], model, alignment, ranks);
	}
	units_count_fp8(plan, model, *units, n);
	units_choose(plan, *units, n);
	return n;
}
