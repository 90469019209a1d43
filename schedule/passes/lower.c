/* Turns actions into operations in one walk. The function of an action names the buffers of its
 * operation, and buffers are numbered in the order in which they are taken. */
#include "schedule/passes/lower.h"

#include <stdlib.h>

static const struct {
	enum op_kind kind;
	void (*lower)(struct lowering *l); /* NULL: the action is a mark, which is skipped */
} lowerings[ACTION_KIND_COUNT] = {
#define X(suffix, kind, stream, ...) [ACTION_##suffix] = {OP_##kind, lower_##suffix},
	ACTIONS(X)
#undef X
};

/* --- the walk ------------------------------------------------------------------------------------
 */

static struct slice keep(struct lowering *l, struct numbers *list)
{
	struct slice slice = {l->step->indices.n, list->n};
	for (int i = 0; i < list->n; i++)
		number_add(&l->step->indices, list->items[i]);
	list->n = 0;
	return slice;
}

static struct op op_of(const struct step *step, const struct action *action)
{
	return (struct op){
		.kind = lowerings[action->kind].kind,
		.stream = action->stream,
		.unit = action->unit,
		.micro_batch = action->micro_batch,
		.group = -1,
		.layer = -1,
		.cause = action->cause,
		.dtype = step->plan->param_dtype,
	};
}

static int lower(struct lowering *l, const struct action *action)
{
	struct step *step = l->step;
	l->at = action;
	if (action->kind == ACTION_GRADIENT_DONE)
		lower_gradient_done(&l->units[action->unit]);
	else if (action->kind == ACTION_HAND_OVER)
		lower_hand_over(l);
	else if (action->kind == ACTION_TAKE_OVER)
		lower_take_over(l);
	if (lowerings[action->kind].lower == NULL)
		return -1;
	l->op = op_of(step, action);
	lowerings[action->kind].lower(l);
	l->op.takes = keep(l, &l->takes);
	l->op.gives = keep(l, &l->gives);
	l->op.uses = keep(l, &l->uses);
	step->ops[step->n_ops] = l->op;
	return step->n_ops++;
}

static int operations_of(const struct action_list *actions)
{
	int n = 0;
	for (int i = 0; i < actions->n; i++)
		n += lowerings[actions->items[i].kind].lower != NULL;
	return n;
}

static int *none(struct arena *arena, int64_t n)
{
	int *items = ARENA_ARRAY(arena, int, n);
	for (int64_t i = 0; i < n; i++)
		items[i] = -1;
	return items;
}

static struct live live_at_first(const struct resident *resident)
{
	return (struct live){.unsharded = resident->kept,
		.gathered = -1,
		.staged = -1,
		.low_precision = -1,
		.resharded = -1,
		.gradient = -1,
		.reducing = -1,
		.partial = -1,
		.gradient_shard = resident->gradient_shard,
		.host_gradient = -1};
}

static struct flight no_flight(const struct step *step)
{
	struct arena *arena = step->arena;
	return (struct flight){.saved = none(arena, step->n_ranges),
		.results = none(arena, step->n_ranges),
		.outputs = none(arena, step->n_ranges),
		.copies = none(arena, step->n_ranges),
		.residuals = none(arena, step->model->architecture.layers + 2),
		.tokens = -1,
		.logits = -1,
		.backward_work = -1,
		.stage_work = -1,
		.gathered = {-1, -1},
		.partial = -1,
		.keys = -1,
		.partial_keys = -1,
		.received = -1,
		.rows = none(arena, step->n_ranges),
		.rows_leaving = -1,
		.rows_returned = -1};
}

static void begin(struct lowering *l, struct step *step)
{
	struct arena *arena = step->arena;
	*l = (struct lowering){.step = step,
		.work = backward_work_of(step),
		.range_gradients = none(arena, step->n_ranges),
		.collector = -1,
		.implicit_gathered = -1,
		.input_in_flight = -1,
		.scalars = -1,
		.results = -1,
		.sums = -1,
		.found = -1};
	l->units = ARENA_ARRAY(arena, struct live, step->n_units);
	l->reaches = ARENA_ARRAY(arena, struct reach, step->n_units);
	l->handed = none(arena, step->plan->grad_accum * step->pipeline.chunks);
	for (int u = 0; u < step->n_units; u++) {
		l->units[u] = live_at_first(&step->resident[u]);
		l->has_frozen = l->has_frozen || !unit_is_trained(step, u);
	}
	l->flights = ARENA_ARRAY(arena, struct flight, step->n_flights);
	for (int f = 0; f < step->n_flights; f++)
		l->flights[f] = no_flight(step);
}

void pass_lower(struct step *step)
{
	struct lowering l;
	begin(&l, step);
	step->ops = ARENA_ARRAY(step->arena, struct op, operations_of(&step->actions));
	step->of_action = ARENA_ARRAY(step->arena, int, step->actions.n);
	for (int i = 0; i < step->actions.n; i++)
		step->of_action[i] = lower(&l, &step->actions.items[i]);
	for (int u = 0; u < step->n_units; u++)
		free(l.units[u].range_gradients.items);
	free(l.leaving.items);
	free(l.blocks.items);
	free(l.shared.items);
	free(l.takes.items);
	free(l.gives.items);
	free(l.uses.items);
	free(l.users.items);
}
