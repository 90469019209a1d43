/* The issuing thread: list order, limiter waits, launch queues, launch costs (docs/schedule.md). */
#include <math.h>

#include "simulator/engine/engine.h"

/* A wait names an operation of this step, or (negative) one of the step before; before the first
 * step it is void. */
static int first_unfinished(
	const struct engine *engine, const int *waits, int n, int base, double *latest)
{
	for (int i = 0; i < n; i++) {
		int instance = base + waits[i];

		if (instance < 0)
			continue;
		if (isinf(engine->end[instance]))
			return instance;
		*latest = fmax(*latest, engine->end[instance]);
	}
	return -1;
}

/* The operation that must finish before the stream takes the launches of `task`; -1. An operation
 * with more kernels than the queue holds is launched into an empty one. */
static int launch_queue_full(const struct engine *engine, const struct task *task)
{
	const struct queue *queue = &engine->queues[task->stream];

	if (queue->launched <= 0 || queue->launched + task->cost.kernels <= engine->launch_queue)
		return -1;
	return instance_of(engine, queue->oldest_step, queue->ops[queue->oldest]);
}

/* Workers prepare one batch after the other, from the beginning on, and as many ahead as they like:
 * how deep their queue is decides nothing in a steady step. */
static void take_batch(struct engine *engine)
{
	struct issuer *host = &engine->host;

	host->time = fmax(host->time, ++host->batches * engine->batch_interval);
}

static void issue(struct engine *engine, const struct task *task)
{
	struct issuer *host = &engine->host;
	int instance = host->next++;

	if (task->takes_batch)
		take_batch(engine);
	engine->queues[task->stream].launched += task->cost.kernels;
	engine->issued[instance] = host->time + task->cost.host_before;
	host->time += task->cost.host;
	engine->host_done[instance] = host->time;
	if (task->blocks_host)
		host->blocked_on = instance;
}

/* Training loops read the loss once a step: the host waits for the device. */
static bool step_may_begin(struct engine *engine)
{
	struct issuer *host = &engine->host;

	if (engine->runs_ahead || host->next % engine->n_ops != 0)
		return true;
	if (engine->n_completed < host->next)
		return false;
	host->time = fmax(host->time, engine->now);
	return true;
}

void host_run(struct engine *engine)
{
	struct issuer *host = &engine->host;

	while (host->next < engine->n_instances) {
		int op = host->next % engine->n_ops;
		const struct task *task = &engine->tasks[op];

		if (host->blocked_on >= 0) {
			if (isinf(engine->end[host->blocked_on]))
				return;
			host->time = fmax(host->time, engine->end[host->blocked_on]);
			host->blocked_on = -1;
		}
		if (!step_may_begin(engine))
			return;
		host->blocked_on = first_unfinished(
			engine, task->host_waits, task->n_host_waits, host->next - op, &host->time);
		if (host->blocked_on < 0)
			host->blocked_on = launch_queue_full(engine, task);
		if (host->blocked_on < 0)
			issue(engine, task);
	}
}
