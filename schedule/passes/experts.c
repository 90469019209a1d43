/* Expert parallelism, as torchtitan has it: ranks hold experts of their own, tokens go to them and
 * come back (docs/runtimes.md). A rank first tells the others how many rows it has for each expert;
 * the host waits for that, because buffers are as large as it says. Backward knows it already. */
#include "schedule/passes/step.h"

static bool is_selective(const struct step *step, const struct action *action)
{
	return range_checkpointing(step, action->range) == CHECKPOINTING_SELECTIVE;
}

static void add_experts(struct step *step, struct action action)
{
	bool back = action_makes_input(&action);
	action.flags |= LEAVES_ROWS;
	if (action.kind == ACTION_FORWARD && is_selective(step, &action))
		action.flags |= KEEPS_ROWS;
	if (!back)
		action_add_beside(step, &action, ACTION_COUNT_ROWS, 0);
	action_add_beside(step, &action, ACTION_DISPATCH_ROWS, 0);
	action_add(step, action);
	action_add_beside(step, &action, ACTION_COMBINE_ROWS, back ? 0 : OF_INPUT);
}

/* Selective checkpointing keeps what collectives brought: they are not repeated. */
void pass_experts(struct step *step)
{
	if (step->group_expert < 0)
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
