/* Adds forward, loss and backward in the order of the step, and the marks where hooks run. */
#include "schedule/passes/step.h"

static void add(
	struct step *step, const struct action *at, enum action_kind kind, int unit, int range)
{
	struct action action = action_at(at, kind, unit);
	action.range = range;
	action_add(step, action);
}

/* Does a pass through the stage come to this visit? */
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

/* Reshards what stayed gathered after forward because backward did not come to it. */
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
 * message is on its way (_add_reduce_grad, FSDPModule.finalize_backward). Until then gradients are
 * added up, and the parameters stay gathered. */
static bool reduces_behind(const struct step *step, const struct action *at)
{
	return at->flags & SYNCHRONISES && step->pipeline.ranks > 1 &&
	       step->method.reduces == REDUCES_UNITS && step->method.copies_out;
}

static void add_unit_kept(struct step *step, const struct action *at, int unit)
{
	add(step, at, ACTION_UNIT_DONE, unit, -1);
	add(step, at, ACTION_REDUCE, unit, -1);
}

static void add_backward_done(struct step *step, const struct action *at)
{
	add(step, at, ACTION_BACKWARD_DONE, -1, -1);
	step->actions.items[step->actions.n - 1].flags |= at->flags & LAST;
}

static void add_reductions(struct step *step, const struct action *at)
{
	for (int i = step->n_visits - 1; i >= 0; i--) {
		const struct visit *visit = &step->visits[i];
		if (visit->kind != VISIT_ENTER || !is_met(step, visit, at->chunk))
			continue;
		add(step, at, ACTION_POST_BACKWARD, visit->unit, -1);
		add(step, at, ACTION_REDUCE, visit->unit, -1);
	}
	add_backward_done(step, at);
}

/* Says what a pass does of a backward. The first stage needs no gradient of its input, so where
 * backward is split, all of it waits for the weight part (torch.distributed.pipelining.stage). */
struct part {
	enum action_kind compute;
	bool begins, ends; /* whether hooks run before it, and after it */
};

static struct part part_of(const struct step *step, const struct action *at)
{
	bool is_first = pipeline_stage(&step->pipeline, step->class, at->chunk) == 0;
	if (at->flags & INPUT_PART)
		return (struct part){ACTION_BACKWARD_INPUT, !is_first, false};
	if (at->flags & WEIGHT_PART && !is_first)
		return (struct part){ACTION_BACKWARD_WEIGHT, false, true};
	return (struct part){ACTION_BACKWARD, true, true};
}

/* Backward ends where nothing before it is trained. */
static void add_backward(struct step *step, const struct action *at, struct part part, bool keeps)
{
	for (int i = step->n_visits - 1; i >= 0; i--) {
		const struct visit *visit = &step->visits[i];
		if (!is_met(step, visit, at->chunk))
			continue;
		switch (visit->kind) {
		case VISIT_EXIT:
			if (part.begins && unit_goes_back(step, visit->unit))
				add(step, at, ACTION_PRE_BACKWARD, visit->unit, -1);
			break;
		case VISIT_RANGE:
			if (!range_goes_back(step, visit->range))
				break;
			add(step, at, part.compute, visit->unit, visit->range);
			if (part.ends)
				add(step, at, ACTION_RANGE_DONE, visit->unit, visit->range);
			break;
		case VISIT_ENTER:
			if (part.ends && keeps)
				add_unit_kept(step, at, visit->unit);
			else if (part.ends)
				add_unit_done(step, at, visit->unit);
			break;
		}
	}
}

/* Megatron waits for reductions when the last message is on its way (finalize_model_grads behind
 * the schedule). DDP's own backward ends with them (Reducer::finalize_backward), and nanotron's by
 * way of it. */
static bool sends_before_it_waits(const struct method *method)
{
	return method->reduces == REDUCES_BUCKETS && method->adds_at_once;
}

static void add_backward_pass(struct step *step, const struct action *at)
{
	struct part part = part_of(step, at);
	bool behind = part.ends && reduces_behind(step, at);
	bool sends_first = sends_before_it_waits(&step->method);
	struct action pass = *at;
	pass.flags &= behind ? ~(unsigned)SYNCHRONISES : ~0u;
	if (part.begins || part.ends)
		add_backward(step, &pass, part, behind);
	if (part.ends && !behind && !sends_first)
		add_backward_done(step, at);
	add(step, at, ACTION_PASS_ENDS, -1, -1);
	if (part.ends && sends_first)
		add_backward_done(step, at);
	if (behind)
		add_reductions(step, at);
}

void pass_compute(struct step *step)
{
	for (int i = 0; i < step->n_passes; i++) {
		const struct action *at = &step->order[i];
		add(step, at, ACTION_PASS_BEGINS, -1, -1);
		if (at->flags & IN_BACKWARD) {
			add_backward_pass(step, at);
			continue;
		}
		add_forward(step, at);
		add(step, at, ACTION_PASS_ENDS, -1, -1);
	}
}

/* --- FSDP1's hooks -------------------------------------------------------------------------------
 */

/* With forward prefetch it runs the hooks after a unit's backward one range late
 * (docs/runtimes.md). Only the root's hooks run in time. */
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
