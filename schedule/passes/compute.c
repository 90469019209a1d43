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

/* PyTorch's pipelines reduce FSDP2's gradients behind the last backward through a stage, when its
 * message is on its way (_add_reduce_grad, FSDPModule.finalize_backward): until then they are added
 * up, and the parameters stay. */
static bool reduces_behind(const struct step *step, const struct entry *entry)
{
	return entry->is_backward && entry->synchronises && step->pipeline.ranks > 1 &&
	       step->method.reduces == REDUCES_UNITS && step->method.copies_out;
}

static void add_unit_kept(struct step *step, const struct action *at, int unit)
{
	add(step, at, ACTION_UNIT_DONE, unit, -1);
	add(step, at, ACTION_REDUCE, unit, -1);
}

static void add_backward_done(struct step *step, const struct action *at, bool ends)
{
	add(step, at, ACTION_BACKWARD_DONE, -1, -1);
	step->actions.items[step->actions.n - 1].flags |= ends ? LAST : 0;
}

static void add_reductions(struct step *step, const struct action *at, bool ends)
{
	for (int i = step->n_visits - 1; i >= 0; i--) {
		const struct visit *visit = &step->visits[i];
		if (visit->kind != VISIT_ENTER || !is_met(step, visit, at->chunk))
			continue;
		add(step, at, ACTION_POST_BACKWARD, visit->unit, -1);
		add(step, at, ACTION_REDUCE, visit->unit, -1);
	}
	add_backward_done(step, at, ends);
}

/* It ends where nothing before is trained. */
static void add_backward(struct step *step, const struct action *at, bool keeps)
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
			if (keeps)
				add_unit_kept(step, at, visit->unit);
			else
				add_unit_done(step, at, visit->unit);
			break;
		}
	}
}

static void add_backward_pass(struct step *step, const struct entry *entry, struct action at)
{
	bool behind = reduces_behind(step, entry);
	struct action pass = at;
	pass.flags &= behind ? ~(unsigned)SYNCHRONISES : ~0u;
	add_backward(step, &pass, behind);
	if (!behind)
		add_backward_done(step, &at, entry->ends);
	add(step, &at, ACTION_PASS_ENDS, -1, -1);
	if (behind)
		add_reductions(step, &at, entry->ends);
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
		if (entry->is_backward) {
			add_backward_pass(step, entry, at);
			continue;
		}
		add_forward(step, &at);
		add(step, &at, ACTION_PASS_ENDS, -1, -1);
	}
}
