/* The event engine: streams and communicators over time (rules 1 to 3 of docs/schedule.md). */
#include "simulator/engine/engine.h"

#include <math.h>

/* Launches that a stream holds before the next one blocks the host (NVIDIA developer forums, topic
 * 68937: about 1000 on one stream, as many on each of three). */
static const double gpu_launch_queue = 1024;

/* --- setting up ------------------------------------------------------------------------------- */

/* On a CPU the issuing thread computes, and one communication thread carries out the rest: the
 * collectives and what follows them on their streams, in issue order. */
static bool is_inline(const struct op *op)
{
	return op->stream == STREAM_COMPUTE || op->stream == STREAM_HOST;
}

static int communicator_of(const struct engine *engine, const struct op *op, bool inline_host)
{
	const struct runtime *runtime = runtime_of(engine->schedule->plan.runtime);

	if (op_kind_class(op->kind) == OP_CLASS_COLLECTIVE)
		return engine->schedule->groups[op->group].engine;
	return inline_host && runtime->one_engine && !is_inline(op) ? 0 : -1;
}

static void init_task(struct engine *engine, int index)
{
	const struct op *op = &engine->program->ops[index];
	const struct runtime *runtime = runtime_of(engine->schedule->plan.runtime);
	bool inline_host = runtime->host_is_compute && topology_issues_inline(engine->topology);
	struct task *task = &engine->tasks[index];
	enum op_class class = op_kind_class(op->kind);

	task->waits = slice_of(engine->program, op->waits);
	task->n_waits = op->waits.count;
	task->host_waits = slice_of(engine->program, op->host_waits);
	task->n_host_waits = op->host_waits.count;
	task->communicates = class == OP_CLASS_COLLECTIVE;
	/* What the host does beside a GPU takes none of its units. */
	task->computes = (class == OP_CLASS_COMPUTE || class == OP_CLASS_TRAFFIC) &&
			 (inline_host || op->stream != STREAM_HOST);
	task->blocks_host =
		(inline_host && op->stream == STREAM_COMPUTE) || op->stream == STREAM_HOST;
	task->is_compute = task->computes && is_inline(op);
	task->communicator = communicator_of(engine, op, inline_host);
	if (task->communicator >= 0)
		task->communicator_order = engine->communicator_count[task->communicator]++;
	/* A share of time spent on memory is a share of its bandwidth. */
	if (task->computes && task->cost.device > 0)
		task->cost.memory_load = task->cost.memory / task->cost.device;
}

/* `.to(device)` without non_blocking returns when the compute stream has come to the copy, behind
 * all that was issued before. */
static void wait_for_stream(struct engine *engine, int index, int last, struct arena *arena)
{
	struct task *task = &engine->tasks[index];
	int *waits = ARENA_ARRAY(arena, int, task->n_host_waits + 1);

	for (int i = 0; i < task->n_host_waits; i++)
		waits[i] = task->host_waits[i];
	waits[task->n_host_waits] = last;
	task->host_waits = waits;
	task->n_host_waits++;
}

static void init_batches(struct engine *engine, struct arena *arena)
{
	const struct plan *plan = &engine->schedule->plan;
	bool waits = runtime_of(plan->runtime)->waits_for_batch &&
		     engine->topology->device.kind == DEVICE_GPU;
	int micro_batch = -1, last = -1;

	for (int i = 0; i < engine->n_ops; i++) {
		const struct op *op = &engine->program->ops[i];

		if (op->micro_batch > micro_batch) {
			engine->tasks[i].takes_batch = true;
			if (waits && last >= 0 && micro_batch >= 0)
				wait_for_stream(engine, i, last, arena);
			micro_batch = op->micro_batch;
		}
		last = op->stream == STREAM_COMPUTE ? i : last;
	}
	engine->batch_interval = plan_loader_time(plan) / (double)plan->grad_accum;
	engine->batch_cost = cost_batch(plan, engine->topology);
}

static void init_tasks(struct engine *engine, int class, struct arena *arena)
{
	struct cost *costs = ARENA_ARRAY(arena, struct cost, engine->n_ops);

	cost_operations(engine->schedule, class, costs);
	engine->tasks = ARENA_ARRAY(arena, struct task, engine->n_ops);
	for (int i = 0; i < engine->n_ops; i++) {
		engine->tasks[i].cost = costs[i];
		init_task(engine, i);
	}
	init_batches(engine, arena);
}

/* One queue for each stream that has operations. */
static void init_queues(struct engine *engine, struct arena *arena)
{
	const struct op *ops = engine->program->ops;
	int *order = ARENA_ARRAY(arena, int, engine->n_ops);
	int n = 0;

	for (int stream = 0; stream < STREAM_COUNT; stream++) {
		struct queue *queue = &engine->queues[engine->n_queues];

		*queue = (struct queue){
			.ops = order + n, .running = -1, .blocked_on = -1, .rate = 1};
		for (int i = 0; i < engine->n_ops; i++)
			if ((int)ops[i].stream == stream) {
				engine->tasks[i].stream = engine->n_queues;
				order[n++] = i;
			}
		queue->n_ops = (int)(order + n - queue->ops);
		engine->n_queues += queue->n_ops > 0;
	}
}

static double *times(struct arena *arena, int n)
{
	double *array = ARENA_ARRAY(arena, double, n);

	for (int i = 0; i < n; i++)
		array[i] = INFINITY;
	return array;
}

void engine_init(struct engine *engine, const struct schedule *schedule, int class, bool contention,
	bool runs_ahead, struct arena *arena)
{
	*engine = (struct engine){.schedule = schedule,
		.program = &schedule->programs[class],
		.topology = schedule->topology,
		.contention = contention,
		.runs_ahead = runs_ahead || !runtime_of(schedule->plan.runtime)->synchronises_step,
		.launch_queue =
			schedule->topology->device.kind == DEVICE_GPU ? gpu_launch_queue : INFINITY,
		.n_communicators = (int)max_i64(schedule->n_engines, 1),
		.host.blocked_on = -1};
	engine->n_ops = engine->program->n_ops;
	engine->n_instances = SIMULATED_STEPS * engine->n_ops;
	engine->communicator_done = ARENA_ARRAY(arena, int, engine->n_communicators);
	engine->communicator_count = ARENA_ARRAY(arena, int, engine->n_communicators);
	init_tasks(engine, class, arena);
	init_queues(engine, arena);
	engine->issued = times(arena, engine->n_instances);
	engine->host_done = times(arena, engine->n_instances);
	engine->start = times(arena, engine->n_instances);
	engine->end = times(arena, engine->n_instances);
	engine->log = ARENA_ARRAY(arena, int, 2 * engine->n_instances);
	for (int step = 0; step < SIMULATED_STEPS; step++)
		engine->unfinished[step] = engine->n_ops;
}

/* --- starting and finishing ------------------------------------------------------------------- */

/* The instance at the head of a queue; -1 when the queue is empty. */
static int head_of(const struct engine *engine, const struct queue *queue)
{
	if (queue->step == SIMULATED_STEPS)
		return -1;
	return instance_of(engine, queue->step, queue->ops[queue->next]);
}

static void pop(struct queue *queue)
{
	queue->blocked_on = -1;
	if (++queue->next == queue->n_ops) {
		queue->next = 0;
		queue->step++;
	}
}

static bool waits_are_over(struct engine *engine, struct queue *queue, const struct task *task)
{
	int base = queue->step * engine->n_ops;

	if (queue->blocked_on >= 0 && isinf(engine->end[queue->blocked_on]))
		return false;
	for (int i = 0; i < task->n_waits; i++) {
		int instance = base + task->waits[i];

		if (instance >= 0 && isinf(engine->end[instance])) {
			queue->blocked_on = instance;
			return false;
		}
	}
	return true;
}

/* Communicators carry out their collectives one at a time, in issue order. */
static bool communicator_is_free(
	const struct engine *engine, const struct queue *queue, const struct task *task)
{
	int c = task->communicator;

	return c < 0 ||
	       engine->communicator_done[c] ==
		       queue->step * engine->communicator_count[c] + task->communicator_order;
}

static void finish_step(struct engine *engine, int step)
{
	if (--engine->unfinished[step] > 0)
		return;
	engine->finished[step] = engine->now;
	engine->exposed[step] = engine->exposed_now;
}

static void finish(struct engine *engine, struct queue *queue)
{
	int instance = queue->running;
	const struct task *task = task_of(engine, instance);

	engine->end[instance] = engine->now;
	engine->n_completed++;
	engine->log[engine->n_log++] = ~instance;
	if (task->communicator >= 0)
		engine->communicator_done[task->communicator]++;
	queue->running = -1;
	queue->launched -= task->cost.kernels;
	if (++queue->oldest == queue->n_ops) {
		queue->oldest = 0;
		queue->oldest_step++;
	}
	engine->rates_stale = true;
	finish_step(engine, instance / engine->n_ops);
}

/* Starts the head if everything it needs is there. `*next` becomes the time at which an issued one
 * could start, when that is to come. */
static bool start(struct engine *engine, struct queue *queue, double *next)
{
	int instance = head_of(engine, queue);
	const struct task *task;

	if (queue->running >= 0 || instance < 0 || isinf(engine->issued[instance]))
		return false;
	task = task_of(engine, instance);
	if (!waits_are_over(engine, queue, task) || !communicator_is_free(engine, queue, task))
		return false;
	if (engine->issued[instance] > engine->now) {
		*next = fmin(*next, engine->issued[instance]);
		return false;
	}
	engine->start[instance] = engine->now;
	engine->log[engine->n_log++] = instance;
	queue->running = instance;
	queue->left = task->cost.device;
	queue->rate = 1;
	pop(queue);
	engine->rates_stale = true;
	if (queue->left <= 0 && engine->host_done[instance] <= engine->now)
		finish(engine, queue);
	return true;
}

/* --- time ------------------------------------------------------------------------------------- */

/* Kernels end no earlier than the host has launched the last of them. */
static double end_of(const struct engine *engine, const struct queue *queue)
{
	return fmax(engine->now + queue->left / queue->rate, engine->host_done[queue->running]);
}

static double next_event(const struct engine *engine, double next)
{
	for (int i = 0; i < engine->n_queues; i++)
		if (engine->queues[i].running >= 0)
			next = fmin(next, end_of(engine, &engine->queues[i]));
	return next;
}

static bool is_exposed(const struct engine *engine)
{
	bool communicates = false;

	for (int i = 0; i < engine->n_queues; i++) {
		const struct queue *queue = &engine->queues[i];
		const struct task *task;

		if (queue->running < 0)
			continue;
		task = task_of(engine, queue->running);
		if (task->is_compute)
			return false;
		communicates = communicates || task->communicates;
	}
	return communicates;
}

static void advance(struct engine *engine, double to)
{
	double elapsed = to - engine->now;

	if (is_exposed(engine))
		engine->exposed_now += elapsed;
	for (int i = 0; i < engine->n_queues; i++) {
		struct queue *queue = &engine->queues[i];

		if (queue->running < 0)
			continue;
		/* Decided by time, not by what rounding leaves of the work. */
		if (end_of(engine, queue) <= to) {
			queue->left = -1;
			continue;
		}
		queue->left = fmax(0, queue->left - elapsed * queue->rate);
	}
	engine->now = to;
	for (int i = 0; i < engine->n_queues; i++)
		if (engine->queues[i].running >= 0 && engine->queues[i].left < 0)
			finish(engine, &engine->queues[i]);
}

static bool stuck(const struct engine *engine, struct error *error)
{
	const struct op *ops = engine->program->ops;
	int instance = engine->host.next;

	for (int i = 0; i < engine->n_queues; i++) {
		int head = head_of(engine, &engine->queues[i]);

		if (head >= 0 && head < instance)
			instance = head;
	}
	return error_set(error, EXIT_CODE_INTERNAL,
		"the schedule deadlocks: operation %d (%s) of step %d never starts",
		instance % engine->n_ops, op_kind_name(ops[instance % engine->n_ops].kind),
		instance / engine->n_ops + 1);
}

bool engine_run(struct engine *engine, struct error *error)
{
	while (engine->n_completed < engine->n_instances) {
		double next = INFINITY;
		bool started = false;

		host_run(engine);
		for (int i = 0; i < engine->n_queues; i++)
			started |= start(engine, &engine->queues[i], &next);
		if (started)
			continue;
		if (engine->rates_stale)
			contention_rates(engine);
		next = next_event(engine, next);
		if (isinf(next))
			return stuck(engine, error);
		advance(engine, next);
	}
	return true;
}
