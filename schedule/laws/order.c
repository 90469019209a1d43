/* The laws of a schedule (docs/schedule.md). Happens-before is decided by vector clocks:
 * clock[i][s] is the last operation of stream s that has finished when operation i starts;
 * operations of the step before count as negative. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/laws/laws.h"

enum { NEVER = INT_MIN / 2 };

struct clock {
	int last[STREAM_COUNT];
};

struct validation {
	const struct schedule *schedule;
	const struct program *program;
	struct clock *clocks;
	int *taker, *giver;        /* per buffer: the operation, or -1 */
	int *first_use, *last_use; /* per buffer, in list order */
	int *sent_by;              /* per buffer: the last message of a ring that reads it, or -1 */
	int *beside;               /* per buffer: the operation that uses it beside the last one */
	struct error *error;
};

#define broken(v, ...) law_broken((v)->error, __VA_ARGS__)

static const struct op *op_at(const struct validation *v, int i)
{
	return &v->program->ops[i];
}

/* --- indices -------------------------------------------------------------------------------------
 */

static bool check_slice(
	struct validation *v, int op, struct slice slice, int low, int high, const char *what)
{
	if (slice.first < 0 || slice.count < 0 || slice.first > v->program->n_indices - slice.count)
		return broken(v, "op %d: %s point outside of the index list", op, what);
	const int *items = slice_of(v->program, slice);
	for (int i = 0; i < slice.count; i++)
		if (items[i] < low || items[i] >= high)
			return broken(v, "op %d: %s name %d, expected %d..%d", op, what, items[i],
				low, high - 1);
	return true;
}

static bool has_group(const struct op *op)
{
	enum op_class class = op_kind_class(op->kind);
	return class == OP_CLASS_COLLECTIVE || class == OP_CLASS_MESSAGE;
}

static bool check_op(struct validation *v, int i)
{
	const struct op *op = op_at(v, i);
	int buffers = v->program->n_buffers, ops = v->program->n_ops;
	if (op->kind >= OP_KIND_COUNT || op->stream >= STREAM_COUNT)
		return broken(v, "op %d: no such kind or stream", i);
	if (op->unit < -1 || op->unit >= v->program->n_units || op->cause < -1 ||
		op->cause >= v->program->n_units)
		return broken(v, "op %d: no unit %d, cause %d", i, op->unit, op->cause);
	if (op->micro_batch < -1 || op->micro_batch >= v->schedule->plan.grad_accum ||
		op->layer < -1 || op->first_module < 0 || op->end_module < op->first_module)
		return broken(v, "op %d: micro-batch %d, layer %d, modules %d..%d", i,
			op->micro_batch, op->layer, op->first_module, op->end_module);
	if (has_group(op) != (op->group >= 0) || op->group >= v->schedule->n_groups)
		return broken(v, "op %d: group %d with %s", i, op->group, op_kind_name(op->kind));
	if (op->bytes < 0)
		return broken(v, "op %d: %lld bytes", i, (long long)op->bytes);
	/* Waits point backwards: into this step before i, or into the step before. */
	return check_slice(v, i, op->waits, -ops, i, "waits") &&
	       check_slice(v, i, op->host_waits, -ops, i, "host_waits") &&
	       check_slice(v, i, op->takes, 0, buffers, "takes") &&
	       check_slice(v, i, op->gives, 0, buffers, "gives") &&
	       check_slice(v, i, op->uses, 0, buffers, "uses");
}

static bool check_indices(struct validation *v)
{
	for (int i = 0; i < v->program->n_ops; i++)
		if (!check_op(v, i))
			return false;
	return true;
}

/* --- happens-before ------------------------------------------------------------------------------
 */

static void clock_merge(struct clock *into, const struct clock *from, int shift)
{
	for (int s = 0; s < STREAM_COUNT; s++) {
		int last = from->last[s] == NEVER ? NEVER : from->last[s] - shift;
		if (last > into->last[s])
			into->last[s] = last;
	}
}

/* Adds what `op` knew at its start, and `op` itself, because it has finished. */
static void clock_wait(struct validation *v, struct clock *clock, int op, bool first_round)
{
	int n = v->program->n_ops, shift = op < 0 ? n : 0, index = op + shift;
	if (op < 0 && first_round)
		return;
	clock_merge(clock, &v->clocks[index], shift);
	int *own = &clock->last[op_at(v, index)->stream];
	if (op > *own)
		*own = op;
}

/* There are two rounds, because the second knows the step before from the first. */
static void clocks_round(struct validation *v, bool first_round)
{
	int n = v->program->n_ops;
	int last_on_stream[STREAM_COUNT];
	struct clock host;
	for (int s = 0; s < STREAM_COUNT; s++)
		last_on_stream[s] = host.last[s] = NEVER;
	for (int i = 0; i < n && !first_round; i++)
		last_on_stream[op_at(v, i)->stream] = i - n;
	if (last_on_stream[STREAM_HOST] != NEVER)
		clock_wait(v, &host, last_on_stream[STREAM_HOST], first_round);
	for (int i = 0; i < n; i++) {
		const struct op *op = op_at(v, i);
		const int *host_waits = slice_of(v->program, op->host_waits);
		const int *waits = slice_of(v->program, op->waits);
		for (int w = 0; w < op->host_waits.count; w++)
			clock_wait(v, &host, host_waits[w], first_round);
		struct clock clock = host;
		if (last_on_stream[op->stream] != NEVER)
			clock_wait(v, &clock, last_on_stream[op->stream], first_round);
		for (int w = 0; w < op->waits.count; w++)
			clock_wait(v, &clock, waits[w], first_round);
		v->clocks[i] = clock;
		last_on_stream[op->stream] = i;
		if (op->stream == STREAM_HOST) /* the issuing thread has already carried it out */
			clock_wait(v, &host, i, first_round);
	}
}

/* True when `before`, which belongs to the step before if negative, has finished when `after`
 * starts. */
static bool happens_before(const struct validation *v, int before, int after)
{
	int n = v->program->n_ops;
	const struct op *op = op_at(v, before < 0 ? before + n : before);
	return v->clocks[after].last[op->stream] >= before;
}

/* --- buffers -------------------------------------------------------------------------------------
 */

static bool note_once(struct validation *v, int *owner, int op, int buffer, const char *verb)
{
	if (v->program->buffers[buffer].resident)
		return broken(v, "op %d: %s resident buffer %d", op, verb, buffer);
	if (owner[buffer] >= 0)
		return broken(v, "ops %d and %d: buffer %d (%s) is %s twice", owner[buffer], op,
			buffer, buffer_role_name(v->program->buffers[buffer].role), verb);
	owner[buffer] = op;
	return true;
}

static bool is_among(const struct validation *v, struct slice slice, int buffer)
{
	const int *items = slice_of(v->program, slice);
	for (int i = 0; i < slice.count; i++)
		if (items[i] == buffer)
			return true;
	return false;
}

/* True when the operation reads the buffer, but neither makes nor ends it. A message of a ring does
 * so. */
static bool only_uses(const struct validation *v, const struct op *op, int buffer)
{
	return !is_among(v, op->takes, buffer) && !is_among(v, op->gives, buffer);
}

/* A message of a ring reads a block while a round computes with it. Both must come after the
 * operation that wrote the block and before the one that ends it. */
static bool check_sent(struct validation *v, int op, int buffer)
{
	int sent = v->sent_by[buffer];
	if (op_at(v, op)->kind == OP_SEND_RECV && only_uses(v, op_at(v, op), buffer)) {
		v->sent_by[buffer] = op;
		return true;
	}
	return sent < 0 || sent == op || happens_before(v, sent, op) ||
	       (op_kind_class(op_at(v, op)->kind) == OP_CLASS_COMPUTE &&
		       only_uses(v, op_at(v, op), buffer));
}

/* Tensor ranks copy chunks beside the product that reads or makes them, its neighbour in the list.
 * Both touch a buffer at once, and whatever touches the buffer next comes after both. */
static bool is_beside(const struct validation *v, int op, int next)
{
	if (next != op + 1 || next >= v->program->n_ops)
		return false;
	const struct op *one = op_at(v, op), *other = op_at(v, next);
	return one->stream == STREAM_PEER
		       ? one->kind == OP_ALL_GATHER && other->stream == STREAM_COMPUTE
		       : other->stream == STREAM_PEER && other->kind == OP_REDUCE_SCATTER;
}

static bool check_use(struct validation *v, int op, int buffer)
{
	int last = v->last_use[buffer];
	bool resident = v->program->buffers[buffer].resident;
	const char *role = buffer_role_name(v->program->buffers[buffer].role);
	if (!resident && v->taker[buffer] < 0)
		return broken(v, "op %d: uses buffer %d (%s) before it is taken", op, buffer, role);
	if (!resident && v->giver[buffer] >= 0 && v->giver[buffer] != op)
		return broken(v, "op %d: uses buffer %d (%s) after op %d gave it", op, buffer, role,
			v->giver[buffer]);
	if (last >= 0 && is_beside(v, last, op)) {
		v->beside[buffer] = op;
		return true;
	}
	if (last >= 0 && last != op && !happens_before(v, last, op))
		return broken(
			v, "ops %d and %d touch buffer %d (%s) unordered", last, op, buffer, role);
	if (!check_sent(v, op, buffer))
		return broken(v, "ops %d and %d touch buffer %d (%s) unordered", v->sent_by[buffer],
			op, buffer, role);
	if (v->first_use[buffer] < 0)
		v->first_use[buffer] = op;
	if (v->beside[buffer] >= 0 && !happens_before(v, v->beside[buffer], op))
		return broken(v, "ops %d and %d touch buffer %d (%s) unordered", v->beside[buffer],
			op, buffer, role);
	v->beside[buffer] = -1;
	if (v->sent_by[buffer] != op)
		v->last_use[buffer] = op;
	return true;
}

static bool walk_op(struct validation *v, int i)
{
	const struct op *op = op_at(v, i);
	const int *takes = slice_of(v->program, op->takes);
	const int *gives = slice_of(v->program, op->gives);
	const int *uses = slice_of(v->program, op->uses);
	for (int k = 0; k < op->takes.count; k++)
		if (!note_once(v, v->taker, i, takes[k], "taken"))
			return false;
	for (int k = 0; k < op->uses.count; k++)
		if (!check_use(v, i, uses[k]))
			return false;
	for (int k = 0; k < op->gives.count; k++)
		if (!check_use(v, i, gives[k]) || !note_once(v, v->giver, i, gives[k], "given"))
			return false;
	return true;
}

/* What one step leaves in a resident buffer must not be touched too early by the next one. */
static bool check_across_steps(struct validation *v, int buffer)
{
	int n = v->program->n_ops;
	if (v->first_use[buffer] < 0 ||
		happens_before(v, v->last_use[buffer] - n, v->first_use[buffer]))
		return true;
	return broken(v,
		"op %d of one step and op %d of the next touch resident buffer %d (%s) unordered",
		v->last_use[buffer], v->first_use[buffer], buffer,
		buffer_role_name(v->program->buffers[buffer].role));
}

static bool check_buffers(struct validation *v)
{
	for (int i = 0; i < v->program->n_ops; i++)
		if (!walk_op(v, i))
			return false;
	for (int i = 0; i < v->program->n_buffers; i++) {
		const struct buffer *buffer = &v->program->buffers[i];
		const char *role = buffer_role_name(buffer->role);
		if (buffer->resident && !check_across_steps(v, i))
			return false;
		if (!buffer->resident && (v->taker[i] < 0 || v->giver[i] < 0))
			return broken(v, "buffer %d (%s): taken by op %d, given by op %d", i, role,
				v->taker[i], v->giver[i]);
	}
	return true;
}

static int *int_array(int n)
{
	int capacity = 0;
	int *items = array_grow(NULL, &capacity, n + 1, sizeof(int));
	for (int i = 0; i < n; i++)
		items[i] = -1;
	return items;
}

/* All ranks of a class run one program, so its own collectives come in one order. Waits point
 * backwards, so the order of the list is a topological order of its graph. */
static bool validate_program(
	const struct schedule *schedule, const struct program *program, struct error *error)
{
	int capacity = 0;
	struct validation v = {.schedule = schedule, .program = program, .error = error};
	v.clocks = array_grow(NULL, &capacity, program->n_ops + 1, sizeof(struct clock));
	v.taker = int_array(program->n_buffers);
	v.giver = int_array(program->n_buffers);
	v.first_use = int_array(program->n_buffers);
	v.last_use = int_array(program->n_buffers);
	v.sent_by = int_array(program->n_buffers);
	v.beside = int_array(program->n_buffers);
	bool ok = schedule_check_tables(schedule, program, error) && check_indices(&v);
	if (ok) {
		clocks_round(&v, true);
		clocks_round(&v, false);
		ok = check_buffers(&v) && schedule_check_meaning(schedule, program, error);
	}
	free(v.clocks);
	free(v.taker);
	free(v.giver);
	free(v.first_use);
	free(v.last_use);
	free(v.sent_by);
	free(v.beside);
	return ok;
}

static bool validate_class(const struct schedule *schedule, int class, struct error *error)
{
	struct error one = {0};
	const char *rest;
	if (validate_program(schedule, &schedule->programs[class], &one))
		return true;
	rest = one.message + strlen("schedule: ");
	if (schedule->n_classes == 1)
		return law_broken(error, "%s", rest);
	return law_broken(error, "class %d: %s", class, rest);
}

bool schedule_validate(const struct schedule *schedule, struct error *error)
{
	int64_t stages = schedule->plan.mesh.pipeline;
	if (schedule->n_classes < 1 || schedule->n_classes != stages)
		return law_broken(
			error, "%d classes, expected %lld", schedule->n_classes, (long long)stages);
	for (int class = 0; class < schedule->n_classes; class ++)
		if (!validate_class(schedule, class, error))
			return false;
	return schedule->n_classes == 1 || (schedule_check_messages(schedule, error) &&
						   schedule_check_deadlock(schedule, error));
}
