/* FSDP1 with forward prefetch runs the hooks after a unit's backward one range late
 * (docs/runtimes.md). Only the root's hooks run in time. */
#include "schedule/passes/step.h"

static bool is_hook(const struct action *action)
{
	return action->kind == ACTION_UNIT_DONE || action->kind == ACTION_POST_BACKWARD ||
	       action->kind == ACTION_REDUCE;
}

/* Holds the three marks of one unit. */
struct delayed {
	struct action marks[3];
	int n;
};

static void flush(struct step *step, struct delayed *delayed)
{
	for (int i = 0; i < delayed->n; i++)
		action_add(step, delayed->marks[i]);
	delayed->n = 0;
}

void pass_delay(struct step *step)
{
	struct delayed delayed = {.n = 0};
	if (!step->method.delays_post_backward)
		return;
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		const struct action *action = &old.items[i];
		if (action->kind == ACTION_UNIT_DONE)
			flush(step, &delayed);
		if (is_hook(action) && action->unit != 0) {
			delayed.marks[delayed.n++] = *action;
			continue;
		}
		action_add(step, *action);
		if (action->kind == ACTION_BACKWARD)
			flush(step, &delayed);
	}
	actions_end(&old);
}
