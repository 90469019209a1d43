/* DeepSpeed's ZeRO-3 collects gradients in one buffer and reduce-scatters it when it is full,
 * beside backward. */
#include "schedule/passes/step.h"

struct collecting {
	struct step *step;
	const struct action *at;
	int first; /* the first leaf in the buffer; its leaves are the last of step->lists */
	int64_t elements;
};

static void flush(struct collecting *c)
{
	static const enum action_kind kinds[] = {
		ACTION_CAST_COLLECTED, ACTION_SCATTER_COLLECTED, ACTION_ADD_PARTITIONS};
	struct slice units = {c->first, c->step->lists.n - c->first};
	for (int i = 0; i < COUNT_OF(kinds) && c->elements > 0; i++) {
		struct action action = action_at(c->at, kinds[i], -1);
		action.units = units;
		action_add(c->step, action);
	}
	c->first = c->step->lists.n;
	c->elements = 0;
}

/* When the gradients of the next leaf do not fit, what is in the buffer leaves first. */
static void collect(struct collecting *c)
{
	int64_t elements = c->step->units[c->at->unit].gathered;
	if (c->elements + elements > c->step->method.bucket_elements)
		flush(c);
	action_add(c->step, action_at(c->at, ACTION_COLLECT_LEAF, c->at->unit));
	number_add(&c->step->lists, c->at->unit);
	c->elements += elements;
}

void pass_reduce_partitions(struct step *step)
{
	struct collecting c = {.step = step, .first = step->lists.n};
	if (step->method.reduces != REDUCES_PARTITIONS)
		return;
	struct action_list old = actions_begin(step);
	for (int i = 0; i < old.n; i++) {
		c.at = &old.items[i];
		if (c.at->kind == ACTION_REDUCE) {
			if (unit_has_parameters(step, c.at->unit))
				collect(&c);
			continue;
		}
		if (c.at->kind == ACTION_BACKWARD_DONE) {
			flush(&c);
			action_add(step, action_at(c.at, ACTION_END_PARTITIONS, -1));
			continue;
		}
		action_add(step, *c.at);
	}
	actions_end(&old);
}
