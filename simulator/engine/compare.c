/* Compares the state at the beginning of an iteration with that one iteration before (steady.c). */
#include "simulator/engine/steady.h"

/* A state repeats when its times differ by less than this share of the period. */
static const double precision = 1e-10;

static bool is_same(const struct cursor *a, const struct cursor *b)
{
	return a->step == b->step && a->at == b->at && a->round[0] == b->round[0] &&
	       a->round[1] == b->round[1];
}

/* Is b one iteration after a? */
bool turn_is_next(const struct turn *turn, const struct cursor *a, const struct cursor *b)
{
	struct cursor next = *a;

	next.round[turn->depth]++;
	return is_same(&next, b);
}

bool turn_is_inside(const struct turn *turn, const struct list *list, const struct cursor *cursor)
{
	int first = list->opens[turn->loop];

	return first >= 0 && cursor->at >= first && cursor->at < first + list->lengths[turn->loop];
}

static bool repeats(const struct turn *turn, const struct list *list, const struct cursor *a,
	const struct cursor *b)
{
	return turn_is_inside(turn, list, b) && turn_is_next(turn, a, b);
}

/* Does a cursor stand still, because its list has no operation of the loop or is past the loop? */
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

/* Are both times past, or the same time from now as from the beginning of the iteration before? */
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

const struct issued *turn_launch(const struct queue *queue, int i)
{
	return &queue->ring[(queue->first + i) & (queue->capacity - 1)];
}

/* Seconds between this launch and the same one of the iteration before. */
static double since_last(const struct queue *queue, int i, int per_iteration, int place)
{
	double last = i < per_iteration ? queue->last_issued[place]
					: turn_launch(queue, i - per_iteration)->at;

	return turn_launch(queue, i)->at - last;
}

/* Launches that are there already, up to the first that may be waited for and comes at another time
 * of its iteration. Nothing waits for one that is done before its iteration begins, or before all
 * that is ahead of it in the queue can have ended; but where the host held something up in the
 * iteration before, one that it does not hold up ends sooner than that one. */
static int regular_launches(const struct turn *turn, const struct queue *queue, int per_iteration)
{
	const struct engine *engine = turn->engine;
	struct cursor cursor = queue->next;
	double ended = engine->now;
	bool held_up = engine->n_held_up > turn->before->n_held_up;
	int i = 0;

	/* Launches are done in order: with the last one all are. */
	if (queue->n_issued == 0 ||
		(!held_up && turn_launch(queue, queue->n_issued - 1)->done <= ended))
		return queue->n_issued;
	if (queue->running) {
		ended += queue->left;
		list_advance(&queue->list, engine->program, &cursor);
	}
	for (; i < queue->n_issued; i++) {
		double begins = engine->now + i / per_iteration * turn->period;

		if ((held_up || turn_launch(queue, i)->done > fmax(begins, ended)) &&
			!near(turn, since_last(queue, i, per_iteration, cursor.at), turn->period))
			break;
		ended += task_at(engine, &queue->list, &cursor)->cost->device;
		list_advance(&queue->list, engine->program, &cursor);
	}
	return i;
}

/* Where the host does not repeat, a queue can go only as far as the host has issued. */
static void stay_behind_host(struct turn *turn, int q)
{
	const struct queue *queue = &turn->engine->queues[q];
	int per_iteration = turn->engine->steady->operations[q][turn->loop];
	int launches = regular_launches(turn, queue, per_iteration);

	at_most(turn, queue->running ? launches / per_iteration : (launches - 1) / per_iteration);
}

/* Micro-batches: as one iteration before. Inside of them the same launch has come many times since.
 */
static bool launches_repeat(struct turn *turn, int q)
{
	const struct queue *queue = &turn->engine->queues[q];
	const struct queue_state *before = &turn->before->queues[q];

	if (turn->engine->program->loops[turn->loop].layers != 0)
		return regular_launches(turn, queue,
			       turn->engine->steady->operations[q][turn->loop]) == queue->n_issued;
	if (before->n_launches != queue->n_issued)
		return false;
	for (int i = 0; i < queue->n_issued; i++)
		if (!comes_again(turn, before->launches[i].at, turn_launch(queue, i)->at) ||
			!comes_again(turn, before->launches[i].done, turn_launch(queue, i)->done))
			return false;
	return true;
}

bool turn_moves(const struct turn *turn, int q)
{
	const struct queue *queue = &turn->engine->queues[q];

	return turn_is_inside(turn, &queue->list, &queue->next) &&
	       !is_same(&queue->next, &turn->before->queues[q].next);
}

/* An operation that something waits for must not be skipped. */
static void stay_before(struct turn *turn, int q, int64_t position)
{
	int64_t ahead = position - turn->engine->queues[q].position;

	if (turn_moves(turn, q))
		at_most(turn, (int)(ahead / turn->engine->steady->lengths[turn->loop]));
}

/* A queue that stands still with operations issued waits for another operation. It must go on
 * waiting for it through all skipped iterations. */
static bool stays_blocked(struct turn *turn, const struct queue *queue)
{
	if (queue->n_issued == 0)
		return true;
	if (queue->blocked_on < 0)
		return false;
	stay_before(turn, queue->blocked_on, queue->blocked_position);
	return true;
}

/* Has the running operation as much left as before, and did it begin as long ago? The latter counts
 * because its duration is added to sums when it ends. */
static bool same_runs(
	const struct turn *turn, const struct queue *queue, const struct queue_state *before)
{
	return near(turn, queue->left, before->left) && near(turn, queue->ran, before->ran) &&
	       comes_again(turn, before->host_done, queue->host_done);
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
	if (queue->running && !same_runs(turn, queue, before))
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

/* A host that is a micro-batch or a step ahead may be in the same loop: it issues to every stream
 * that the loop has, also to those that are past it and stand still. Their launches pile up. */
static bool launches_pile_up(const struct turn *turn)
{
	const struct engine *engine = turn->engine;

	for (int q = 0; q < engine->n_queues; q++)
		if (engine->steady->operations[q][turn->loop] > 0 && !turn_moves(turn, q))
			return true;
	return false;
}

static bool host_repeats(struct turn *turn)
{
	const struct issuer *host = &turn->engine->host;

	if (!repeats(turn, &host->list, &turn->before->host, &host->next) ||
		launches_pile_up(turn) || host->blocked_on != turn->before->host_blocked_on ||
		!comes_again(turn, turn->before->host_time, host->time))
		return false;
	stay_inside(turn, &host->next);
	return true;
}

/* After the periods that are passed over. */
static bool will_have_finished(const struct turn *turn, int q, int64_t position)
{
	int64_t passed = turn_moves(turn, q)
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
		if (turn_moves(turn, q))
			room[q] += turn->times * engine->steady->kernels[q][turn->loop];
		asked[q] = turn_moves(turn, q) || engine->queues[q].n_issued > 0;
	}
	while (at.step < engine->n_steps) {
		const struct task *task = task_at(engine, &engine->host.list, &at);
		int q = task->queue;

		if (room[q] < task->cost->kernels ||
			must_wait(turn, task, task_host_waits(task), task->n_host_waits, &at))
			return true;
		if (!asked[q] && !must_wait(turn, task, task->waits, task->n_waits, &at))
			return false;
		if (task->blocks_host)
			return true;
		asked[q] = true;
		room[q] -= task->cost->kernels;
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

bool turn_is_periodic(struct turn *turn)
{
	struct engine *engine = turn->engine;

	turn->times = engine->program->loops[turn->loop].times;
	turn->host_repeats = host_repeats(turn);
	/* When the host issued what it was ahead with is not known exactly. */
	if (!turn->host_repeats && (engine->steady->limited || engine->record != NULL))
		return false;
	for (int q = 0; q < engine->n_queues; q++)
		if (!queue_repeats(turn, q))
			return false;
	for (int c = 0; c < engine->n_communicators; c++)
		if (engine->communicators[c].list.n > 0 && !communicator_repeats(turn, c))
			return false;
	return turn->times > 0 && (turn->host_repeats || host_is_ahead(turn));
}

int64_t turn_position(
	const struct engine *engine, const struct list *list, const struct cursor *cursor)
{
	const struct task *task = task_at(engine, list, cursor);

	return position_of(engine, task, &task->place, cursor);
}
