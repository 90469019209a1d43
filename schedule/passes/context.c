/* Context parallelism by all-gather (Llama 3, 2407.21783, and torch's allgather rotation): a rank
 * computes attention of its own queries over the keys and values of all ranks, and what it finds of
 * their gradients is scattered back. */
#include "schedule/passes/step.h"

/* The first of several parts: keys and values are there for the others. */
static bool is_first(const struct action *action)
{
	return action->kind != ACTION_RECOMPUTE || action->flags & FIRST;
}

void pass_context(struct step *step)
{
	if (step->group_context < 0)
		return;
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		struct action action = old.items[i];
		bool computes = action.kind == ACTION_FORWARD || action.kind == ACTION_RECOMPUTE ||
				action_makes_input(&action);
		bool gathers = computes && step->ranges[action.range].gathers_keys;
		bool back = gathers && action_makes_input(&action);
		if (gathers && is_first(&action))
			action_add_beside(step, &action, ACTION_GATHER_KEYS, 0);
		action.flags |= back ? LEAVES_KEYS : 0;
		action_add(step, action);
		if (back)
			action_add_beside(step, &action, ACTION_SCATTER_KEYS, 0);
	}
	actions_end(&old);
}
