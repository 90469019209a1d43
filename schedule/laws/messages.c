/* The laws between classes. Every send has its receive, with the same tag, bytes and dtype.
 * Messages between two classes over one group are received in the order in which they are sent,
 * because NCCL tells them apart by nothing else. Collectives over several classes come in one
 * order. */
#include <stdio.h>
#include <stdlib.h>

#include "schedule/laws/laws.h"

/* Lists operations of one class in the order of its list. */
struct run {
	const struct program *program;
	int class, n;
	int *ops;
};

/* Connects one class with another over one group. */
struct channel {
	const struct schedule *schedule;
	int group;
	struct run sent, received;
};

static const struct op *nth(const struct run *run, int i)
{
	return &run->program->ops[run->ops[i]];
}

static bool same_tag(const struct op *a, const struct op *b)
{
	return a->micro_batch == b->micro_batch && a->message.chunk == b->message.chunk &&
	       a->message.direction == b->message.direction;
}

static bool has_tag(const struct run *run, const struct op *op)
{
	for (int i = 0; i < run->n; i++)
		if (same_tag(nth(run, i), op))
			return true;
	return false;
}

/* Writes for example "micro-batch 1, chunk 0, forward". */
static const char *tag_of(const struct op *op, char buffer[64])
{
	snprintf(buffer, 64, "micro-batch %d, chunk %d, %s", op->micro_batch, op->message.chunk,
		direction_names[op->message.direction]);
	return buffer;
}

/* --- a message -----------------------------------------------------------------------------------
 */

static const enum buffer_role carried[] = {
	[DIRECTION_FORWARD] = BUFFER_RESIDUAL,
	[DIRECTION_BACKWARD] = BUFFER_RESIDUAL_GRADIENT,
};

bool schedule_check_message(
	const struct schedule *schedule, const struct program *program, int i, struct error *error)
{
	const struct op *op = &program->ops[i];
	const struct message *message = &op->message;
	int class = (int)(program - schedule->programs);
	const int *uses = slice_of(program, op->uses);
	bool of_parts = schedule->plan.scatter_gather && op->kind == OP_SEND;
	int64_t parts = of_parts ? schedule->plan.mesh.tensor : 1;
	if (message->peer < 0 || message->peer >= schedule->n_classes || message->peer == class)
		return law_broken(error, "op %d: %s of class %d has class %d at the other end", i,
			op_kind_name(op->kind), class, message->peer);
	if (message->chunk < 0 || op->micro_batch < 0 || (unsigned)message->direction > 1)
		return law_broken(error, "op %d: %s of micro-batch %d, chunk %d, direction %d", i,
			op_kind_name(op->kind), op->micro_batch, message->chunk,
			(int)message->direction);
	if (schedule->groups[op->group].kind != GROUP_PIPELINE)
		return law_broken(error, "op %d: %s over a %s group", i, op_kind_name(op->kind),
			group_kind_names[schedule->groups[op->group].kind]);
	if (op->uses.count != 1 || program->buffers[uses[0]].role != carried[message->direction])
		return law_broken(error, "op %d: %s %s of the wrong buffers, expected a %s", i,
			op_kind_name(op->kind), direction_names[message->direction],
			buffer_role_name(carried[message->direction]));
	if (op->bytes <= 0 || program->buffers[uses[0]].bytes != op->bytes * parts)
		return law_broken(error, "op %d: %s of %lld bytes does not fill its buffer", i,
			op_kind_name(op->kind), (long long)op->bytes);
	return true;
}

/* --- two classes ---------------------------------------------------------------------------------
 */

static bool check_pair(const struct channel *c, int k, struct error *error)
{
	const struct op *sent = nth(&c->sent, k), *received = nth(&c->received, k);
	char tag[64];
	if (sent->bytes == received->bytes && sent->dtype == received->dtype)
		return true;
	return law_broken(error,
		"op %d of class %d sends %lld bytes of %s, "
		"op %d of class %d receives %lld bytes of %s (%s)",
		c->sent.ops[k], c->sent.class, (long long)sent->bytes, dtype_name(sent->dtype),
		c->received.ops[k], c->received.class, (long long)received->bytes,
		dtype_name(received->dtype), tag_of(sent, tag));
}

/* Says that the k-th message sent is not the k-th received. */
static bool tell_mismatch(const struct channel *c, int k, struct error *error)
{
	const struct run *sent = &c->sent, *received = &c->received;
	char tag[64], other[64];
	if (k < sent->n && !has_tag(received, nth(sent, k)))
		return law_broken(error,
			"op %d of class %d sends %s to class %d, which does not receive it",
			sent->ops[k], sent->class, tag_of(nth(sent, k), tag), received->class);
	if (k < received->n && !has_tag(sent, nth(received, k)))
		return law_broken(error,
			"op %d of class %d receives %s from class %d, which does not send it",
			received->ops[k], received->class, tag_of(nth(received, k), tag),
			sent->class);
	if (k < sent->n && k < received->n)
		return law_broken(error,
			"op %d of class %d sends %s, where op %d of class %d receives %s: "
			"one order in a group",
			sent->ops[k], sent->class, tag_of(nth(sent, k), tag), received->ops[k],
			received->class, tag_of(nth(received, k), other));
	return law_broken(error, "class %d sends %d messages to class %d, which receives %d",
		sent->class, sent->n, received->class, received->n);
}

static int compare_tags(const void *a, const void *b)
{
	const struct op *x = *(const struct op *const *)a, *y = *(const struct op *const *)b;
	if (x->message.direction != y->message.direction)
		return (int)x->message.direction - (int)y->message.direction;
	if (x->message.chunk != y->message.chunk)
		return x->message.chunk < y->message.chunk ? -1 : 1;
	return (x->micro_batch > y->micro_batch) - (x->micro_batch < y->micro_batch);
}

static bool check_sent_once(const struct channel *c, struct error *error)
{
	int capacity = 0;
	const struct op **ops = array_grow(NULL, &capacity, c->sent.n + 1, sizeof(*ops));
	bool ok = true;
	char tag[64];
	for (int k = 0; k < c->sent.n; k++)
		ops[k] = nth(&c->sent, k);
	qsort(ops, (size_t)c->sent.n, sizeof(*ops), compare_tags);
	for (int k = 1; k < c->sent.n && ok; k++)
		if (compare_tags(&ops[k - 1], &ops[k]) == 0)
			ok = law_broken(error, "class %d sends %s to class %d twice", c->sent.class,
				tag_of(ops[k], tag), c->received.class);
	free(ops);
	return ok;
}

/* One stream must order all that is sent, and one all that is received. */
static bool check_stream(const struct run *run, const char *what, struct error *error)
{
	for (int k = 1; k < run->n; k++)
		if (nth(run, k)->stream != nth(run, 0)->stream)
			return law_broken(error, "ops %d and %d of class %d %s on two streams",
				run->ops[0], run->ops[k], run->class, what);
	return true;
}

static bool check_channel(const struct channel *c, struct error *error)
{
	for (int k = 0; k < c->sent.n || k < c->received.n; k++) {
		if (k >= c->sent.n || k >= c->received.n ||
			!same_tag(nth(&c->sent, k), nth(&c->received, k)))
			return tell_mismatch(c, k, error);
		if (!check_pair(c, k, error))
			return false;
	}
	return check_sent_once(c, error) && check_stream(&c->sent, "send", error) &&
	       check_stream(&c->received, "receive", error);
}

/* Returns the messages of `class` with the other class over the group or, if peer < 0, its
 * collectives. */
static struct run run_of(
	const struct schedule *schedule, int class, enum op_class kind, int group, int peer)
{
	struct run run = {.program = &schedule->programs[class], .class = class};
	int capacity = 0;
	for (int i = 0; i < run.program->n_ops; i++) {
		const struct op *op = &run.program->ops[i];
		if (op->group != group || op_kind_class(op->kind) != kind)
			continue;
		if (peer >= 0 && op->message.peer != peer)
			continue;
		if (run.n == capacity)
			run.ops = array_grow(run.ops, &capacity, run.n + 1, sizeof(int));
		run.ops[run.n++] = i;
	}
	return run;
}

/* Keeps only operations of one kind: those that send, or those that receive. */
static void keep_kind(struct run *run, enum op_kind kind)
{
	int n = run->n;
	run->n = 0;
	for (int k = 0; k < n; k++)
		if (run->program->ops[run->ops[k]].kind == kind)
			run->ops[run->n++] = run->ops[k];
}

static bool check_direction(
	const struct schedule *schedule, int group, int from, int to, struct error *error)
{
	struct channel c = {schedule, group, run_of(schedule, from, OP_CLASS_MESSAGE, group, to),
		run_of(schedule, to, OP_CLASS_MESSAGE, group, from)};
	keep_kind(&c.sent, OP_SEND);
	keep_kind(&c.received, OP_RECV);
	bool ok = check_channel(&c, error);
	free(c.sent.ops);
	free(c.received.ops);
	return ok;
}

/* --- collectives over classes --------------------------------------------------------------------
 */

static bool check_against(const struct run *first, const struct run *other, struct error *error)
{
	for (int k = 0; k < first->n && k < other->n; k++) {
		const struct op *a = nth(first, k), *b = nth(other, k);
		if (a->kind != b->kind || a->bytes != b->bytes || a->dtype != b->dtype ||
			a->micro_batch != b->micro_batch)
			return law_broken(error,
				"op %d of class %d is %s of %lld bytes, "
				"op %d of class %d %s of %lld bytes, each number %d of group %d",
				first->ops[k], first->class, op_kind_name(a->kind),
				(long long)a->bytes, other->ops[k], other->class,
				op_kind_name(b->kind), (long long)b->bytes, k, a->group);
	}
	if (first->n == other->n)
		return true;
	return law_broken(error, "%d collectives of class %d join classes, %d of class %d",
		first->n, first->class, other->n, other->class);
}

static bool check_joint_collectives(const struct schedule *schedule, int group, struct error *error)
{
	struct run first = run_of(schedule, 0, OP_CLASS_COLLECTIVE, group, -1);
	bool ok = true;
	for (int class = 1; class < schedule->n_classes && ok; class ++) {
		struct run other = run_of(schedule, class, OP_CLASS_COLLECTIVE, group, -1);
		if (group_has_class(schedule, &schedule->groups[group], class))
			ok = check_against(&first, &other, error);
		else if (other.n > 0)
			ok = law_broken(error, "op %d of class %d, which is not in group %d",
				other.ops[0], class, group);
		free(other.ops);
	}
	free(first.ops);
	return ok;
}

bool schedule_check_messages(const struct schedule *schedule, struct error *error)
{
	for (int g = 0; g < schedule->n_groups; g++) {
		if (!group_joins_classes(&schedule->groups[g]))
			continue;
		if (!check_joint_collectives(schedule, g, error))
			return false;
		for (int from = 0; from < schedule->n_classes; from++)
			for (int to = 0; to < schedule->n_classes; to++)
				if (from != to && !check_direction(schedule, g, from, to, error))
					return false;
	}
	return true;
}
