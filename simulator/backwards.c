/* When the backwards of three micro-batches end on a rank: a meter that watches the engine. */
#include "simulator/results.h"

static void on_start(void *self, int index, const struct cursor *at)
{
	const struct observer *other = ((struct backward_meter *)self)->other;
	if (other != NULL)
		other->starts(other->self, index, at);
}

/* Of the last step, the last operation of each. */
static void on_end(void *self, int index)
{
	struct backward_meter *meter = self;
	const struct op *op = &meter->engine->program->ops[index];
	for (int i = 0; i < BACKWARDS && op->kind == OP_BACKWARD; i++)
		if (op->micro_batch == meter->micro_batches[i])
			meter->ended[i] = meter->engine->now;
	if (meter->other != NULL)
		meter->other->ends(meter->other->self, index);
}

static void on_mark(void *self, int depth)
{
	const struct observer *other = ((struct backward_meter *)self)->other;
	if (other != NULL)
		other->mark(other->self, depth);
}

static void on_repeat(void *self, int depth, int times)
{
	const struct observer *other = ((struct backward_meter *)self)->other;
	if (other != NULL)
		other->repeat(other->self, depth, times);
}

void backward_init(
	struct backward_meter *meter, struct engine *engine, const int64_t micro_batches[BACKWARDS])
{
	*meter = (struct backward_meter){.engine = engine,
		.other = engine->observer,
		.observer = {meter, on_start, on_end, on_mark, on_repeat},
		.micro_batches = {micro_batches[0], micro_batches[1], micro_batches[2]}};
	engine->observer = &meter->observer;
}
