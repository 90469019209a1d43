#include "executor/ranks/expectation.h"

#include <math.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "executor/ranks/event.h"

/* A sleeper looks at its stop flag after so many seconds. */
#define SLICE 0.1
/* An operation that is late by less seconds is not counted as late. */
#define LATE 1e-3

#define PATIENCE_LEAST  10.0
#define PATIENCE_FACTOR 20.0

double expectation_patience(double predicted, double slow_motion)
{
	return PATIENCE_LEAST + PATIENCE_FACTOR * slow_motion * predicted;
}

/* Decides whether an operation is held to its modelled time. What moves bytes between ranks or
 * tiers belongs to a link, the rest to the device. */
static bool is_held(const struct op *op, enum pace pace)
{
	enum op_class class = op_kind_class(op->kind);
	bool link =
		class == OP_CLASS_COLLECTIVE || class == OP_CLASS_COPY || class == OP_CLASS_MESSAGE;

	/* A message takes its time at the receiver, so the sender is not held. */
	if (class == OP_CLASS_MARK || op->kind == OP_SEND)
		return false;
	return pace & (link ? PACE_COLLECTIVES : PACE_COMPUTE);
}

/* Returns the end of the last collective of the step, as seen from the next step, so it is <= 0
 * s. */
static double previous_end(const struct program *program, const struct timeline *predicted)
{
	double end = -INFINITY;

	for (int i = 0; i < program->n_ops; i++)
		if (op_kind_class(program->ops[i].kind) == OP_CLASS_COLLECTIVE)
			end = fmax(end, predicted->spans[i].end - predicted->step_time);
	return end;
}

/* Returns the operation's place among the messages of its kind, to or from that class over that
 * group. */
static int place_of(const struct program *program, int peer, int index)
{
	const struct op *at = &program->ops[index];
	int n = 0;

	for (int i = 0; i < index; i++)
		n += program->ops[i].kind == at->kind && program->ops[i].group == at->group &&
		     program->ops[i].message.peer == peer;
	return n;
}

/* Returns how long a message is on its way: the time in which both ends take part in it. The end
 * that comes first has waited before, so the shorter span counts. */
static double received_within(const struct schedule *schedule, int class,
	const struct timeline *const *predicted, int index)
{
	const struct op *op = &schedule->programs[class].ops[index];
	int peer = op->message.peer;
	const struct program *sender = &schedule->programs[peer];
	const struct span *span = &predicted[class]->spans[index];
	int place = place_of(&schedule->programs[class], peer, index);
	double own = span->end - span->start;

	for (int i = 0; i < sender->n_ops; i++) {
		const struct op *sent = &sender->ops[i];
		const struct span *there = &predicted[peer]->spans[i];

		if (sent->kind == OP_SEND && sent->group == op->group &&
			sent->message.peer == class && place-- == 0)
			return fmin(own, there->end - there->start);
	}
	return own;
}

void expectation_write(const struct schedule *schedule, int class,
	const struct timeline *const *predicted, enum pace pace, double slow_motion, double timeout,
	struct text *text)
{
	const struct program *program = &schedule->programs[class];
	double before = previous_end(program, predicted[class]);

	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		const struct span *span = &predicted[class]->spans[i];
		double held = 0, patience = 0;

		if (is_held(op, pace))
			held = slow_motion *
			       (op->kind == OP_RECV ? received_within(schedule, class, predicted, i)
						    : span->end - span->start);
		if (op_kind_class(op->kind) == OP_CLASS_COLLECTIVE) {
			patience = timeout > 0 ? timeout
					       : expectation_patience(
							 fmax(span->end - before, 0), slow_motion);
			before = fmax(before, span->end);
		}
		text_number(text, held);
		text_add_char(text, ' ');
		text_number(text, patience);
		text_add_char(text, '\n');
	}
}

static bool read_number(const char **text, double *value)
{
	char *end;

	*value = strtod(*text, &end);
	if (end == *text || !isfinite(*value) || *value < 0)
		return false;
	*text = end;
	return true;
}

bool expectation_read(const char *text, int before, int n_ops, struct arena *arena,
	struct expectation *expectation)
{
	double skipped;

	*expectation = (struct expectation){.n_ops = n_ops,
		.held = ARENA_ARRAY(arena, double, n_ops),
		.patience = ARENA_ARRAY(arena, double, n_ops)};
	for (int i = 0; text != NULL && i < 2 * before; i++)
		if (!read_number(&text, &skipped))
			return false;
	for (int i = 0; text != NULL && i < n_ops; i++)
		if (!read_number(&text, &expectation->held[i]) ||
			!read_number(&text, &expectation->patience[i]))
			return false;
	return true;
}

void expectation_sharpen(void)
{
	/* Timers may be late by 1 us instead of the usual 50 us. */
	prctl(PR_SET_TIMERSLACK, 1000UL);
}

static void sleep_until(double when)
{
	struct timespec time = {.tv_sec = (time_t)when};

	time.tv_nsec = (long)(1e9 * (when - (double)time.tv_sec));
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

bool expectation_paces(const struct expectation *expectation)
{
	for (int i = 0; i < expectation->n_ops; i++)
		if (expectation->held[i] > 0)
			return true;
	return false;
}

void expectation_count(double late, struct pace_tally *tally)
{
	tally->n_held++;
	if (late > LATE) {
		tally->n_late++;
		tally->late += late;
	}
}

void expectation_hold(const struct expectation *expectation, int op, double start,
	const _Atomic uint32_t *stop, struct pace_tally *tally)
{
	double held = expectation->held[op], now = clock_now();

	if (held <= 0)
		return;
	expectation_count(now - start - held, tally);
	for (; now < start + held && atomic_load(stop) == 0; now = clock_now())
		sleep_until(fmin(start + held, now + SLICE));
}
