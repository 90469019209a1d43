/* CPU offload (docs/schedule.md) edits the list: shards come in before they are read, reduced
 * gradients go out, and a shard that the device keeps comes back when the host has updated it. */
#include "schedule/passes/step.h"

struct offloading {
	struct step *step;
	const struct action *at;
	bool *has_gradient; /* per unit: the host has the gradient of an earlier micro-batch */
};

static struct action of_unit(const struct offloading *o, enum action_kind kind, int unit)
{
	struct action action = action_at(o->at, kind, unit);
	action.cause = o->at->cause;
	if (o->step->method.own_copy_streams &&
		(kind == ACTION_STAGE || kind == ACTION_RETURN_SHARD))
		action.stream = STREAM_COPY_IN;
	return action;
}

/* FSDP1 copies the shard in even when the unit is gathered already; nothing reads it then. */
static void stage_again(struct offloading *o)
{
	bool is_cast = unit_is_cast(o->step, o->at->unit);
	struct action stage = of_unit(o, ACTION_STAGE, o->at->unit);
	struct action cast = of_unit(o, ACTION_CAST_SHARD, o->at->unit);
	stage.flags |= is_cast ? 0 : DROPS;
	cast.flags |= DROPS;
	action_add(o->step, stage);
	if (is_cast)
		action_add(o->step, cast);
}

static void before(struct offloading *o)
{
	int unit = o->at->unit;
	if (o->at->kind == ACTION_CAST_WHOLE)
		for (int u = 0; u < o->step->n_units; u++)
			if (unit_is_offloaded(o->step, u))
				action_add(o->step, of_unit(o, ACTION_STAGE_MASTER, u));
	if (unit < 0 || !unit_parameters_are_offloaded(o->step, unit))
		return;
	if (o->at->flags & READS_SHARD)
		action_add(o->step, of_unit(o, ACTION_STAGE, unit));
	if ((o->at->flags & IS_PRESENT) && o->step->method.stages_again)
		stage_again(o);
}

/* The gradients of later micro-batches are added on the host. */
static void take_gradient(struct offloading *o)
{
	struct action out = of_unit(o, ACTION_UNSTAGE, o->at->unit);
	bool *has = &o->has_gradient[o->at->unit];
	out.stream = o->step->method.own_copy_streams ? STREAM_COPY_OUT : o->at->stream;
	out.flags |= (*has ? 0 : FIRST) | (o->at->flags & REDUCED_HERE);
	action_add(o->step, out);
	if (*has)
		action_add(o->step, of_unit(o, ACTION_ADD_ON_HOST, o->at->unit));
	*has = true;
}

/* Copies the shard that the device keeps back, if it keeps one. */
static void return_shards(struct offloading *o)
{
	for (int u = 0; u < o->step->n_units; u++)
		if ((u == o->at->unit || o->at->unit < 0) && unit_is_offloaded(o->step, u) &&
			o->step->resident[u].master_shard >= 0)
			action_add(o->step, of_unit(o, ACTION_RETURN_SHARD, u));
}

void pass_offload(struct step *step)
{
	struct offloading o = {.step = step};
	if (!plan_offloads_any(step->plan))
		return;
	struct action_list old = actions_begin(step);
	o.has_gradient = ARENA_ARRAY(step->arena, bool, step->n_units);
	for (int i = 0; i < old.n; i++) {
		o.at = &old.items[i];
		before(&o);
		if (o.at->kind == ACTION_GRADIENT_DONE && unit_is_offloaded(step, o.at->unit))
			take_gradient(&o);
		else
			action_add(step, *o.at);
		if (o.at->kind == ACTION_UPDATE && o.at->stream == STREAM_HOST &&
			step->method.weights != WEIGHTS_WHOLE)
			return_shards(&o);
	}
	actions_end(&old);
}
