/* The steady state. A loop of the list repeats what it does with other layers or micro-batches.
 * When an iteration begins as the one before it began (what runs, how much of it is left, where
 * every stream stands, counted from the iteration), then the rest goes on like this, one period
 * later each time: all but the last iteration are passed over at once, and times, sums and memory
 * grow by as many periods. Where no two iterations are alike, all are simulated.
 *
 * The host may be far ahead, where it does not repeat. What it has issued already may still be
 * passed over, as long as nothing waits for it, or each launch comes one period after the same one
 * of the iteration before. */
#include <string.h>

#include "simulator/engine/engine.h"

/* A state repeats when its times differ by less than this share of the period. */
static const double precision = 1e-10;

struct queue_state {
	struct cursor next;
	bool running;
	double left, host_done;
};

struct snapshot {
	bool valid;
	int n_log;
	struct cursor compute;
	double now;
	struct queue_state queues[STREAM_COUNT];
	struct cursor *communicators;
	struct cursor host;
	double host_time;
	int host_blocked_on;
	struct tally tally;
};

struct steady {
	struct snapshot before[LOOP_DEPTH];
	/* By queue and loop: operations of one iteration, nested loops as often as they go, and
	 * their kernels. By loop: all operations. */
	int *operations[STREAM_COUNT], *lengths;
	double *kernels[STREAM_COUNT];
	bool limited; /* the host waits for operations inside of loops */
};

/* A loop that begins an iteration, and the state that is compared. */
struct turn {
	struct engine *engine;
	const struct snapshot *before;
	int loop, depth;
	double period;
	bool host_repeats;
	int times; /* periods that can be passed over */
};

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
		steady->kernels[task->queue][l] += times * task->cost.kernels;
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

static void take_snapshot(const struct engine *engine, struct snapshot *snapshot)
{
	snapshot->valid = true;
	snapshot->compute = engine->queues[engine->compute].next;
	snapshot->now = engine->now;
	for (int q = 0; q < engine->n_queues; q++) {
		const struct queue *queue = &engine->queues[q];

		snapshot->queues[q] = (struct queue_state){
			queue->next, queue->running, queue->left, queue->host_done};
	}
	for (int c = 0; c < engine->n_communicators; c++)
		snapshot->communicators[c] = engine->communicators[c].next;
	snapshot->host = engine->host.next;
	snapshot->host_time = engine->host.time;
	snapshot->host_blocked_on = engine->host.blocked_on;
	snapshot->tally = engine->tally;
	snapshot->n_log = engine->record != NULL ? engine->record->n_log : 0;
}

/* --- comparing -------------------------------------------------------------------------------- */

static bool is_same(const struct cursor *a, const struct cursor *b)
{
	return a->step == b->step && a->at == b->at && a->round[0] == b->round[0] &&
	       a->round[1] == b->round[1];
}

/* One iteration further. */
static bool is_next(const struct turn *turn, const struct cursor *a, const struct cursor *b)
{
	struct cursor next = *a;

	next.round[turn->depth]++;
	return is_same(&next, b);
}

static bool is_inside(const struct turn *turn, const struct list *list, const struct cursor *cursor)
{
	int first = list->opens[turn->loop];

	return first >= 0 && cursor->at >= first && cursor->at < first + list->lengths[turn->loop];
}

static bool repeats(const struct turn *turn, const struct list *list, const struct cursor *a,
	const struct cursor *b)
{
	return is_inside(turn, list, b) && is_next(turn, a, b);
}

/* Something that has no part in the loop, or is past it, stands still. */
static bool stands_still(const struct turn *turn, const struct list *list, const struct cursor *a,
	const struct cursor *b)
{
	int first = list->opens[turn->loop];
	bool past = first >= 0 && (b->at >= first + list->lengths[turn->loop] ||
					  b->step > turn->before->compute.step);

	return is_same(a, b) && (first < 0 || past);
}

static bool near(const struct turn *turn, double a, double b)
{
	return fabs(a - b) <= precision * turn->period;
}

/* Both are over, or come as much later as the period is long. */
static bool comes_again(const struct turn *turn, double before, double now)
{
	return (now <= turn->engine->now && before <= turn->before->now) ||
	       near(turn, now - turn->engine->now, before - turn->before->now);
}

static void at_most(struct turn *turn, int times)
{
	if (times < turn->times)
		turn->times = times;
}

/* The last iteration is simulated. */
static void stay_inside(struct turn *turn, const struct cursor *cursor)
{
	at_most(turn,
		turn->engine->program->loops[turn->loop].times - 1 - cursor->round[turn->depth]);
}

static const struct issued *issued_at(const struct queue *queue, int i)
{
	return &queue->ring[(queue->first + i) & (queue->capacity - 1)];
}

/* How long before this launch the same one of the iteration before came. */
static double since_last(const struct queue *queue, int i, int per_iteration, int place)
{
	double last = i < per_iteration ? queue->last_issued[place]
					: issued_at(queue, i - per_iteration)->at;

	return issued_at(queue, i)->at - last;
}

/* Launches that are there already, up to the first that may be waited for and comes at another time
 * of its iteration. What is there before its iteration begins, nothing waits for. */
static int regular_launches(const struct turn *turn, const struct queue *queue, int per_iteration)
{
	const struct engine *engine = turn->engine;
	struct cursor cursor = queue->next;
	int i = 0;

	if (queue->running)
		list_advance(&queue->list, engine->program, &cursor);
	for (; i < queue->n_issued; i++) {
		double begins = engine->now + i / per_iteration * turn->period;

		if (issued_at(queue, i)->done > begins &&
			!near(turn, since_last(queue, i, per_iteration, cursor.at), turn->period))
			break;
		list_advance(&queue->list, engine->program, &cursor);
	}
	return i;
}

/* The host does not repeat: what it has issued bounds how far a queue can go. */
static void stay_behind_host(struct turn *turn, int q)
{
	const struct queue *queue = &turn->engine->queues[q];
	int per_iteration = turn->engine->steady->operations[q][turn->loop];
	int launches = regular_launches(turn, queue, per_iteration);

	at_most(turn, queue->running ? launches / per_iteration : (launches - 1) / per_iteration);
}

static bool launches_repeat(struct turn *turn, int q)
{
	const struct queue *queue = &turn->engine->queues[q];
	int per_iteration = turn->engine->steady->operations[q][turn->loop];

	return regular_launches(turn, queue, per_iteration) == queue->n_issued;
}

static bool moves(const struct turn *turn, int q)
{
	const struct queue *queue = &turn->engine->queues[q];

	return is_inside(turn, &queue->list, &queue->next) &&
	       !is_same(&queue->next, &turn->before->queues[q].next);
}

/* What is waited for must not be passed over. */
static void stay_before(struct turn *turn, int q, int64_t position)
{
	int64_t ahead = position - turn->engine->queues[q].position;

	if (moves(turn, q))
		at_most(turn, (int)(ahead / turn->engine->steady->lengths[turn->loop]));
}

/* One that stands still with something to do waits for an operation, and goes on waiting. */
static bool stays_blocked(struct turn *turn, const struct queue *queue)
{
	if (queue->n_issued == 0)
		return true;
	if (queue->blocked_on < 0)
		return false;
	stay_before(turn, queue->blocked_on, queue->blocked_position);
	return true;
}

static bool queue_repeats(struct turn *turn, int q)
{
	const struct queue *queue = &turn->engine->queues[q];
	const struct queue_state *before = &turn->before->queues[q];

	if (queue->running != before->running)
		return false;
	if (stands_still(turn, &queue->list, &before->next, &queue->next))
		return !queue->running && stays_blocked(turn, queue);
	if (!repeats(turn, &queue->list, &before->next, &queue->next))
		return false;
	if (queue->running && (!near(turn, queue->left, before->left) ||
				      !comes_again(turn, before->host_done, queue->host_done)))
		return false;
	stay_inside(turn, &queue->next);
	if (turn->host_repeats)
		return launches_repeat(turn, q);
	stay_behind_host(turn, q);
	return true;
}

static bool communicator_repeats(struct turn *turn, int c)
{
	const struct communicator *communicator = &turn->engine->communicators[c];
	const struct cursor *before = &turn->before->communicators[c];

	if (stands_still(turn, &communicator->list, before, &communicator->next))
		return true;
	stay_inside(turn, &communicator->next);
	return repeats(turn, &communicator->list, before, &communicator->next);
}

static bool host_repeats(struct turn *turn)
{
	const struct issuer *host = &turn->engine->host;

	if (!repeats(turn, &host->list, &turn->before->host, &host->next) ||
		host->blocked_on != turn->before->host_blocked_on ||
		!comes_again(turn, turn->before->host_time, host->time))
		return false;
	stay_inside(turn, &host->next);
	return true;
}

/* After the periods that are passed over. */
static bool will_have_finished(const struct turn *turn, int q, int64_t position)
{
	int64_t passed = moves(turn, q)
				 ? (int64_t)turn->times * turn->engine->steady->lengths[turn->loop]
				 : 0;

	return has_finished(turn->engine, q, position - passed);
}

static bool must_wait(const struct turn *turn, const struct task *task, const struct wait *waits,
	int n, const struct cursor *at)
{
	for (int i = 0; i < n; i++) {
		int64_t position = position_of(turn->engine, task, &waits[i].place, at);

		if (position >= 0 && !will_have_finished(turn, waits[i].queue, position))
			return true;
	}
	return false;
}

/* A host that was held up by a full launch queue goes on issuing. Nothing of it may start at once:
 * it would have started earlier. */
static bool host_stays_ahead(const struct turn *turn)
{
	const struct engine *engine = turn->engine;
	struct cursor at = engine->host.next;
	double room[STREAM_COUNT];
	bool asked[STREAM_COUNT] = {false};

	for (int q = 0; q < engine->n_queues; q++) {
		room[q] = engine->launch_queue - engine->queues[q].launched;
		if (moves(turn, q))
			room[q] += turn->times * engine->steady->kernels[q][turn->loop];
		asked[q] = moves(turn, q) || engine->queues[q].n_issued > 0;
	}
	while (at.step < engine->n_steps) {
		const struct task *task = task_at(engine, &engine->host.list, &at);
		int q = task->queue;

		if (room[q] < task->cost.kernels ||
			must_wait(turn, task, task->host_waits, task->n_host_waits, &at))
			return true;
		if (!asked[q] && !must_wait(turn, task, task->waits, task->n_waits, &at))
			return false;
		if (task->blocks_host)
			return true;
		asked[q] = true;
		room[q] -= task->cost.kernels;
		list_advance(&engine->host.list, engine->program, &at);
		if (at.at == 0 && !engine->runs_ahead)
			return true;
	}
	return true;
}

/* The host goes its own way. */
static bool host_is_ahead(struct turn *turn)
{
	const struct issuer *host = &turn->engine->host;

	if (host->blocked_on < 0)
		return true;
	if (!host->queue_is_full)
		stay_before(turn, host->blocked_on, host->blocked_position);
	return turn->times > 0 && (!host->queue_is_full || host_stays_ahead(turn));
}

static bool is_periodic(struct turn *turn)
{
	struct engine *engine = turn->engine;

	turn->times = engine->program->loops[turn->loop].times;
	turn->host_repeats = host_repeats(turn);
	if (!turn->host_repeats && engine->steady->limited)
		return false;
	for (int q = 0; q < engine->n_queues; q++)
		if (!queue_repeats(turn, q))
			return false;
	for (int c = 0; c < engine->n_communicators; c++)
		if (engine->communicators[c].list.n > 0 && !communicator_repeats(turn, c))
			return false;
	return turn->times > 0 && (turn->host_repeats || host_is_ahead(turn));
}

static int64_t standing(
	const struct engine *engine, const struct list *list, const struct cursor *cursor)
{
	const struct task *task = task_at(engine, list, cursor);

	return position_of(engine, task, &task->place, cursor);
}

/* --- passing over ----------------------------------------------------------------------------- */

static void shift(struct turn *turn, const struct list *list, struct cursor *cursor)
{
	if (is_inside(turn, list, cursor))
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

/* The last of what is passed over is what runs now. */
static void drop_launches(struct queue *queue, int n)
{
	if (queue->running)
		queue->host_done = issued_at(queue, n - 1)->done;
	queue->first = (queue->first + n) & (queue->capacity - 1);
	queue->n_issued -= n;
}

static void move_queue(struct turn *turn, int q)
{
	struct engine *engine = turn->engine;
	struct queue *queue = &engine->queues[q];
	int n = turn->times * engine->steady->operations[q][turn->loop];

	queue->blocked_on = -1;
	if (!moves(turn, q))
		return;
	shift(turn, &queue->list, &queue->next);
	queue->position = standing(engine, &queue->list, &queue->next);
	engine->n_completed += n;
	engine->unfinished[turn->before->compute.step] -= n;
	queue->started += turn->times * turn->period;
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
	communicator->position = standing(engine, &communicator->list, &communicator->next);
}

/* One that does not repeat has gone on meanwhile as far as it could: it catches up, and nothing
 * waits for what it issues. */
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
	if (host->blocked_on >= 0 && is_inside(turn, &engine->queues[host->blocked_on].list,
					     &engine->queues[host->blocked_on].next))
		host->blocked_position +=
			(int64_t)turn->times * engine->steady->lengths[turn->loop];
}

static void add_tally(struct turn *turn)
{
	struct tally *tally = &turn->engine->tally;
	const struct tally *before = &turn->before->tally;

	tally->exposed += turn->times * (tally->exposed - before->exposed);
	for (int kind = 0; kind < OP_KIND_COUNT; kind++)
		tally->by_kind[kind] +=
			turn->times * (tally->by_kind[kind] - before->by_kind[kind]);
}

/* --- what is kept of it ----------------------------------------------------------------------- */

/* As one iteration before, a period later. */
static void repeat(const struct turn *turn, double *times, int64_t position)
{
	times[position] =
		times[position - turn->engine->steady->lengths[turn->loop]] + turn->period;
}

static void record_queue(const struct turn *turn, int q)
{
	const struct engine *engine = turn->engine;
	const struct queue *queue = &engine->queues[q];
	struct record *record = engine->record;
	struct cursor cursor = queue->next;

	if (!moves(turn, q))
		return;
	for (int i = turn->times * engine->steady->operations[q][turn->loop]; i > 0; i--) {
		int64_t position = standing(engine, &queue->list, &cursor);

		if (isinf(record->start[position]))
			repeat(turn, record->start, position);
		repeat(turn, record->end, position);
		list_advance(&queue->list, engine->program, &cursor);
	}
	if (queue->running)
		repeat(turn, record->start, standing(engine, &queue->list, &cursor));
}

static void record_host(const struct turn *turn)
{
	const struct engine *engine = turn->engine;
	const struct list *list = &engine->host.list;
	struct cursor cursor = engine->host.next;

	for (int i = turn->times * engine->steady->lengths[turn->loop]; i > 0 && turn->host_repeats;
		i--) {
		int64_t position = standing(engine, list, &cursor);

		repeat(turn, engine->record->issued, position);
		repeat(turn, engine->record->host_done, position);
		engine->record->at[position] = cursor;
		list_advance(list, engine->program, &cursor);
	}
}

static void record_log(const struct turn *turn)
{
	struct record *record = turn->engine->record;
	int length = turn->engine->steady->lengths[turn->loop], end = record->n_log;

	for (int k = 1; k <= turn->times; k++)
		for (int i = turn->before->n_log; i < end; i++)
			record->log[record->n_log++] = record->log[i] < 0
							       ? record->log[i] - k * length
							       : record->log[i] + k * length;
}

static void record_all(const struct turn *turn)
{
	for (int q = 0; q < turn->engine->n_queues; q++)
		record_queue(turn, q);
	record_host(turn);
	record_log(turn);
}

static void pass_over(struct turn *turn)
{
	struct engine *engine = turn->engine;
	double begun = engine->now;

	add_tally(turn);
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
	if (before->valid && turn.period > 0 && is_next(&turn, &before->compute, compute) &&
		is_periodic(&turn)) {
		pass_over(&turn);
		before->valid = false;
		steady->before[LOOP_DEPTH - 1].valid = false;
		return;
	}
	take_snapshot(engine, before);
}
