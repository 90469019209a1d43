/* The order in which a forward pass meets units and leaves. */
#include "schedule/passes/passes.h"

struct walk {
	struct builder *b;
	int stack[64];
	int depth;
	int next_unit; /* units are in preorder */
};

static struct event *add_event(struct builder *b, enum event_kind kind, int unit)
{
	struct event *event = &b->events[b->n_events++];
	*event = (struct event){.kind = kind, .unit = unit, .layer = -1};
	return event;
}

static void enter_units(struct walk *walk, int module)
{
	struct builder *b = walk->b;
	while (walk->next_unit < b->n_units &&
		b->schedule->units[walk->next_unit].module == module) {
		int u = walk->next_unit++;
		add_event(b, EVENT_ENTER, u);
		b->units[u].pre_forward_index = b->n_order;
		b->pre_order[b->n_order++] = u;
		walk->stack[walk->depth++] = u;
	}
}

static void exit_units(struct walk *walk, int module, int *n_post)
{
	struct builder *b = walk->b;
	while (walk->depth > 0 &&
		b->schedule->units[walk->stack[walk->depth - 1]].end_module <= module) {
		int u = walk->stack[--walk->depth];
		add_event(b, EVENT_EXIT, u);
		b->units[u].post_forward_index = *n_post;
		b->post_order[(*n_post)++] = u;
	}
}

/* Embeddings, their norm and projection come before block 0, the final norm and the head after the
 * last block. */
static int slot_of(const struct builder *b, int module)
{
	int layer = b->model->modules[module].layer;
	enum module_kind kind = b->model->modules[module].kind;
	if (layer >= 0)
		return layer;
	bool embedding = kind == MODULE_EMBEDDING || kind == MODULE_POSITION_EMBEDDING ||
			 kind == MODULE_EMBEDDING_NORM || kind == MODULE_EMBEDDING_PROJECTION;
	return embedding ? -1 : (int)b->model->architecture.layers;
}

/* Leaves of one slot that follow one another form one range. */
static void add_leaf(struct walk *walk, int module)
{
	struct builder *b = walk->b;
	int slot = slot_of(b, module);
	int unit = walk->depth > 0 ? walk->stack[walk->depth - 1] : -1; /* DDP has no units */
	struct event *last = b->n_events > 0 ? &b->events[b->n_events - 1] : NULL;
	if (last == NULL || last->kind != EVENT_RANGE || last->slot != slot) {
		last = add_event(b, EVENT_RANGE, unit);
		last->first_module = module;
		last->layer = b->model->modules[module].layer;
		last->slot = slot;
	}
	last->end_module = module + 1;
}

static void mark_slots(struct builder *b)
{
	struct event *previous = NULL;
	for (int i = 0; i < b->n_events; i++) {
		struct event *event = &b->events[i];
		if (event->kind != EVENT_RANGE)
			continue;
		event->last_of_slot = true;
		event->first_of_slot = previous == NULL || previous->slot != event->slot;
		if (!event->first_of_slot)
			previous->last_of_slot = false;
		previous = event;
	}
}

void build_walk(struct builder *b)
{
	struct walk walk = {.b = b};
	int n_post = 0;
	b->events = ARENA_ARRAY(b->arena, struct event, 3 * b->model->n_modules + 2 * b->n_units);
	b->pre_order = ARENA_ARRAY(b->arena, int, b->n_units);
	b->post_order = ARENA_ARRAY(b->arena, int, b->n_units);
	for (int m = 0; m < b->model->n_modules; m++) {
		exit_units(&walk, m, &n_post);
		if (!is_ddp(b))
			enter_units(&walk, m);
		if (module_kind_is_leaf(b->model->modules[m].kind))
			add_leaf(&walk, m);
	}
	exit_units(&walk, b->model->n_modules, &n_post);
	mark_slots(b);
}
