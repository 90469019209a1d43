/* Checks that the joint graph of all classes has no cycle, by walking it without times. An
 * operation that meets others (a message, or a collective over classes) ends when all of them have
 * come to it. We assume that nothing is buffered, since buffers only take edges away.
 * docs/schedule.md says what an operation starts after. The step before has ended. */
#include <stdio.h>
#include <stdlib.h>

#include "schedule/laws/laws.h"

/* Several classes meet here: two that exchange a message, or all that carry out a collective. The
 * members are by class and give the operation that is there. */
struct meeting {
	int n, needs;
	int *ops;
};

struct walker {
	const struct program *program;
	int class;
	int host;                /* the next operation to be issued */
	int heads[STREAM_COUNT]; /* the first operation that has not ended, or -1 */
	int *stream_next;        /* by operation: the next one on its stream, or -1 */
	int *engine_before;  /* by operation: the collective before it on its communicator, or -1 */
	bool *waits, *ended; /* by operation; one that waits is at its meeting, where others are
				missing */
};

struct joint {
	const struct schedule *schedule;
	struct walker *walkers;
	struct meeting *meetings; /* by group and by sender and receiver, which are both 0 for a
				     collective */
	int n_ended, n_ops;
	struct arena arena;
};

static bool meets(const struct joint *j, const struct op *op)
{
	return op->group >= 0 && group_joins_classes(&j->schedule->groups[op->group]);
}

static struct meeting *meeting_of(
	const struct joint *j, const struct walker *w, const struct op *op)
{
	int n = j->schedule->n_classes, from = 0, to = 0;
	if (op_kind_class(op->kind) == OP_CLASS_MESSAGE) {
		from = op->kind == OP_SEND ? w->class : op->message.peer;
		to = op->kind == OP_SEND ? op->message.peer : w->class;
	}
	return &j->meetings[(op->group * n + from) * n + to];
}

static int needs(const struct joint *j, const struct op *op)
{
	if (op_kind_class(op->kind) == OP_CLASS_MESSAGE)
		return 2;
	return j->schedule->groups[op->group].kind == GROUP_PIPELINE ? j->schedule->n_classes : 2;
}

static void end(struct joint *j, struct walker *w, int i)
{
	w->ended[i] = true;
	w->waits[i] = false;
	w->heads[w->program->ops[i].stream] = w->stream_next[i];
	j->n_ended++;
}

/* The last class that comes to a meeting ends it for all. */
static void come(struct joint *j, struct walker *w, int i)
{
	const struct op *op = &w->program->ops[i];
	struct meeting *meeting = meeting_of(j, w, op);
	int n = j->schedule->n_classes;
	if (meeting->ops == NULL) {
		meeting->ops = ARENA_ARRAY(&j->arena, int, n);
		meeting->needs = needs(j, op);
		for (int c = 0; c < n; c++)
			meeting->ops[c] = -1;
	}
	meeting->ops[w->class] = i;
	w->waits[i] = true;
	if (++meeting->n < meeting->needs)
		return;
	for (int c = 0; c < n; c++)
		if (meeting->ops[c] >= 0) {
			end(j, &j->walkers[c], meeting->ops[c]);
			meeting->ops[c] = -1;
		}
	meeting->n = 0;
}

/* Looks at operations of this step only, because those of the step before are over. */
static bool are_over(const struct walker *w, struct slice slice)
{
	const int *ops = slice_of(w->program, slice);
	for (int i = 0; i < slice.count; i++)
		if (ops[i] >= 0 && !w->ended[ops[i]])
			return false;
	return true;
}

/* The host issues its next operation, unless that has to wait or the host is still carrying out the
 * one before. */
static bool issue(struct walker *w)
{
	int before = w->host - 1;
	if (w->host == w->program->n_ops ||
		(before >= 0 && w->program->ops[before].stream == STREAM_HOST &&
			!w->ended[before]) ||
		!are_over(w, w->program->ops[w->host].host_waits))
		return false;
	w->host++;
	return true;
}

static bool start(struct joint *j, struct walker *w, int i)
{
	const struct op *op = i >= 0 ? &w->program->ops[i] : NULL;
	if (op == NULL || i >= w->host || w->waits[i] || !are_over(w, op->waits) ||
		(w->engine_before[i] >= 0 && !w->ended[w->engine_before[i]]))
		return false;
	if (meets(j, op))
		come(j, w, i);
	else
		end(j, w, i);
	return true;
}

/* Lets one class go on as far as it can by itself. */
static bool go_on(struct joint *j, struct walker *w)
{
	bool moved = false, any;
	do {
		any = issue(w);
		for (int s = 0; s < STREAM_COUNT; s++)
			any |= start(j, w, w->heads[s]);
		moved |= any;
	} while (any);
	return moved;
}

static void walker_init(struct joint *j, int class)
{
	struct walker *w = &j->walkers[class];
	int n = j->schedule->programs[class].n_ops;
	int *last = ARENA_ARRAY(&j->arena, int, j->schedule->n_engines + 1), tails[STREAM_COUNT];
	*w = (struct walker){.program = &j->schedule->programs[class], .class = class};
	w->stream_next = ARENA_ARRAY(&j->arena, int, n);
	w->engine_before = ARENA_ARRAY(&j->arena, int, n);
	w->waits = ARENA_ARRAY(&j->arena, bool, n);
	w->ended = ARENA_ARRAY(&j->arena, bool, n);
	for (int e = 0; e < j->schedule->n_engines; e++)
		last[e] = -1;
	for (int s = 0; s < STREAM_COUNT; s++)
		w->heads[s] = tails[s] = -1;
	for (int i = 0; i < n; i++) {
		const struct op *op = &w->program->ops[i];
		int *tail = &tails[op->stream];
		*(*tail < 0 ? &w->heads[op->stream] : &w->stream_next[*tail]) = i;
		*tail = i;
		w->stream_next[i] = w->engine_before[i] = -1;
		if (op_kind_class(op->kind) != OP_CLASS_COLLECTIVE)
			continue;
		w->engine_before[i] = last[j->schedule->groups[op->group].engine];
		last[j->schedule->groups[op->group].engine] = i;
	}
	j->n_ops += n;
}

/* --- where it is stuck ------------------------------------------------------------------------ */

static int first_that_waits(const struct walker *w)
{
	for (int i = 0; i < w->program->n_ops; i++)
		if (w->waits[i])
			return i;
	return -1;
}

/* Writes for example "op 3 (send to class 1, micro-batch 0, forward)". */
static void tell_op(const struct walker *w, int i, char *buffer, size_t size)
{
	const struct op *op = &w->program->ops[i];
	const char *towards = op->kind == OP_SEND ? "to" : "from";
	if (op_kind_class(op->kind) == OP_CLASS_MESSAGE)
		snprintf(buffer, size, "op %d (%s %s class %d, micro-batch %d, %s)", i,
			op_kind_name(op->kind), towards, op->message.peer, op->micro_batch,
			direction_names[op->message.direction]);
	else
		snprintf(buffer, size, "op %d (%s)", i, op_kind_name(op->kind));
}

static bool tell_deadlock(const struct joint *j, struct error *error)
{
	char waits[2][128];
	int classes[2], found = 0;
	for (int c = 0; c < j->schedule->n_classes && found < 2; c++) {
		int i = first_that_waits(&j->walkers[c]);
		if (i < 0)
			continue;
		tell_op(&j->walkers[c], i, waits[found], sizeof(waits[found]));
		classes[found++] = c;
	}
	if (found == 2)
		return law_broken(error,
			"the classes deadlock: class %d waits in %s, class %d in %s", classes[0],
			waits[0], classes[1], waits[1]);
	return law_broken(error, "the classes deadlock: class %d waits in %s",
		found > 0 ? classes[0] : 0, found > 0 ? waits[0] : "no message");
}

bool schedule_check_deadlock(const struct schedule *schedule, struct error *error)
{
	int n = schedule->n_classes;
	struct joint j = {.schedule = schedule};
	bool moved, ok;
	j.walkers = ARENA_ARRAY(&j.arena, struct walker, n);
	j.meetings = ARENA_ARRAY(&j.arena, struct meeting, (int64_t)schedule->n_groups * n * n);
	for (int c = 0; c < n; c++)
		walker_init(&j, c);
	do {
		moved = false;
		for (int c = 0; c < n; c++)
			moved |= go_on(&j, &j.walkers[c]);
	} while (moved);
	ok = j.n_ended == j.n_ops || tell_deadlock(&j, error);
	arena_finish(&j.arena);
	return ok;
}
