/* What checkpointing dropped is computed again, a whole block before the backward of its last
 * range. */
#include "schedule/passes/step.h"

/* Adds a part of a range. The first of several parts takes the buffer that all of them fill. */
static void add_part(
	struct step *step, const struct action *at, int range, int first, int end, bool is_first)
{
	struct action action = action_at(at, ACTION_RECOMPUTE, step->ranges[range].unit);
	action.range = range;
	action.first_module = first;
	action.end_module = end;
	action.flags |= is_first ? FIRST : 0;
	action_add(step, action);
}

/* The block's output is not needed again, but an adapter of DOWN keeps something that is. */
static bool needs_result(const struct step *step, int module)
{
	const struct module *m = &step->model->modules[module];
	return m->kind != MODULE_DOWN || m->adapter >= 0;
}

/* Selective checkpointing follows torchtitan's per-operator policy: of the matrix products of a
 * block the result of every second one is kept, and that of flash attention; everything else is
 * computed again. A projection with a bias is another operator (addmm), which the policy does not
 * keep (docs/runtimes.md). Megatron-Core computes the modules that the plan names again, to their
 * end. */
static bool is_again(const struct step *step, int module)
{
	return (step->method.recomputes_modules || needs_result(step, module)) &&
	       !plan_selective_keeps(step->plan, step->model, module);
}

/* Leaves that follow one another are one operation. */
static void add_selective(struct step *step, const struct action *at, int index)
{
	const struct range *range = &step->ranges[index];
	bool is_first = true;
	for (int m = range->first_module; m < range->end_module;) {
		int end = m;
		if (!module_kind_is_leaf(step->model->modules[m].kind) || !is_again(step, m)) {
			m++;
			continue;
		}
		while (end < range->end_module && is_again(step, end))
			end++;
		add_part(step, at, index, m, end, is_first);
		is_first = false;
		m = end;
	}
}

/* Our own recomputation stops at the last saved tensor. */
static void add_range(struct step *step, const struct action *at, int index)
{
	const struct range *range = &step->ranges[index];
	bool needed_only = step->method.needed_tensors_only;
	int end = range->end_module;
	if (range_checkpointing(step, index) == CHECKPOINTING_SELECTIVE) {
		add_selective(step, at, index);
		return;
	}
	if (needed_only && !needs_result(step, end - 1))
		end--;
	if (end > range->first_module && !(needed_only && range->saved_bytes == 0))
		add_part(step, at, index, range->first_module, end, true);
}

/* PyTorch's hooks run again. A unit inside of the block is gathered when it is computed and
 * resharded as after its forward, because its own backward is still to come. */
static void add_by_unit(struct step *step, const struct action *at, int first, int last)
{
	int end = step->ranges[last].visit;
	while (end + 1 < step->n_visits && step->visits[end + 1].kind == VISIT_EXIT)
		end++;
	for (int i = step->ranges[first].visit; i <= end; i++) {
		const struct visit *visit = &step->visits[i];
		if (visit->kind == VISIT_RANGE) {
			action_add(step, action_at(at, ACTION_PRE_RECOMPUTE, visit->unit));
			add_range(step, at, visit->range);
		} else if (visit->kind == VISIT_EXIT) {
			action_add(step, action_at(at, ACTION_POST_RECOMPUTE, visit->unit));
		}
	}
}

static void add_block(struct step *step, const struct action *at, int last)
{
	int first = slot_begin(step, last);
	if (step->method.recomputes_by_unit) {
		add_by_unit(step, at, first, last);
		return;
	}
	for (int r = first; r <= last && step->method.weights == WEIGHTS_OF_UNIT; r++) {
		int unit = step->ranges[r].unit, twin = unit_twin(step, unit);
		if (twin >= 0)
			action_add(step, action_at(at, ACTION_PRE_RECOMPUTE, twin));
		action_add(step, action_at(at, ACTION_PRE_RECOMPUTE, unit));
	}
	for (int r = first; r <= last; r++)
		add_range(step, at, r);
}

void pass_recompute(struct step *step)
{
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		const struct action *action = &old.items[i];
		if (action->kind == ACTION_BACKWARD && step->ranges[action->range].last_of_slot &&
			range_checkpointing(step, action->range) != CHECKPOINTING_NONE)
			add_block(step, action, action->range);
		action_add(step, *action);
	}
	actions_end(&old);
}
