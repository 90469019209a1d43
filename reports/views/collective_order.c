#include "reports/views/collective_order.h"
#include "schedule/resolve/resolve.h"

#include <stdlib.h>

static bool is_collective(const struct op *op)
{
	return op_kind_class(op->kind) == OP_CLASS_COLLECTIVE;
}

/* --- what runs meanwhile ------------------------------------------------------------------------
 */

/* The intervals in which anything but a collective runs: disjoint, ascending. */
struct busy {
	int n;
	struct interval *intervals;
};

static int compare_starts(const void *a, const void *b)
{
	const struct interval *left = a, *right = b;

	if (left->start != right->start)
		return left->start < right->start ? -1 : 1;
	return left->end < right->end ? -1 : left->end > right->end;
}

static struct busy busy_of(
	const struct schedule *schedule, const struct timeline *timeline, struct arena *arena)
{
	const struct program *program = &schedule->programs[0];
	struct busy busy = {0, ARENA_ARRAY(arena, struct interval, program->n_ops + 1)};
	int joined = 0;

	for (int i = 0; i < program->n_ops && i < timeline->n_ops; i++) {
		const struct span *span = &timeline->spans[i];
		bool communicates = is_collective(&program->ops[i]) ||
				    op_kind_class(program->ops[i].kind) == OP_CLASS_MESSAGE;
		if (!communicates && span->end > span->start)
			busy.intervals[busy.n++] = (struct interval){span->start, span->end};
	}
	qsort(busy.intervals, (size_t)busy.n, sizeof(*busy.intervals), compare_starts);
	for (int i = 0; i < busy.n; i++) {
		struct interval *last = &busy.intervals[joined - 1];
		if (joined > 0 && busy.intervals[i].start <= last->end)
			last->end = busy.intervals[i].end > last->end ? busy.intervals[i].end
								      : last->end;
		else
			busy.intervals[joined++] = busy.intervals[i];
	}
	busy.n = joined;
	return busy;
}

static double overlap(const struct interval *a, double start, double end)
{
	double from = a->start > start ? a->start : start, to = a->end < end ? a->end : end;

	return to > from ? to - from : 0;
}

/* The index of the first interval that ends after `time`. */
static int first_after(const struct busy *busy, double time)
{
	int low = 0, high = busy->n;

	while (low < high) {
		int middle = low + (high - low) / 2;
		if (busy->intervals[middle].end > time)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static double hidden_time(const struct busy *busy, const struct span *span)
{
	double hidden = 0;

	for (int i = first_after(busy, span->start);
		i < busy->n && busy->intervals[i].start < span->end; i++)
		hidden += overlap(&busy->intervals[i], span->start, span->end);
	return hidden;
}

/* Computations run one after the other, in issue order. */
struct computing {
	int n;
	int *ops;
};

static int main_cover(
	const struct computing *computing, const struct timeline *timeline, const struct span *span)
{
	int low = 0, high = computing->n, best = -1;
	double most = 0;

	while (low < high) {
		int middle = low + (high - low) / 2;
		if (timeline->spans[computing->ops[middle]].end > span->start)
			high = middle;
		else
			low = middle + 1;
	}
	for (int i = low; i < computing->n; i++) {
		const struct span *other = &timeline->spans[computing->ops[i]];
		const struct interval interval = {other->start, other->end};
		if (other->start >= span->end)
			break;
		if (overlap(&interval, span->start, span->end) > most) {
			most = overlap(&interval, span->start, span->end);
			best = computing->ops[i];
		}
	}
	return best;
}

static struct computing computing_of(
	const struct schedule *schedule, const struct timeline *timeline, struct arena *arena)
{
	const struct program *program = &schedule->programs[0];
	struct computing computing = {0, ARENA_ARRAY(arena, int, program->n_ops)};

	for (int i = 0; i < program->n_ops && i < timeline->n_ops; i++) {
		enum op_class class = op_kind_class(program->ops[i].kind);
		if (class == OP_CLASS_COMPUTE || program->ops[i].kind == OP_OPTIMIZER)
			computing.ops[computing.n++] = i;
	}
	return computing;
}

int carried_of(const struct schedule *schedule, const struct timeline *timeline,
	struct arena *arena, struct carried **carried)
{
	const struct program *program = &schedule->programs[0];
	struct carried *found = ARENA_ARRAY(arena, struct carried, program->n_ops);
	struct busy busy = {0};
	struct computing computing = {0};
	int n = 0;

	if (timeline != NULL) {
		busy = busy_of(schedule, timeline, arena);
		computing = computing_of(schedule, timeline, arena);
	}
	for (int i = 0; i < program->n_ops; i++) {
		if (!is_collective(&program->ops[i]))
			continue;
		found[n] = (struct carried){.op = i, .behind = -1};
		if (timeline != NULL && i < timeline->n_ops) {
			const struct span *span = &timeline->spans[i];
			found[n].takes = span->end - span->start;
			found[n].exposed = found[n].takes - hidden_time(&busy, span);
			found[n].behind = main_cover(&computing, timeline, span);
		}
		n++;
	}
	*carried = found;
	return n;
}

/* --- patterns -----------------------------------------------------------------------------------
 */

static void add_letter(const struct schedule *schedule, const struct op *op, struct text *text)
{
	char letter = op->kind == OP_RESHARD ? '|' : kind_appearance(op->kind).letter;

	text_printf(text, "%s%c", text->length > 0 ? " " : "", letter);
	if (is_collective(op) && op->group >= 0)
		text_printf(text, "%lld", (long long)schedule->groups[op->group].size);
}

static bool shows(enum op_kind kind)
{
	static const bool shown[OP_KIND_COUNT] = {[OP_ALL_GATHER] = true,
		[OP_RESHARD] = true,
		[OP_FORWARD] = true,
		[OP_LOSS] = true,
		[OP_RECOMPUTE] = true,
		[OP_BACKWARD] = true,
		[OP_BACKWARD_INPUT] = true,
		[OP_BACKWARD_WEIGHT] = true,
		[OP_REDUCE_SCATTER] = true,
		[OP_ALL_REDUCE] = true,
		[OP_COPY_H2D] = true,
		[OP_COPY_D2H] = true};

	return shown[kind];
}

void unit_pattern(const struct schedule *schedule, int unit, int micro_batch, struct text *text)
{
	const struct program *program = &schedule->programs[0];
	const struct op *before = NULL;

	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		if (op->unit != unit || !shows(op->kind) ||
			(op->micro_batch != micro_batch && op->micro_batch >= 0))
			continue;
		/* Consecutive blocks of one unit are one entry. */
		bool again = before != NULL && before->kind == op->kind && !is_collective(op);
		if (!again)
			add_letter(schedule, op, text);
		before = op;
	}
}

struct collective_sum collective_sum(const struct schedule *schedule, enum op_kind kind)
{
	const struct program *program = &schedule->programs[0];
	struct collective_sum sum = {0};

	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		if (op->kind != kind || op->group < 0)
			continue;
		sum.count++;
		sum.bytes += op->bytes;
		sum.wire_bytes +=
			collective_wire_bytes(kind, schedule->groups[op->group].size, op->bytes);
	}
	return sum;
}

bool with_strategy(const struct schedule *schedule, enum strategy strategy, struct arena *arena,
	struct schedule **other, struct error *error)
{
	/* Knobs that follow from the strategy stay open. */
	uint64_t open = KNOB_BIT(KNOB_RESHARD_AFTER_FORWARD) | KNOB_BIT(KNOB_GLOBAL_BATCH);
	struct question question = {
		.model = schedule->model, .topology = schedule->topology, .asked = schedule->plan};
	struct plan resolved;

	if (!knob_honoured(KNOB_STRATEGY, schedule->plan.runtime, (int)strategy))
		open |= knobs_of_role(KNOB_FOLLOWS);
	question.given = KNOBS_OF_FILES & ~open;
	question.asked.strategy = strategy;
	question_take_axes(&question, &schedule->plan);
	if (schedule->plan.mesh.pipeline > 1)
		return error_set(error, EXIT_CODE_USAGE, "of one stage alone nothing is built");
	return plan_resolve(&question, arena, &resolved, error) &&
	       schedule_build(arena, &resolved, schedule->model, schedule->topology, other, error);
}
