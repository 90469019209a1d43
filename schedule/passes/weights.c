/* What compute reads its parameters from. */
#include "schedule/passes/passes.h"

static bool has_parameters(const struct builder *b, int unit)
{
	return b->schedule->units[unit].parameters > 0;
}

void op_use_parameters(struct builder *b, int unit)
{
	struct unit_state *state = &b->units[unit];
	if (!has_parameters(b, unit))
		return;
	op_wait(b, state->ready);
	if (!b->shards)
		op_wait(b, state->returned);
	op_use(b, state->unsharded >= 0 ? state->unsharded : state->parameter_shard);
}

/* Parameters are read from all buckets of the range, or from its cached copy. */
void use_bucket_weights(struct builder *b, const struct event *event, int copy)
{
	if (copy >= 0) {
		op_use(b, copy);
		return;
	}
	int tied = b->model->modules[event->end_module - 1].tied_parameter;
	for (int u = 0; u < b->n_units; u++) {
		const struct unit *bucket = &b->schedule->units[u];
		for (int i = 0; i < bucket->n_slices; i++) {
			int parameter = bucket->slices[i].parameter;
			int module = b->model->parameters[parameter].module;
			if (parameter == tied ||
				(module >= event->first_module && module < event->end_module))
				op_use(b, b->units[u].parameter_shard);
		}
	}
}

/* The first compute of a step comes after the gather that ended the step before. */
void zero_use_weights(struct builder *b)
{
	op_wait(b, b->whole_ready);
	if (b->whole_ready.step < b->step)
		b->whole_ready = no_ref();
	op_use(b, b->whole);
}

void ddp_use_weights(struct builder *b, int index)
{
	if (is_zero(b))
		zero_use_weights(b);
	else
		use_bucket_weights(b, &b->events[index], b->copies[index]);
}

void op_use_weights(struct builder *b, int event)
{
	if (is_ddp(b))
		ddp_use_weights(b, event);
	else
		op_use_parameters(b, b->events[event].unit);
}
