/* The critical path: backwards from the last operation of the last step, always to the operation
 * for which the start waited longest. */
#include <math.h>

#include "simulator/results.h"

static const struct task *task_of(const struct engine *engine, int instance)
{
	return &engine->tasks[instance % engine->n_ops];
}

struct cause {
	enum critical_reason reason;
	int instance; /* -1: none, the step begins */
};

/* The latest instance before `instance` on the same stream or engine; -1: there is none. */
static int before(const struct engine *engine, int instance, bool same_communicator)
{
	const struct task *task = task_of(engine, instance);

	for (int i = instance - 1; i >= 0 && i >= instance - engine->n_ops; i--) {
		const struct task *other = task_of(engine, i);

		if (same_communicator ? other->communicator == task->communicator
				      : other->queue == task->queue)
			return i;
	}
	return -1;
}

static void consider(const struct engine *engine, int candidate, enum critical_reason reason,
	struct cause *cause)
{
	double known = cause->instance < 0 ? -INFINITY : engine->record->end[cause->instance];

	if (candidate >= 0 && engine->record->end[candidate] > known)
		*cause = (struct cause){reason, candidate};
}

static void consider_waits(const struct engine *engine, const struct wait *waits, int n, int base,
	enum critical_reason reason, struct cause *cause)
{
	for (int i = 0; i < n; i++)
		consider(engine, base + waits[i].place.first, reason, cause);
}

/* The reason why the host issued `instance` when it did: the operation for which it waited last. */
static struct cause host_cause(const struct engine *engine, int instance)
{
	int first = instance - instance % engine->n_ops;

	for (int i = instance; i >= first; i--) {
		const struct task *task = task_of(engine, i);
		struct cause cause = {CRITICAL_HOST, -1};
		double free = i == 0 ? 0 : engine->record->host_done[i - 1];

		consider_waits(engine, task_host_waits(task), task->n_host_waits,
			i - i % engine->n_ops, CRITICAL_HOST, &cause);
		consider(engine, engine->record->drained_by[i], CRITICAL_ALLOCATOR, &cause);
		if (i > 0 && task_of(engine, i - 1)->blocks_host)
			consider(engine, i - 1, CRITICAL_HOST, &cause);
		if (cause.instance >= 0 && engine->record->end[cause.instance] > free)
			return cause;
	}
	return (struct cause){CRITICAL_HOST, -1};
}

static struct cause cause_of(const struct engine *engine, int instance)
{
	const struct task *task = task_of(engine, instance);
	struct cause cause = {CRITICAL_START, -1};

	consider_waits(engine, task->waits, task->n_waits, instance - instance % engine->n_ops,
		CRITICAL_WAIT, &cause);
	consider(engine, before(engine, instance, false), CRITICAL_STREAM, &cause);
	if (task->communicator >= 0)
		consider(engine, before(engine, instance, true), CRITICAL_ENGINE, &cause);
	if (cause.instance < 0 ||
		engine->record->issued[instance] > engine->record->end[cause.instance])
		cause = host_cause(engine, instance);
	if (cause.instance < 0 &&
		(instance % engine->n_ops == 0 ||
			engine->record->issued[instance] <= engine_step_begin(engine)))
		cause.reason = CRITICAL_START;
	return cause;
}

static int last_to_finish(const struct engine *engine)
{
	int first = (engine->n_steps - 1) * engine->n_ops, last = first;

	for (int i = first; i < engine->n_steps * engine->n_ops; i++)
		if (engine->record->end[i] >= engine->record->end[last])
			last = i;
	return last;
}

static void reverse(struct critical_path *path)
{
	for (int i = 0, j = path->n - 1; i < j; i++, j--) {
		int op = path->ops[i];
		enum critical_reason reason = path->reasons[i];

		path->ops[i] = path->ops[j];
		path->reasons[i] = path->reasons[j];
		path->ops[j] = op;
		path->reasons[j] = reason;
	}
}

void critical_path(const struct engine *engine, struct arena *arena, struct critical_path *path)
{
	int first = (engine->n_steps - 1) * engine->n_ops;
	int instance = engine->n_ops > 0 ? last_to_finish(engine) : -1;

	*path = (struct critical_path){.ops = ARENA_ARRAY(arena, int, engine->n_ops),
		.reasons = ARENA_ARRAY(arena, enum critical_reason, engine->n_ops)};
	while (instance >= first && path->n < engine->n_ops) {
		struct cause cause = cause_of(engine, instance);

		path->ops[path->n] = instance - first;
		/* A cause in the step before counts as the start of this step. */
		if (cause.instance >= 0 && cause.instance < first)
			cause.reason = CRITICAL_START;
		path->reasons[path->n++] = cause.reason;
		instance = cause.instance;
	}
	reverse(path);
}
