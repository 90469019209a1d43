/* The event engine: streams and communicators over time (rules 1 to 3 of docs/schedule.md). */
#include "simulator/engine/inside.h"

#include <string.h>

/* Launches that a stream holds before the next one blocks the host (NVIDIA developer forums, topic
 * 68937: about 1000 on one stream, as many on each of three). */
static const double gpu_launch_queue = 1024;

/* --- setting up ------------------------------------------------------------------------------- */

/* One queue for each stream that has operations. `streams`: room for one number of each of them. */
static void init_queues(struct engine *engine, int *streams)
{
	const struct op *ops = engine->program->ops;
	bool has[STREAM_COUNT] = {false};

	for (int i = 0; i < engine->n_ops; i++) {
		streams[i] = (int)ops[i].stream;
		has[streams[i]] = true;
	}
	engine->compute = -1;
	for (int stream = 0; stream < STREAM_COUNT; stream++) {
		struct queue *queue = &engine->queues[engine->n_queues];

		if (!has[stream])
			continue;
		*queue = (struct queue){.rate = 1, .blocked_on = -1};
		queue->list = list_of(engine->program, streams, stream, engine->arena);
		queue->position = engine->tasks[queue->list.ops[0]].place.first;
		queue->last_issued = ARENA_ARRAY(engine->arena, double, queue->list.n);
		for (int i = 0; i < queue->list.n; i++)
			engine->tasks[queue->list.ops[i]].queue = engine->n_queues;
		if (stream == STREAM_COMPUTE)
			engine->compute = engine->n_queues;
		engine->n_queues++;
	}
}

static void init_communicators(struct engine *engine, int *members)
{
	engine->n_communicators = (int)max_i64(engine->schedule->n_engines, 1);
	engine->communicators =
		ARENA_ARRAY(engine->arena, struct communicator, engine->n_communicators);
	for (int i = 0; i < engine->n_ops; i++)
		members[i] = engine->tasks[i].communicator;
	for (int c = 0; c < engine->n_communicators; c++) {
		struct communicator *communicator = &engine->communicators[c];

		communicator->list = list_of(engine->program, members, c, engine->arena);
		if (communicator->list.n > 0)
			communicator->position =
				engine->tasks[communicator->list.ops[0]].place.first;
	}
}

/* Iterations of a loop begin with its first operation on the compute stream. */
static void init_begins(struct engine *engine)
{
	for (int l = 0; l < engine->program->n_loops && engine->compute >= 0; l++) {
		const struct list *list = &engine->queues[engine->compute].list;

		if (list->opens[l] >= 0)
			engine->tasks[list->ops[list->opens[l]]].begins = l;
	}
}

void engine_init(struct engine *engine, const struct schedule *schedule, int class,
	const struct engine_options *options, struct arena *arena)
{
	*engine = (struct engine){.schedule = schedule,
		.class = class,
		.program = &schedule->programs[class],
		.topology = schedule->topology,
		.arena = arena,
		.contention = !options->no_contention,
		.runs_ahead = options->runs_ahead ||
			      !runtime_of(schedule->plan.runtime)->synchronises_step,
		.launch_queue =
			schedule->topology->device.kind == DEVICE_GPU ? gpu_launch_queue : INFINITY,
		.n_counted = 1,
		.host = {.blocked_on = -1, .drained_by = -1}};
	engine->n_ops = engine->program->n_ops;
	engine_init_tasks(engine, class, options);
	int *numbers = ARENA_ARRAY(arena, int, engine->n_ops);
	init_queues(engine, numbers);
	init_communicators(engine, numbers);
	engine_init_waits(engine);
	engine->host.list = list_of(engine->program, NULL, 0, arena);
	engine->n_steps =
		engine->runs_ahead || engine->batch_interval > 0 ? SIMULATED_STEPS_MAX : 1;
	for (int step = 0; step < engine->n_steps; step++)
		engine->unfinished[step] = engine->n_carried_out;
	init_begins(engine);
	if (engine->program->n_loops > 0 && engine->batch_interval <= 0)
		engine->steady = steady_new(engine, arena);
}

void engine_supply(struct engine *engine, const struct supply *supply)
{
	engine->supply = supply;
	engine->steady = NULL;
	engine->n_steps = SHORT_STEPS;
	engine->n_counted = SHORT_STEPS_COUNTED;
	for (int step = 0; step < engine->n_steps; step++)
		engine->unfinished[step] = engine->n_carried_out;
}

static double *times(struct arena *arena, int n)
{
	double *array = ARENA_ARRAY(arena, double, n);

	for (int i = 0; i < n; i++)
		array[i] = INFINITY;
	return array;
}

void engine_record(struct engine *engine, bool details)
{
	int n = engine->n_steps * engine->n_carried_out;
	struct record *record = ARENA_NEW(engine->arena, struct record);

	record->issued = times(engine->arena, n);
	record->end = times(engine->arena, n);
	if (details) {
		record->host_done = times(engine->arena, n);
		record->start = times(engine->arena, n);
		record->drained_by = ARENA_ARRAY(engine->arena, int, n);
	}
	record->ops = ARENA_ARRAY(engine->arena, int, n);
	record->ended = ARENA_ARRAY(engine->arena, int, n);
	engine->record = record;
}

struct cursor engine_instance(const struct engine *engine, int instance)
{
	const struct task *task = &engine->tasks[engine->record->ops[instance]];
	struct cursor at = {
		.step = instance / engine->n_carried_out, .at = engine->record->ops[instance]};
	int64_t left = instance % engine->n_carried_out - task->place.first;

	if (task->depth == 2 || task->outer) {
		at.round[0] = (int)(left / task->place.outer);
		left %= task->place.outer;
	}
	if (task->depth > 0 && !task->outer)
		at.round[task->depth - 1] = (int)(left / task->place.inner);
	return at;
}

/* --- starting and finishing ------------------------------------------------------------------- */

static bool waits_are_over(struct engine *engine, struct queue *queue, const struct task *task)
{
	if (queue->blocked_on >= 0 &&
		!has_finished(engine, queue->blocked_on, queue->blocked_position))
		return false;
	queue->blocked_on = -1;
	for (int i = 0; i < task->n_waits; i++) {
		const struct wait *wait = &task->waits[i];
		int64_t position = position_of(engine, task, &wait->place, &queue->next);

		if (position >= 0 && !has_finished(engine, wait->queue, position)) {
			queue->blocked_on = wait->queue;
			queue->blocked_position = position;
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

	return c < 0 || engine->communicators[c].position == queue->position;
}

static void finish_step(struct engine *engine, int step)
{
	if (--engine->unfinished[step] > 0)
		return;
	engine->finished[step] = engine->now + engine->exchange;
	if (step == engine->n_steps - 1)
		return;
	engine->tally.exposed = engine->tally.bubble = 0;
	for (int a = 0; a < GROUP_KIND_COUNT; a++)
		engine->tally.by_axis[a].exposed = 0;
}

static void advance_communicator(struct engine *engine, struct communicator *communicator)
{
	list_advance(&communicator->list, engine->program, &communicator->next);
	const struct task *task = task_at(engine, &communicator->list, &communicator->next);
	communicator->position = position_of(engine, task, &task->place, &communicator->next);
}

/* The tally of the axis over which an operation communicates. */
static struct axis_tally *axis_of(struct engine *engine, const struct task *task)
{
	int group = engine->program->ops[task - engine->tasks].group;

	return &engine->tally.by_axis[engine->schedule->groups[group].kind];
}

static void note_end(struct engine *engine, const struct queue *queue, const struct task *task)
{
	int op = (int)(task - engine->tasks), step = queue->next.step;

	if (step == engine->n_steps - 1) {
		engine->tally.by_kind[engine->program->ops[op].kind] += queue->ran;
		if (task->communicates)
			axis_of(engine, task)->ran += queue->ran;
	}
	if (engine->observer != NULL)
		engine->observer->ends(engine->observer->self, op);
	if (engine->record != NULL) {
		engine->record->end[queue->position] = engine->now;
		engine->record->ended[engine->record->n_ended++] = (int)queue->position;
	}
}

static void finish(struct engine *engine, struct queue *queue)
{
	const struct task *task = task_at(engine, &queue->list, &queue->next);
	int step = queue->next.step;

	note_end(engine, queue, task);
	if (queue->meeting != NULL)
		meeting_leave(engine, queue);
	engine->n_completed++;
	if (task->communicator >= 0)
		advance_communicator(engine, &engine->communicators[task->communicator]);
	queue->running = false;
	queue->launched -= task->cost->kernels;
	list_advance(&queue->list, engine->program, &queue->next);
	task = task_at(engine, &queue->list, &queue->next);
	queue->position = position_of(engine, task, &task->place, &queue->next);
	engine->rates_stale = true;
	finish_step(engine, step);
}

static void note_start(struct engine *engine, struct queue *queue, const struct task *task)
{
	if (engine->observer != NULL)
		engine->observer->starts(
			engine->observer->self, (int)(task - engine->tasks), &queue->next);
	if (engine->record != NULL && engine->record->start != NULL)
		engine->record->start[queue->position] = engine->now;
}

/* The round that stands for others begins, or has ended: they take as long, and add as much. */
static void count_rounds(struct engine *engine, int op)
{
	const struct rounds *rounds = &engine->program->rounds;

	if (rounds->n == 0)
		return;
	if (op == rounds->first) {
		engine->round_begin = engine->tally;
		engine->round_began = engine->now;
	}
	if (op == rounds->first + rounds->n) {
		tally_repeat(&engine->tally, &engine->round_begin, rounds->times - 1);
		engine->more_rounds = (rounds->times - 1) * (engine->now - engine->round_began);
	}
}

/* Starts the next operation if everything it needs is there. `*next` becomes the time at which an
 * issued one could start, when that is to come; `*begins` a loop of which an iteration begins. */
static bool start(struct engine *engine, struct queue *queue, double *next, int *begins)
{
	if (queue->running || queue->n_issued == 0)
		return false;
	const struct task *task = task_at(engine, &queue->list, &queue->next);
	const struct issued issued = queue->ring[queue->first];

	if (!waits_are_over(engine, queue, task) || !communicator_is_free(engine, queue, task))
		return false;
	if (issued.at > engine->now) {
		engine->n_held_up++;
		*next = fmin(*next, issued.at);
		return false;
	}
	queue->first = (queue->first + 1) & (queue->capacity - 1);
	queue->n_issued--;
	queue->host_done = issued.done;
	queue->last_issued[queue->next.at] = issued.at;
	queue->running = true;
	queue->ran = 0;
	queue->left = task->cost->device;
	queue->rate = 1;
	engine->rates_stale = true;
	note_start(engine, queue, task);
	count_rounds(engine, (int)(task - engine->tasks));
	if (task->begins >= 0)
		*begins = task->begins;
	if (task->meeting >= 0)
		meeting_come(engine, queue, task->meeting);
	else if (queue->left <= 0 && queue->host_done <= engine->now)
		finish(engine, queue);
	return true;
}

/* --- time ------------------------------------------------------------------------------------- */

/* Kernels end no earlier than the host has launched the last of them. */
static double end_of(const struct engine *engine, const struct queue *queue)
{
	return fmax(engine->now + queue->left / queue->rate, queue->host_done);
}

/* The next operation that ends, if before `next`; `*elapsed` becomes the time until then. That is
 * computed from the work left, because late in a long step the difference of two times has lost the
 * digits of a short operation. */
static double next_event(struct engine *engine, double next, double *elapsed)
{
	*elapsed = next - engine->now;
	for (int i = 0; i < engine->n_queues; i++) {
		const struct queue *queue = &engine->queues[i];
		double end;

		if (!queue->running || queue->awaits || (end = end_of(engine, queue)) > next)
			continue;
		next = end;
		engine->n_held_up += end <= queue->host_done;
		*elapsed = end > queue->host_done ? queue->left / queue->rate : end - engine->now;
	}
	return next;
}

static void book_exposed(struct engine *engine, double elapsed)
{
	engine->tally.exposed += elapsed;
	for (int i = 0; i < engine->n_queues; i++) {
		const struct queue *queue = &engine->queues[i];
		const struct task *task;

		if (!queue->running || queue->awaits)
			continue;
		task = task_at(engine, &queue->list, &queue->next);
		if (task->communicates)
			axis_of(engine, task)->exposed += elapsed;
	}
}

/* Adds up communication that runs while nothing computes. */
static void book_idle(struct engine *engine, double elapsed)
{
	bool communicates = false, awaits = false;

	for (int i = 0; i < engine->n_queues; i++) {
		const struct queue *queue = &engine->queues[i];
		const struct task *task;

		if (!queue->running)
			continue;
		task = task_at(engine, &queue->list, &queue->next);
		if (task->is_compute)
			return;
		communicates = communicates || (task->communicates && !queue->awaits);
		awaits = awaits || queue->awaits;
	}
	if (communicates)
		book_exposed(engine, elapsed);
	else if (awaits)
		engine->tally.bubble += elapsed;
}

void engine_advance(struct engine *engine, double to, double elapsed)
{
	book_idle(engine, elapsed);
	for (int i = 0; i < engine->n_queues; i++) {
		struct queue *queue = &engine->queues[i];

		if (!queue->running || queue->awaits)
			continue;
		queue->ran += elapsed;
		/* It ends at its computed time, even if rounding leaves some work. */
		if (end_of(engine, queue) <= to) {
			queue->left = -1;
			continue;
		}
		queue->left = fmax(0, queue->left - elapsed * queue->rate);
	}
	engine->now = to;
	for (int i = 0; i < engine->n_queues; i++)
		if (engine->queues[i].running && engine->queues[i].left < 0)
			finish(engine, &engine->queues[i]);
}

bool engine_is_stuck(const struct engine *engine, struct error *error)
{
	const struct issuer *host = &engine->host;
	const struct task *task = task_at(engine, &host->list, &host->next);
	int op = host->list.ops[host->next.at], step = host->next.step;
	int64_t position = position_of(engine, task, &task->place, &host->next);

	for (int i = 0; i < engine->n_queues; i++) {
		const struct queue *queue = &engine->queues[i];

		if (queue->position >= position)
			continue;
		position = queue->position;
		op = queue->list.ops[queue->next.at];
		step = queue->next.step;
	}
	return error_set(error, EXIT_CODE_INTERNAL,
		"the schedule deadlocks: operation %d (%s) of step %d never starts", op,
		op_kind_name(engine->program->ops[op].kind), step + 1);
}

void engine_settle(struct engine *engine)
{
	int begins = -1;
	double next;

	for (bool started = true; started;) {
		engine->next = INFINITY;
		if (engine_is_over(engine))
			return;
		host_run(engine);
		if (engine_is_over(engine))
			return;
		started = false;
		next = host_wakes(engine);
		for (int i = 0; i < engine->n_queues; i++)
			started |= start(engine, &engine->queues[i], &next, &begins);
		if (!started && begins >= 0 && engine->steady != NULL) {
			steady_pass(engine, begins);
			begins = -1;
			started = true; /* the host may go on at once */
		}
	}
	if (engine->rates_stale)
		contention_rates(engine);
	engine->next = next_event(engine, next, &engine->elapsed);
}
