/* The steady state. The iterations of a loop do the same with other layers or micro-batches. The
 * state at the beginning of an iteration is what runs, how much of it is left, and the place of
 * every stream relative to the iteration. If it equals the state one iteration before, all further
 * iterations repeat, each one period later. Then all but the last are skipped at once: times, sums
 * and memory grow by as many periods. Where no two iterations are equal, all are simulated.
 *
 * The host may be far ahead and not repeat. Operations that it has already issued can still be
 * skipped, if nothing waits for their launches, or if each launch comes one period after the same
 * one of the iteration before. */
#include "simulator/engine/steady.h"

/* --- setting up ------------------------------------------------------------------------------- */

static void count(const struct engine *engine, struct steady *steady, int index)
{
	const struct program *program = engine->program;
	const struct task *task = &engine->tasks[index];

	for (int l = 0; l < program->n_loops; l++) {
		const struct loop *loop = &program->loops[l];
		if (index < loop->first || index >= loop->first + loop->n)
			continue;
		int times = loop->outer < 0 && task->depth == LOOP_DEPTH ? task->times / loop->times
									 : 1;

		steady->operations[task->queue][l] += times;
		steady->kernels[task->queue][l] += times * task->cost->kernels;
		steady->lengths[l] += times;
	}
}

struct steady *steady_new(const struct engine *engine, struct arena *arena)
{
	int n = engine->program->n_loops;
	struct steady *steady = ARENA_NEW(arena, struct steady);

	steady->lengths = ARENA_ARRAY(arena, int, n);
	for (int q = 0; q < engine->n_queues; q++) {
		steady->operations[q] = ARENA_ARRAY(arena, int, n);
		steady->kernels[q] = ARENA_ARRAY(arena, double, n);
	}
	for (int i = 0; i < engine->n_ops; i++) {
		const struct task *task = &engine->tasks[i];

		count(engine, steady, i);
		steady->limited |= task->n_host_waits > 0 && task->depth > 0 && !task->takes_batch;
	}
	for (int depth = 0; depth < LOOP_DEPTH; depth++)
		steady->before[depth].communicators =
			ARENA_ARRAY(arena, struct cursor, engine->n_communicators);
	return steady;
}

static void keep_launches(struct arena *arena, const struct queue *queue, struct queue_state *state)
{
	if (queue->n_issued > state->capacity) {
		state->capacity = queue->capacity;
		state->launches = ARENA_ARRAY(arena, struct issued, state->capacity);
	}
	state->n_launches = queue->n_issued;
	for (int i = 0; i < queue->n_issued; i++)
		state->launches[i] = *turn_launch(queue, i);
}

static void take_snapshot(const struct engine *engine, int loop, struct snapshot *snapshot)
{
	snapshot->valid = true;
	snapshot->compute = engine->queues[engine->compute].next;
	snapshot->now = engine->now;
	for (int q = 0; q < engine->n_queues; q++) {
		const struct queue *queue = &engine->queues[q];

		struct queue_state *state = &snapshot->queues[q];

		state->next = queue->next;
		state->running = queue->running;
		state->ran = queue->ran;
		state->left = queue->left;
		state->host_done = queue->host_done;
		if (engine->program->loops[loop].layers == 0)
			keep_launches(engine->arena, queue, state);
	}
	for (int c = 0; c < engine->n_communicators; c++)
		snapshot->communicators[c] = engine->communicators[c].next;
	snapshot->host = engine->host.next;
	snapshot->host_time = engine->host.time;
	snapshot->host_blocked_on = engine->host.blocked_on;
	snapshot->n_held_up = engine->n_held_up;
	snapshot->tally = engine->tally;
	snapshot->n_ended = engine->record != NULL ? engine->record->n_ended : 0;
}

/* --- passing over ----------------------------------------------------------------------------- */

static void shift(struct turn *turn, const struct list *list, struct cursor *cursor)
{
	if (turn_is_inside(turn, list, cursor))
		cursor->round[turn->depth] += turn->times;
}

static void move_launches(struct turn *turn, struct queue *queue)
{
	for (int i = 0; i < queue->n_issued; i++) {
		struct issued *issued = &queue->ring[(queue->first + i) & (queue->capacity - 1)];

		issued->at += turn->times * turn->period;
		issued->done += turn->times * turn->period;
	}
}

/* The operation that runs now becomes the last of the skipped ones. */
static void drop_launches(struct queue *queue, int n)
{
	if (queue->running)
		queue->host_done = turn_launch(queue, n - 1)->done;
	queue->first = (queue->first + n) & (queue->capacity - 1);
	queue->n_issued -= n;
}

static void move_queue(struct turn *turn, int q)
{
	struct engine *engine = turn->engine;
	struct queue *queue = &engine->queues[q];
	int n = turn->times * engine->steady->operations[q][turn->loop];

	queue->blocked_on = -1;
	if (!turn_moves(turn, q))
		return;
	shift(turn, &queue->list, &queue->next);
	queue->position = turn_position(engine, &queue->list, &queue->next);
	engine->n_completed += n;
	engine->unfinished[turn->before->compute.step] -= n;
	if (turn->host_repeats) {
		queue->host_done += turn->times * turn->period;
		move_launches(turn, queue);
		return;
	}
	drop_launches(queue, n);
	queue->launched -= turn->times * engine->steady->kernels[q][turn->loop];
}

static void move_communicator(struct turn *turn, struct communicator *communicator)
{
	const struct engine *engine = turn->engine;

	if (communicator->list.n == 0)
		return;
	shift(turn, &communicator->list, &communicator->next);
	communicator->position = turn_position(engine, &communicator->list, &communicator->next);
}

/* A host that does not repeat has issued meanwhile all that it could: it catches up, and no
 * operation waits for its launches. */
static void move_host(struct turn *turn, double begun)
{
	struct engine *engine = turn->engine;
	struct issuer *host = &engine->host;

	if (!turn->host_repeats) {
		if (host->blocked_on >= 0 &&
			has_finished(engine, host->blocked_on, host->blocked_position)) {
			host->blocked_on = -1;
			host->time = fmax(host->time, begun);
		}
		return;
	}
	shift(turn, &host->list, &host->next);
	host->time += turn->times * turn->period;
	engine->n_issued += (int64_t)turn->times * engine->steady->lengths[turn->loop];
	if (host->blocked_on >= 0 && turn_is_inside(turn, &engine->queues[host->blocked_on].list,
					     &engine->queues[host->blocked_on].next))
		host->blocked_position +=
			(int64_t)turn->times * engine->steady->lengths[turn->loop];
}

static void add_more(int times, double before, double *now)
{
	*now += times * (*now - before);
}

void tally_repeat(struct tally *tally, const struct tally *before, int times)
{
	add_more(times, before->exposed, &tally->exposed);
	add_more(times, before->bubble, &tally->bubble);
	for (int kind = 0; kind < OP_KIND_COUNT; kind++)
		add_more(times, before->by_kind[kind], &tally->by_kind[kind]);
	for (int axis = 0; axis < GROUP_KIND_COUNT; axis++) {
		const struct axis_tally *then = &before->by_axis[axis];
		add_more(times, then->ran, &tally->by_axis[axis].ran);
		add_more(times, then->exposed, &tally->by_axis[axis].exposed);
	}
}

/* --- what is kept of it ----------------------------------------------------------------------- */

/* The same as one iteration before, a period later. */
static void repeat(const struct turn *turn, double *times, int64_t position)
{
	if (times == NULL)
		return;
	times[position] =
		times[position - turn->engine->steady->lengths[turn->loop]] + turn->period;
}

static void record_queue(const struct turn *turn, int q)
{
	const struct engine *engine = turn->engine;
	const struct queue *queue = &engine->queues[q];
	struct record *record = engine->record;
	struct cursor cursor = queue->next;

	if (!turn_moves(turn, q))
		return;
	for (int i = turn->times * engine->steady->operations[q][turn->loop]; i > 0; i--) {
		int64_t position = turn_position(engine, &queue->list, &cursor);

		if (record->start != NULL && isinf(record->start[position]))
			repeat(turn, record->start, position);
		repeat(turn, record->end, position);
		list_advance(&queue->list, engine->program, &cursor);
	}
	if (queue->running)
		repeat(turn, record->start, turn_position(engine, &queue->list, &cursor));
}

static void record_host(const struct turn *turn)
{
	const struct engine *engine = turn->engine;
	const struct list *list = &engine->host.list;
	struct cursor cursor = engine->host.next;

	for (int i = turn->times * engine->steady->lengths[turn->loop]; i > 0 && turn->host_repeats;
		i--) {
		int64_t position = turn_position(engine, list, &cursor);

		repeat(turn, engine->record->issued, position);
		repeat(turn, engine->record->host_done, position);
		engine->record->ops[position] = list->ops[cursor.at];
		list_advance(list, engine->program, &cursor);
	}
}

static void record_ended(const struct turn *turn)
{
	struct record *record = turn->engine->record;
	int length = turn->engine->steady->lengths[turn->loop], end = record->n_ended;

	for (int k = 1; k <= turn->times; k++)
		for (int i = turn->before->n_ended; i < end; i++)
			record->ended[record->n_ended++] = record->ended[i] + k * length;
}

static void record_all(const struct turn *turn)
{
	for (int q = 0; q < turn->engine->n_queues; q++)
		record_queue(turn, q);
	record_host(turn);
	record_ended(turn);
}

static void pass_over(struct turn *turn)
{
	struct engine *engine = turn->engine;
	double begun = engine->now;

	tally_repeat(&engine->tally, &turn->before->tally, turn->times);
	if (engine->record != NULL)
		record_all(turn);
	if (engine->observer != NULL)
		engine->observer->repeat(engine->observer->self, turn->depth, turn->times);
	engine->now += turn->times * turn->period;
	for (int q = 0; q < engine->n_queues; q++)
		move_queue(turn, q);
	for (int c = 0; c < engine->n_communicators; c++)
		move_communicator(turn, &engine->communicators[c]);
	move_host(turn, begun);
}

void steady_pass(struct engine *engine, int loop)
{
	struct steady *steady = engine->steady;
	int depth = engine->program->loops[loop].outer >= 0;
	struct snapshot *before = &steady->before[depth];
	struct turn turn = {.engine = engine, .before = before, .loop = loop, .depth = depth};
	const struct cursor *compute = &engine->queues[engine->compute].next;

	if (engine->observer != NULL)
		engine->observer->mark(engine->observer->self, depth);
	turn.period = engine->now - before->now;
	if (before->valid && turn.period > 0 && turn_is_next(&turn, &before->compute, compute) &&
		turn_is_periodic(&turn)) {
		pass_over(&turn);
		before->valid = false;
		steady->before[LOOP_DEPTH - 1].valid = false;
		return;
	}
	take_snapshot(engine, loop, before);
}
