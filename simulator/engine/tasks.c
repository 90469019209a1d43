/* Prepares operations for the engine: their costs, positions, and waits. */
#include "simulator/engine/inside.h"

/* --- positions -------------------------------------------------------------------------------- */

/* The loops around an operation, the innermost first; -1: none. */
struct round {
	int inner, outer;
};

static bool contains(const struct loop *loop, int op)
{
	return op >= loop->first && op < loop->first + loop->n;
}

static struct round loops_round(const struct program *program, int op)
{
	struct round round = {-1, -1};

	for (int l = 0; l < program->n_loops; l++)
		if (contains(&program->loops[l], op)) {
			round.outer = round.inner;
			round.inner = l;
		}
	return round;
}

/* The number of operations that one iteration executes. */
static int iteration_length(const struct program *program, int loop)
{
	int length = program->loops[loop].n;

	for (int l = 0; l < program->n_loops; l++)
		if (program->loops[l].outer == loop)
			length += (program->loops[l].times - 1) * program->loops[l].n;
	return length;
}

static void init_loops(struct engine *engine, int index)
{
	const struct program *program = engine->program;
	struct round round = loops_round(program, index);
	struct task *task = &engine->tasks[index];

	task->begins = -1;
	task->times = 1;
	task->depth = (round.inner >= 0) + (round.outer >= 0);
	if (task->depth == 0)
		return;
	task->outer = task->depth == 1 && program->loops[round.inner].layers == 0;
	task->times = program->loops[round.inner].times;
	if (task->outer)
		task->place.outer = iteration_length(program, round.inner);
	else
		task->place.inner = iteration_length(program, round.inner);
	if (round.outer < 0)
		return;
	task->times *= program->loops[round.outer].times;
	task->place.outer = iteration_length(program, round.outer);
}

/* Sets the position of each operation in its first iteration. */
static void init_places(struct engine *engine)
{
	const struct program *program = engine->program;
	int position = 0;

	for (int i = 0; i < program->n_ops; i++) {
		init_loops(engine, i);
		engine->tasks[i].place.first = position++;
		for (int l = program->n_loops - 1; l >= 0; l--)
			if (program->loops[l].first + program->loops[l].n == i + 1)
				position += (program->loops[l].times - 1) *
					    iteration_length(program, l);
	}
	engine->n_carried_out = position;
}

/* --- kinds of operations ---------------------------------------------------------------------- */

/* On a CPU the issuing thread computes, and one communication thread carries out the rest: the
 * collectives and what follows them on their streams, in issue order. */
static bool is_inline(const struct op *op)
{
	return op->stream == STREAM_COMPUTE || op->stream == STREAM_HOST;
}

static int communicator_of(const struct engine *engine, const struct op *op, bool inline_host)
{
	const struct runtime *runtime = runtime_of(engine->schedule->plan.runtime);

	if (op_kind_class(op->kind) == OP_CLASS_MESSAGE)
		return -1;
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

	task->meeting = -1;
	task->communicates = class == OP_CLASS_COLLECTIVE || class == OP_CLASS_MESSAGE;
	/* Work of the host beside a GPU takes none of its units. */
	task->computes = (class == OP_CLASS_COMPUTE || class == OP_CLASS_TRAFFIC) &&
			 (inline_host || op->stream != STREAM_HOST);
	task->blocks_host =
		(inline_host && op->stream == STREAM_COMPUTE) || op->stream == STREAM_HOST;
	task->is_compute = task->computes && is_inline(op);
	task->communicator = communicator_of(engine, op, inline_host);
}

static void init_costs(struct engine *engine, const struct engine_options *options)
{
	for (int i = 0; i < engine->costs.n; i++) {
		int example = engine->costs.examples[i];
		const struct task *task = &engine->tasks[example];
		struct cost *cost = &engine->costs.costs[i];

		cost_leave_out(cost, task->communicates, options->without);
		if (options->exchange_wait > 0 && op_exchanges(&engine->program->ops[example])) {
			cost->host_before += options->exchange_wait;
			cost->host += options->exchange_wait;
		}
		/* The share of time spent on memory is taken as the share of its bandwidth. */
		if (task->computes && cost->device > 0)
			cost->memory_load = cost->memory / cost->device;
	}
}

/* --- waits -------------------------------------------------------------------------------------
 */

static void fill_waits(struct engine *engine, struct slice slice, struct wait *waits)
{
	const struct program *program = engine->program;
	const int *indices = slice_of(program, slice);

	for (int i = 0; i < slice.count; i++) {
		int op = indices[i] < 0 ? indices[i] + program->n_ops : indices[i];

		waits[i].queue = engine->tasks[op].queue;
		waits[i].place = program->n_loops > 0 ? program->places[slice.first + i]
						      : (struct position){indices[i], 0, 0};
	}
}

/* A schedule of one class has room for one more wait per operation, for the batch. Pipelines wait
 * otherwise. */
static void init_waits(struct engine *engine)
{
	int more = engine->schedule->n_classes == 1, n = more * engine->n_ops;

	for (int i = 0; i < engine->n_ops; i++)
		n += engine->program->ops[i].waits.count + engine->program->ops[i].host_waits.count;

	struct wait *waits = ARENA_ARRAY(engine->arena, struct wait, n);

	for (int i = 0; i < engine->n_ops; i++) {
		const struct op *op = &engine->program->ops[i];
		struct task *task = &engine->tasks[i];

		task->waits = waits;
		task->n_waits = op->waits.count;
		fill_waits(engine, op->waits, task->waits);
		task->n_host_waits = op->host_waits.count;
		fill_waits(engine, op->host_waits, task_host_waits(task));
		waits = task_host_waits(task) + task->n_host_waits + more;
	}
}

/* Makes the host wait: `.to(device)` without non_blocking returns when the compute stream has
 * reached the copy, behind everything issued before, which ends with `last` of the micro-batch
 * before. */
static void wait_for_stream(struct engine *engine, int index, int last)
{
	struct task *task = &engine->tasks[index];
	const struct task *before = &engine->tasks[last];
	struct position place = {before->place.first, 0, 0};

	if (task->outer)
		place.outer = task->place.outer;
	else if (before->outer)
		place.first += (before->times - 1) * before->place.outer;
	task_host_waits(task)[task->n_host_waits++] = (struct wait){place, before->queue};
}

/* A pipeline gets the batches of all its micro-batches at once; here, of those that are listed. */
static void feed_pipeline(struct engine *engine)
{
	const struct plan *plan = &engine->schedule->plan;
	const struct rounds *rounds = &engine->program->rounds;
	double more = rounds->n > 0 ? (double)((rounds->times - 1) * rounds->micro_batches) : 0;

	engine->tasks[0].takes_batch = true;
	engine->batch_interval = plan_loader_time(plan) * (1 - more / (double)plan->grad_accum);
}

static void init_batches(struct engine *engine)
{
	const struct plan *plan = &engine->schedule->plan;
	bool waits = runtime_of(plan->runtime)->waits_for_batch &&
		     engine->topology->device.kind == DEVICE_GPU;
	int micro_batch = -1, last = -1;

	engine->batch_cost = cost_batch(plan, engine->topology);
	if (engine->schedule->n_classes > 1) {
		feed_pipeline(engine);
		return;
	}
	for (int i = 0; i < engine->n_ops; i++) {
		const struct op *op = &engine->program->ops[i];

		if (op->micro_batch > micro_batch) {
			engine->tasks[i].takes_batch = true;
			if (waits && last >= 0 && micro_batch >= 0)
				wait_for_stream(engine, i, last);
			micro_batch = op->micro_batch;
		}
		last = op->stream == STREAM_COMPUTE ? i : last;
	}
	engine->batch_interval = plan_loader_time(plan) / (double)plan->grad_accum;
}

/* --- all tasks -------------------------------------------------------------------------------- */

void engine_init_tasks(struct engine *engine, int class, const struct engine_options *options)
{
	engine->costs = cost_table(engine->schedule, class, engine->arena);
	engine->exchange = cost_step_exchange(engine->schedule);
	engine->tasks = ARENA_ARRAY(engine->arena, struct task, engine->n_ops);
	for (int i = 0; i < engine->n_ops; i++) {
		engine->tasks[i].cost = &engine->costs.costs[engine->costs.of[i]];
		init_task(engine, i);
	}
	init_costs(engine, options);
	init_places(engine);
}

void engine_init_waits(struct engine *engine)
{
	init_waits(engine);
	init_batches(engine);
}
