/* Forward, loss and backward in the order of the step, and the marks where hooks run. */
#include "schedule/passes/step.h"

static void add(
	struct step *step, const struct action *at, enum action_kind kind, int unit, int range)
{
	struct action action = action_at(at, kind, unit);
	action.range = range;
	action_add(step, action);
}

/* Does a pass through a stage of the rank come by? */
static bool is_met(const struct step *step, const struct visit *visit, int chunk)
{
	return visit->kind == VISIT_RANGE ? step->ranges[visit->range].chunk == chunk
					  : unit_is_in_chunk(step, visit->unit, chunk);
}

static void add_forward(struct step *step, const struct action *at)
{
	for (int i = 0; i < step->n_visits; i++) {
		const struct visit *visit = &step->visits[i];
		if (!is_met(step, visit, at->chunk))
			continue;
		switch (visit->kind) {
		case VISIT_ENTER:
			add(step, at, ACTION_PRE_FORWARD, visit->unit, -1);
			break;
		case VISIT_RANGE:
			add(step, at, ACTION_FORWARD, visit->unit, visit->range);
			break;
		case VISIT_EXIT:
			add(step, at, ACTION_POST_FORWARD, visit->unit, -1);
			break;
		}
	}
	if (chunk_has_loss(step, at->chunk))
		add(step, at, ACTION_LOSS, -1, -1);
}

/* What stayed gathered after forward is resharded though backward did not come to it. */
static void add_unit_done(struct step *step, const struct action *at, int unit)
{
	bool is_trained = unit_is_trained(step, unit) || !unit_has_parameters(step, unit);
	if (is_trained)
		add(step, at, ACTION_UNIT_DONE, unit, -1);
	add(step, at, ACTION_POST_BACKWARD, unit, -1);
	if (is_trained)
		add(step, at, ACTION_REDUCE, unit, -1);
}

/* It ends where nothing before is trained. */
static void add_backward(struct step *step, const struct action *at, bool ends)
{
	for (int i = step->n_visits - 1; i >= 0; i--) {
		const struct visit *visit = &step->visits[i];
		if (!is_met(step, visit, at->chunk))
			continue;
		switch (visit->kind) {
		case VISIT_EXIT:
			if (unit_goes_back(step, visit->unit))
				add(step, at, ACTION_PRE_BACKWARD, visit->unit, -1);
			break;
		case VISIT_RANGE:
			if (!range_goes_back(step, visit->range))
				break;
			add(step, at, ACTION_BACKWARD, visit->unit, visit->range);
			add(step, at, ACTION_RANGE_DONE, visit->unit, visit->range);
			break;
		case VISIT_ENTER:
			add_unit_done(step, at, visit->unit);
			break;
		}
	}
	add(step, at, ACTION_BACKWARD_DONE, -1, -1);
	step->actions.items[step->actions.n - 1].flags |= ends ? LAST : 0;
}

void pass_compute(struct step *step)
{
	for (int i = 0; i < step->n_entries; i++) {
		const struct entry *entry = &step->order[i];
		struct action at = {.flags = (entry->is_backward ? IN_BACKWARD : 0) |
					     (entry->synchronises ? SYNCHRONISES : 0),
			.micro_batch = entry->micro_batch,
			.flight = entry->flight,
			.chunk = entry->chunk};
		add(step, &at, ACTION_PASS_BEGINS, -1, -1);
		if (entry->is_backward)
			add_backward(step, &at, entry->ends);
		else
			add_forward(step, &at);
		add(step, &at, ACTION_PASS_ENDS, -1, -1);
	}
}
