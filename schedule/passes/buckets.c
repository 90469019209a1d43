/* The gradients that a bucket is made of. */
#include "schedule/passes/passes.h"

/* The gradient of a tied weight lies in the head's range, which backward meets first. */
static int gradient_event(const struct builder *b, int parameter)
{
	int head = b->model->n_modules - 1, event = b->n_events - 1;
	if (parameter != b->model->modules[head].tied_parameter)
		return b->owner_events[parameter];
	while (b->events[event].kind != EVENT_RANGE)
		event--;
	return event;
}

void ddp_use_bucket_gradients(struct builder *b, int bucket)
{
	const struct unit *unit = &b->schedule->units[bucket];
	for (int i = 0; i < unit->n_slices; i++)
		op_use(b, b->range_gradients[gradient_event(b, unit->slices[i].parameter)]);
}
