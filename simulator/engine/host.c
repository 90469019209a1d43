/* The issuing thread: list order, limiter waits, launch queues, memory, launch costs
 * (docs/schedule.md). */
#include <math.h>
#include <string.h>

#include "simulator/engine/inside.h"

static bool block_on(struct issuer *host, int queue, int64_t position)
{
	host->blocked_on = queue;
	host->blocked_position = position;
	host->queue_is_full = false;
	return true;
}

/* A wait names an operation of this step, or of the one before; before the first step it is void.
 */
static bool waits(struct engine *engine, const struct task *task)
{
	struct issuer *host = &engine->host;

	for (int i = 0; i < task->n_host_waits; i++) {
		const struct wait *wait = &task_host_waits(task)[i];
		int64_t position = position_of(engine, task, &wait->place, &host->next);

		if (position >= 0 && !has_finished(engine, wait->queue, position))
			return block_on(host, wait->queue, position);
	}
	return false;
}

/* Must an operation finish before the launch queue of the stream has room for `task`? A task with
 * more kernels than the queue holds is launched when it is empty. */
static bool launch_queue_is_full(struct engine *engine, const struct task *task)
{
	const struct queue *queue = &engine->queues[task->queue];

	if (queue->launched <= 0 || queue->launched + task->cost->kernels <= engine->launch_queue)
		return false;
	block_on(&engine->host, task->queue, queue->position);
	return engine->host.queue_is_full = true;
}

/* The loader's workers prepare one batch after the other from the beginning on, as far ahead as
 * they can: the depth of their queue does not matter in the steady state. */
static void take_batch(struct engine *engine)
{
	struct issuer *host = &engine->host;

	host->time = fmax(host->time, ++host->batches * engine->batch_interval);
}

static void grow(struct engine *engine, struct queue *queue)
{
	int capacity = queue->capacity > 0 ? 2 * queue->capacity : 64;
	struct issued *ring = ARENA_ARRAY(engine->arena, struct issued, capacity);

	for (int i = 0; i < queue->n_issued; i++)
		ring[i] = queue->ring[(queue->first + i) & (queue->capacity - 1)];
	queue->ring = ring;
	queue->first = 0;
	queue->capacity = capacity;
}

static void put(struct engine *engine, struct queue *queue, struct issued issued)
{
	if (queue->n_issued == queue->capacity)
		grow(engine, queue);
	queue->ring[(queue->first + queue->n_issued++) & (queue->capacity - 1)] = issued;
}

static void note(struct engine *engine, const struct task *task, struct issued issued)
{
	int64_t position = position_of(engine, task, &task->place, &engine->host.next);

	engine->record->issued[position] = issued.at;
	engine->record->ops[position] = (int)(task - engine->tasks);
	if (engine->record->host_done == NULL)
		return;
	engine->record->host_done[position] = issued.done;
	engine->record->drained_by[position] = engine->host.drained_by;
}

static void issue(struct engine *engine, const struct task *task)
{
	struct issuer *host = &engine->host;
	struct queue *queue = &engine->queues[task->queue];

	if (task->takes_batch)
		take_batch(engine);
	const struct issued issued = {
		host->time + task->cost->host_before, host->time + task->cost->host};
	queue->launched += task->cost->kernels;
	host->time = issued.done;
	put(engine, queue, issued);
	if (engine->record != NULL)
		note(engine, task, issued);
	host->drained_by = -1;
	if (task->blocks_host)
		block_on(host, task->queue, position_of(engine, task, &task->place, &host->next));
	engine->n_issued++;
	list_advance(&host->list, engine->program, &host->next);
}

/* Training loops read the loss once a step: the host waits for the device. */
static bool step_may_begin(struct engine *engine)
{
	struct issuer *host = &engine->host;

	if (engine->runs_ahead || host->next.at > 0 ||
		engine->n_issued % engine->n_carried_out != 0)
		return true;
	if (engine->n_completed < engine->n_issued)
		return false;
	if (engine->n_issued > 0)
		host->time = fmax(host->time, engine->now + engine->exchange);
	return true;
}

/* Is the device idle? Then the driver does its work, and the host goes on after it. */
static bool has_drained(struct engine *engine)
{
	struct issuer *host = &engine->host;
	const struct record *record = engine->record;

	if (engine->n_completed < engine->n_issued)
		return false;
	host->time = fmax(host->time, engine->now) + host->driver;
	host->drains = false;
	host->drained_by = record->n_ended > 0 ? record->ended[record->n_ended - 1] : -1;
	return true;
}

/* The supply has what the device has freed by then. So the thread asks when the clock has reached
 * its own time, not ahead of it. */
static bool takes_memory(struct engine *engine)
{
	struct issuer *host = &engine->host;
	struct stall stall;

	if (host->drains)
		return has_drained(engine);
	if (host->time > engine->now)
		return false;
	if (!engine->supply->take(engine->supply->self, &host->next, &stall)) {
		engine->starved = true;
		return false;
	}
	if (host->next.step == engine->n_steps)
		return false; /* the supply knows the rest */
	if (!stall.drains) {
		host->time += stall.seconds;
		return true;
	}
	host->drains = true;
	host->driver = stall.seconds;
	return has_drained(engine);
}

double host_wakes(const struct engine *engine)
{
	const struct issuer *host = &engine->host;

	return engine->supply != NULL && host->blocked_on < 0 && host->time > engine->now
		       ? host->time
		       : INFINITY;
}

/* Called at every event: what the host waited for has just finished. */
void host_run(struct engine *engine)
{
	struct issuer *host = &engine->host;

	while (host->next.step < engine->n_steps) {
		const struct task *task = task_at(engine, &host->list, &host->next);

		if (host->blocked_on >= 0) {
			if (!has_finished(engine, host->blocked_on, host->blocked_position))
				return;
			host->time = fmax(host->time, engine->now);
			host->blocked_on = -1;
		}
		if (!step_may_begin(engine))
			return;
		if (waits(engine, task) || launch_queue_is_full(engine, task))
			continue;
		if (engine->supply != NULL && !takes_memory(engine))
			return;
		issue(engine, task);
	}
}
