/* Measures how much of a step's communication is exposed, and how long the step computes. The meter
 * observes the engine, as that of memory does. */
#include <math.h>

#include "simulator/results.h"

static bool computes(const struct op *op)
{
	enum op_class class = op_kind_class(op->kind);
	return op->stream == STREAM_COMPUTE &&
	       (class == OP_CLASS_COMPUTE || class == OP_CLASS_TRAFFIC);
}

static bool spans_nodes(const struct schedule *schedule, const struct op *op)
{
	const struct group *group = &schedule->groups[op->group];
	return topology_place(schedule->topology, group->size, group->stride).nodes > 1;
}

static const struct op *running_on(const struct exposure_meter *meter, int stream)
{
	int op = meter->running[stream] - 1;
	return op >= 0 ? &meter->engine->program->ops[op] : NULL;
}

/* Adds the time since the last event to what ran meanwhile. */
static void account(struct exposure_meter *meter)
{
	const struct op *compute = running_on(meter, STREAM_COMPUTE);
	double elapsed = fmax(0, meter->engine->now - meter->at);
	meter->at = meter->engine->now;
	if (compute != NULL && computes(compute)) {
		meter->exposed.computing += elapsed;
		return;
	}
	for (int s = 0; s < STREAM_COUNT; s++) {
		const struct op *op = running_on(meter, s);
		enum collective_kind kind;
		if (op == NULL || !collective_kind_of(op->kind, &kind))
			continue;
		meter->exposed.seconds[kind] += elapsed;
		if (spans_nodes(meter->engine->schedule, op))
			meter->exposed.over_network[kind] += elapsed;
	}
}

/* What was added since `before` is added so many times more. */
static void add_more(int times, const struct exposed *before, struct exposed *now)
{
	for (int k = 0; k < COUNT_OF(now->seconds); k++) {
		now->seconds[k] += times * (now->seconds[k] - before->seconds[k]);
		now->over_network[k] += times * (now->over_network[k] - before->over_network[k]);
	}
	now->computing += times * (now->computing - before->computing);
}

/* The round of a pipeline that stands for others begins, or has ended. */
static void count_rounds(struct exposure_meter *meter, int op)
{
	const struct rounds *rounds = &meter->engine->program->rounds;
	if (rounds->n > 0 && op == rounds->first)
		meter->round_begin = meter->exposed;
	if (rounds->n > 0 && op == rounds->first + rounds->n)
		add_more(rounds->times - 1, &meter->round_begin, &meter->exposed);
}

/* Counts starts of the last step. */
static void on_start(void *self, int index, const struct cursor *at)
{
	struct exposure_meter *meter = self;
	const struct op *op = &meter->engine->program->ops[index];
	account(meter);
	count_rounds(meter, index);
	if (at->step == meter->engine->n_steps - 1)
		meter->running[op->stream] = index + 1;
	if (meter->other != NULL)
		meter->other->starts(meter->other->self, index, at);
}

static void on_end(void *self, int index)
{
	struct exposure_meter *meter = self;
	account(meter);
	meter->running[meter->engine->program->ops[index].stream] = 0;
	if (meter->other != NULL)
		meter->other->ends(meter->other->self, index);
}

static void on_mark(void *self, int depth)
{
	struct exposure_meter *meter = self;
	account(meter);
	meter->before[depth] = meter->marked[depth];
	meter->marked[depth] = (struct exposure_mark){meter->exposed, meter->at};
	if (meter->other != NULL)
		meter->other->mark(meter->other->self, depth);
}

static void on_repeat(void *self, int depth, int times)
{
	struct exposure_meter *meter = self;
	const struct exposure_mark *before = &meter->before[depth];
	add_more(times, &before->exposed, &meter->exposed);
	meter->at += times * (meter->at - before->at);
	if (meter->other != NULL)
		meter->other->repeat(meter->other->self, depth, times);
}

void exposure_init(struct exposure_meter *meter, struct engine *engine)
{
	*meter = (struct exposure_meter){.engine = engine,
		.other = engine->observer,
		.observer = {meter, on_start, on_end, on_mark, on_repeat}};
	engine->observer = &meter->observer;
}

struct exposed exposure_finish(struct exposure_meter *meter)
{
	const struct engine *engine = meter->engine;
	double alone = 0;
	for (int i = 0; i < engine->n_ops; i++)
		if (computes(&engine->program->ops[i]))
			alone += engine_times(engine, i) * engine->tasks[i].cost->device;
	meter->exposed.slowed = fmax(0, meter->exposed.computing - alone);
	return meter->exposed;
}
