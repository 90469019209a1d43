/* DDP under autocast makes the low-precision weights of a range before its forward, and caches them
 * until its backward. Autocast leaves embeddings alone. */
#include "schedule/passes/sizes.h"

static bool is_cast(const struct step *step, const struct action *action)
{
	return action->kind == ACTION_FORWARD && step->ranges[action->range].slot >= 0 &&
	       range_parameters(step, action->range) > 0;
}

void pass_cast_by_range(struct step *step)
{
	if (step->method.weights != WEIGHTS_OF_BUCKETS || !step->method.casts)
		return;
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		if (is_cast(step, &old.items[i])) {
			struct action cast = action_at(&old.items[i], ACTION_CAST_RANGE, -1);
			cast.range = old.items[i].range;
			action_add(step, cast);
		}
		action_add(step, old.items[i]);
	}
	actions_end(&old);
}
