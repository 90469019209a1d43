/* Several classes on one clock. Each has its own host thread, streams and communicators, and goes
 * from event to event by itself. They meet in messages and in collectives over classes: the first
 * operation waits on its stream for the others, as NCCL's kernels do. The transfer begins with the
 * last one, has the rate of the slowest, and ends for all at once. */
#include <assert.h>

#include "simulator/engine/inside.h"

struct seat {
	struct engine *engine;
	struct queue *queue;
};

/* A meeting of a sender and a receiver, or of all classes of a group. A stream (or a communicator)
 * of each class brings one operation after the other to it. */
struct meeting {
	int n, needs; /* operations that have come; that take part */
	struct seat *seats;
};

/* --- where they meet -------------------------------------------------------------------------- */

static bool meets(const struct schedule *schedule, const struct op *op)
{
	return op->group >= 0 && group_joins_classes(&schedule->groups[op->group]);
}

/* The index of a meeting, by group, sender and receiver; for collectives the latter are class 0. */
static int meeting_of(const struct schedule *schedule, int class, const struct op *op)
{
	int n = schedule->n_classes, from = 0, to = 0;

	if (op_kind_class(op->kind) == OP_CLASS_MESSAGE) {
		from = op->kind == OP_SEND ? class : op->message.peer;
		to = op->kind == OP_SEND ? op->message.peer : class;
	}
	return (op->group * n + from) * n + to;
}

static void init_meetings(
	struct engines *engines, const struct schedule *schedule, struct arena *arena)
{
	int n = schedule->n_classes, all = schedule->n_groups * n * n;

	engines->meetings = ARENA_ARRAY(arena, struct meeting, all);
	for (int c = 0; c < n; c++)
		for (int i = 0; i < engines->of[c].n_ops; i++) {
			const struct op *op = &engines->of[c].program->ops[i];
			struct meeting *meeting;

			if (!meets(schedule, op))
				continue;
			engines->of[c].tasks[i].meeting = meeting_of(schedule, c, op);
			meeting = &engines->meetings[engines->of[c].tasks[i].meeting];
			meeting->needs = 2;
			if (op_kind_class(op->kind) == OP_CLASS_COLLECTIVE)
				meeting->needs = (int)schedule->groups[op->group].size;
			if (meeting->seats == NULL)
				meeting->seats = ARENA_ARRAY(arena, struct seat, meeting->needs);
		}
}

void engines_init(struct engines *engines, const struct schedule *schedule,
	const struct engine_options *options, struct arena *arena)
{
	*engines = (struct engines){.n = schedule->n_classes};
	engines->of = ARENA_ARRAY(arena, struct engine, engines->n);
	for (int c = 0; c < engines->n; c++)
		engine_init(&engines->of[c], schedule, c, options, arena);
	if (engines->n == 1)
		return;
	init_meetings(engines, schedule, arena);
	for (int c = 0; c < engines->n; c++) {
		engines->of[c].together = engines;
		engines->of[c].steady = NULL;
	}
}

/* --- meeting ---------------------------------------------------------------------------------- */

/* A class that is asked about goes on until now. */
static void bring_forward(struct engine *engine, double now)
{
	if (engine->now < now)
		engine_advance(engine, now, now - engine->now);
	engine->touched = true;
}

static void begin(struct meeting *meeting, double now)
{
	double left = 0;

	for (int i = 0; i < meeting->needs; i++)
		left = fmax(left, meeting->seats[i].queue->left);
	for (int i = 0; i < meeting->needs; i++) {
		struct seat seat = meeting->seats[i];

		bring_forward(seat.engine, now);
		seat.engine->rates_stale = true;
		seat.queue->awaits = false;
		seat.queue->meeting = meeting;
		seat.queue->own_rate = 1;
		seat.queue->left = left;
	}
}

void meeting_come(struct engine *engine, struct queue *queue, int index)
{
	struct meeting *meeting = &engine->together->meetings[index];

	assert(meeting->n < meeting->needs);
	queue->awaits = true;
	meeting->seats[meeting->n++] = (struct seat){engine, queue};
	if (meeting->n == meeting->needs)
		begin(meeting, engine->now);
}

/* Ends the transfer for all; the others leave as soon as their hosts allow. */
void meeting_leave(struct engine *engine, struct queue *queue)
{
	struct meeting *meeting = queue->meeting;

	meeting->n = 0;
	for (int i = 0; i < meeting->needs; i++)
		meeting->seats[i].queue->meeting = NULL;
	for (int i = 0; i < meeting->needs; i++) {
		struct seat seat = meeting->seats[i];

		if (seat.engine == engine)
			continue;
		bring_forward(seat.engine, engine->now);
		if (seat.queue->running)
			seat.queue->left = 0;
	}
}

static void set_pace(struct engine *engine, const struct meeting *meeting)
{
	double rate = INFINITY;

	for (int i = 0; i < meeting->needs; i++)
		rate = fmin(rate, meeting->seats[i].queue->own_rate);
	for (int i = 0; i < meeting->needs; i++) {
		struct seat seat = meeting->seats[i];

		if (seat.queue->rate == rate)
			continue;
		if (seat.engine != engine)
			bring_forward(seat.engine, engine->now);
		seat.queue->rate = rate;
	}
}

void meeting_pace(struct engine *engine)
{
	for (int i = 0; i < engine->n_queues; i++) {
		struct queue *queue = &engine->queues[i];

		if (!queue->running || queue->meeting == NULL)
			continue;
		queue->own_rate = queue->rate;
		set_pace(engine, queue->meeting);
	}
}

/* --- the clock -------------------------------------------------------------------------------- */

/* Repeats until no class has changed another that had settled. */
static void settle_all(struct engines *engines)
{
	bool any;

	do {
		any = false;
		for (int c = 0; c < engines->n; c++) {
			struct engine *engine = &engines->of[c];

			if (!engine->touched)
				continue;
			engine->touched = false;
			engine_settle(engine);
			any = true;
		}
	} while (any);
}

static bool all_over(const struct engines *engines)
{
	bool over = true;

	for (int c = 0; c < engines->n; c++) {
		if (engines->of[c].starved)
			return true;
		over = over && engine_is_over(&engines->of[c]);
	}
	return over;
}

static bool tell_stuck(const struct engines *engines, struct error *error)
{
	int c = 0;

	while (engine_is_over(&engines->of[c]))
		c++;
	return engine_is_stuck(&engines->of[c], error);
}

bool engine_run(struct engine *engine, struct error *error)
{
	for (;;) {
		engine_settle(engine);
		if (engine_is_over(engine))
			return true;
		if (isinf(engine->next))
			return engine_is_stuck(engine, error);
		engine_advance(engine, engine->next, engine->elapsed);
	}
}

/* Seconds of work in the round that stands for others. */
static double round_work(const struct engine *engine)
{
	const struct rounds *rounds = &engine->program->rounds;
	double work = 0;

	for (int i = rounds->first; i < rounds->first + rounds->n; i++)
		work += engine->tasks[i].is_compute ? engine->tasks[i].cost->device : 0;
	return work;
}

/* Classes settle one after another, and all go at last at the pace of the one with the most work,
 * which settles first. */
static void choose_pacemaker(struct engines *engines)
{
	double most = 0;

	for (int c = 0; c < engines->n; c++) {
		double work = round_work(&engines->of[c]);

		if (work < most)
			continue;
		most = work;
		engines->pacemaker = c;
	}
	engines->more_rounds = engines->of[engines->pacemaker].more_rounds;
}

static bool run_all(struct engines *engines, struct error *error)
{
	for (int c = 0; c < engines->n; c++)
		engines->of[c].touched = true;
	for (;;) {
		double next = INFINITY;

		settle_all(engines);
		if (all_over(engines))
			return true;
		for (int c = 0; c < engines->n; c++)
			next = fmin(next, engines->of[c].next);
		if (isinf(next))
			return tell_stuck(engines, error);
		for (int c = 0; c < engines->n; c++) {
			struct engine *engine = &engines->of[c];

			if (engine->touched || engine->next > next)
				continue;
			engine->touched = true;
			engine_advance(engine, engine->next, engine->elapsed);
		}
	}
}

bool engines_run(struct engines *engines, struct error *error)
{
	if (engines->n == 1)
		return engine_run(&engines->of[0], error);
	bool ok = run_all(engines, error);
	choose_pacemaker(engines);
	return ok;
}

/* --- what is read off ------------------------------------------------------------------------- */

static double engine_last_step(const struct engine *engine)
{
	return engine->finished[engine->n_steps - 1] - engine_step_begin(engine);
}

/* Of the steps that count, the mean. */
static double engine_mean_step(const struct engine *engine)
{
	int last = engine->n_steps - 1, n = engine->n_counted;

	return n == 1 ? engine_last_step(engine)
		      : (engine->finished[last] - engine->finished[last - n]) / n;
}

/* Where the data loader is barely the slower one, more steps than are simulated pass before it is
 * waited for. */
double engines_step_time(const struct engines *engines)
{
	double step = 0;

	for (int c = 0; c < engines->n; c++)
		step = fmax(step, engine_mean_step(&engines->of[c]));
	return fmax(step + engines->more_rounds, plan_loader_time(&engines->of[0].schedule->plan));
}

double engines_last_step(const struct engines *engines)
{
	double step = 0;

	for (int c = 0; c < engines->n; c++)
		step = fmax(step, engine_last_step(&engines->of[c]));
	return step + engines->more_rounds;
}

double engines_bubble(const struct engines *engines, int class)
{
	const struct engine *engine = &engines->of[class];
	double ended = engine_last_step(engine) + engine->more_rounds;
	double after = engine->n_steps > 1 ? 0 : engines_last_step(engines) - ended;

	return engine->tally.bubble + after;
}
