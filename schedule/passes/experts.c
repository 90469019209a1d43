/* Expert parallelism: ranks hold experts of their own, tokens go to them and come back
 * (docs/runtimes.md). Ranks first tell one another how many rows they have for each expert; the
 * host waits for that, because buffers are as large as it says. Backward knows it already.
 *
 * As torchtitan has it, the ranks that cut an expert get all its rows each. As Megatron-LM has it,
 * each gets those of its part of the residual stream, and they gather them; results are summed and
 * scattered again. The weights of rows go the same way behind them, and their gradients come back
 * before them. */
#include "schedule/passes/step.h"

static const struct expert_rules *rules_of(const struct step *step)
{
	return &runtime_of(step->plan->runtime)->experts;
}

static bool is_selective(const struct step *step, const struct action *action)
{
	return range_checkpointing(step, action->range) == CHECKPOINTING_SELECTIVE &&
	       !step->method.recomputes_attention;
}

/* Where all experts get as many rows, everybody knows how many. */
static void add_counts(struct step *step, const struct action *action)
{
	if (step->plan->capacity_factor > 0)
		return;
	action_add_beside(step, action,
		step->group_expert_all >= 0 ? ACTION_GATHER_COUNTS : ACTION_COUNT_ROWS, 0);
}

static void add_to_experts(struct step *step, const struct action *action, bool weighed)
{
	if (step->group_expert >= 0)
		action_add_beside(step, action, ACTION_DISPATCH_ROWS, 0);
	if (step->group_expert >= 0 && weighed)
		action_add_beside(step, action, ACTION_DISPATCH_ROWS, OF_WEIGHTS);
	if (step->group_expert_tensor >= 0)
		action_add_beside(step, action, ACTION_GATHER_ROWS, 0);
	if (step->group_expert_tensor >= 0 && weighed)
		action_add_beside(step, action, ACTION_GATHER_ROWS, OF_WEIGHTS);
}

static void add_from_experts(
	struct step *step, const struct action *action, unsigned flags, bool weighed)
{
	if (step->group_expert_tensor >= 0 && weighed)
		action_add_beside(step, action, ACTION_SCATTER_ROWS, flags | OF_WEIGHTS);
	if (step->group_expert_tensor >= 0)
		action_add_beside(step, action, ACTION_SCATTER_ROWS, flags);
	if (step->group_expert >= 0 && weighed)
		action_add_beside(step, action, ACTION_COMBINE_ROWS, flags | OF_WEIGHTS);
	if (step->group_expert >= 0)
		action_add_beside(step, action, ACTION_COMBINE_ROWS, flags);
}

static void add_experts(struct step *step, struct action action)
{
	bool back = action_makes_input(&action), weighed = rules_of(step)->weighs_activations;
	action.flags |= LEAVES_ROWS;
	if (action.kind == ACTION_FORWARD && is_selective(step, &action))
		action.flags |= KEEPS_ROWS;
	if (!back)
		add_counts(step, &action);
	add_to_experts(step, &action, weighed && !back);
	action_add(step, action);
	add_from_experts(step, &action, back ? 0 : OF_INPUT, weighed && back);
}

/* Selective checkpointing keeps what collectives brought: they are not repeated. */
void pass_experts(struct step *step)
{
	if (step->group_expert < 0 && step->group_expert_tensor < 0)
		return;
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		const struct action *action = &old.items[i];
		bool again = action->kind == ACTION_RECOMPUTE;
		bool computes =
			action->kind == ACTION_FORWARD || again || action_makes_input(action);
		if (computes && step->ranges[action->range].receives_rows &&
			!(again && is_selective(step, action)))
			add_experts(step, *action);
		else
			action_add(step, *action);
	}
	actions_end(&old);
}
