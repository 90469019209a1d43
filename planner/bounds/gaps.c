/* How long the compute stream stands still at least. The proof that uses it is in bounds.c.
 *
 * A load's operations may take as long as they like: whatever does not wait for one of them, or for
 * what comes behind it, is done when it ends. What does takes what it takes alone, one after the
 * other on its stream, and compute stands still until that of it is done which its next operation
 * waits for. Operations of the shape take what they take. */
#include "planner/bounds/parts.h"

#include <math.h>

/* --- what compute waits for ------------------------------------------------------------------- */

/* Does the operation wait for the other, or do both run on one stream? */
static bool follows(const struct program *program, int index, int other)
{
	const struct op *op = &program->ops[index];
	const int *waits = slice_of(program, op->waits);
	bool waited = program->ops[other].stream == op->stream;
	for (int w = 0; w < op->waits.count; w++)
		waited = waited || waits[w] == other;
	return waited;
}

static bool computes_or_exchanges(const struct op *op)
{
	return op_kind_class(op->kind) == OP_CLASS_COMPUTE || op_exchanges(op);
}

/* From the last that computes or exchanges on: directly, or behind something else of compute's
 * stream. */
static bool waits_itself(const struct program *program, int index)
{
	bool follows_compute = false;
	int i = index - 1;
	for (; i >= 0 && !computes_or_exchanges(&program->ops[i]); i--)
		follows_compute = follows_compute || (program->ops[i].stream == STREAM_COMPUTE &&
							     follows(program, index, i));
	if (i < 0 || !(follows_compute || follows(program, index, i)))
		return false;
	return !op_exchanges(&program->ops[i]) || waits_itself(program, i);
}

static bool is_waited_for(const struct program *program, int index)
{
	bool compute_follows = false;
	int i = index + 1;
	for (; i < program->n_ops && !computes_or_exchanges(&program->ops[i]); i++)
		compute_follows = compute_follows || (program->ops[i].stream == STREAM_COMPUTE &&
							     follows(program, i, index));
	if (i == program->n_ops || !(compute_follows || follows(program, i, index)))
		return false;
	return !op_exchanges(&program->ops[i]) || is_waited_for(program, i);
}

bool bound_holds_up(const struct program *program, int index)
{
	return op_exchanges(&program->ops[index]) && waits_itself(program, index) &&
	       is_waited_for(program, index);
}

/* --- standing still --------------------------------------------------------------------------- */

/* Seconds after an operation of the load has ended, by number (0: the step before); < 0: earlier
 * than anything that matters. */
struct moment {
	int after;
	double late;
};

static const struct moment long_ago = {-1, 0};

struct walk {
	const struct program *program;
	const struct cost *costs;
	int micro_batches, last;          /* last: the operation that compute ends with */
	struct moment *ends;              /* by operation, when it was last carried out */
	int *places;                      /* and which one of all that are carried out that was */
	struct moment free[STREAM_COUNT]; /* streams */
	int place, after;                 /* of all operations; the load's operation that ended */
	int since;                        /* moments before are not looked at */
	bool exchanging;                  /* the last of them was an exchange */
	int inner, outer;                 /* iterations of the loops round the operation */
	double times;                     /* that this iteration stands for */
	struct gaps gaps;
};

static struct moment later(struct moment a, struct moment b)
{
	if (a.after != b.after)
		return a.after > b.after ? a : b;
	return a.late > b.late ? a : b;
}

/* When what is waited for has ended, as far as it is known. */
static struct moment end_of(const struct walk *walk, int slot)
{
	const struct program *program = walk->program;
	int index = program->indices[slot], place = index;
	if (program->n_loops > 0) {
		const struct position *at = &program->places[slot];
		place = at->first + at->inner * walk->inner + at->outer * walk->outer;
	}
	if (place < 0)
		return index + program->n_ops == walk->last ? (struct moment){0, 0} : long_ago;
	if (walk->places[index] != place || walk->ends[index].after < walk->since)
		return long_ago;
	return walk->ends[index];
}

static struct moment start_of(const struct walk *walk, const struct op *op)
{
	struct moment start = walk->free[op->stream];
	for (int w = 0; w < op->waits.count; w++)
		start = later(start, end_of(walk, op->waits.first + w));
	return start;
}

static void stand_still(struct walk *walk, const struct op *op, double seconds)
{
	bool middle = op->micro_batch > 0 && op->micro_batch < walk->micro_batches - 1;
	*(middle ? &walk->gaps.middle : &walk->gaps.rest) += walk->times * seconds;
}

/* On the compute stream, or instead of it. What the stream itself does may happen beside what is
 * exchanged. */
static struct moment compute(struct walk *walk, int index, struct moment start)
{
	const struct op *op = &walk->program->ops[index];
	const struct moment now = walk->free[STREAM_COMPUTE];
	double device = walk->costs[index].device;
	bool exchanges = op->stream != STREAM_COMPUTE;
	start = later(start, now);
	stand_still(walk, op, start.late - now.late);
	if (exchanges || op_kind_class(op->kind) == OP_CLASS_COMPUTE) {
		walk->exchanging = exchanges;
		start = (struct moment){++walk->after, 0};
	} else if (walk->exchanging) {
		stand_still(walk, op, -device);
	} else {
		start.late += device;
	}
	return walk->free[STREAM_COMPUTE] = start;
}

static void carry_out(struct walk *walk, int index)
{
	const struct op *op = &walk->program->ops[index];
	struct moment end = start_of(walk, op);
	if (op->stream == STREAM_COMPUTE || bound_holds_up(walk->program, index))
		end = compute(walk, index, end);
	else if (end.after >= 0)
		end.late += walk->costs[index].device;
	walk->free[op->stream] = walk->ends[index] = end;
	walk->places[index] = walk->place++;
}

static void walk_through(struct walk *walk, int first, int end, int outer);

/* The first iteration, and the last for all that follow: of these only what happens in one of them
 * is known. */
static void walk_loop(struct walk *walk, int index)
{
	const struct loop *loop = &walk->program->loops[index];
	int begin = walk->place, since = walk->since;
	int *iteration = loop->layers != 0 ? &walk->inner : &walk->outer;
	double times = walk->times;
	walk_through(walk, loop->first, loop->first + loop->n, index);
	if (loop->times > 1) {
		walk->place = begin + (loop->times - 1) * (walk->place - begin);
		*iteration = loop->times - 1;
		walk->times = times * (loop->times - 1);
		walk->since = walk->after + 1;
		for (int s = 0; s < STREAM_COUNT; s++)
			walk->free[s] = long_ago;
		walk->free[STREAM_COMPUTE] = (struct moment){walk->after, 0};
		walk_through(walk, loop->first, loop->first + loop->n, index);
	}
	*iteration = 0;
	walk->times = times;
	walk->since = since;
}

static void walk_through(struct walk *walk, int first, int end, int outer)
{
	for (int i = first; i < end;) {
		int loop = program_loop(walk->program, i, outer);
		if (loop >= 0)
			walk_loop(walk, loop);
		else
			carry_out(walk, i);
		i = loop >= 0 ? i + walk->program->loops[loop].n : i + 1;
	}
}

struct gaps bound_gaps(
	const struct schedule *schedule, const struct cost *costs, struct arena *arena)
{
	const struct program *program = &schedule->programs[0];
	struct walk walk = {.program = program,
		.costs = costs,
		.micro_batches = (int)schedule->plan.grad_accum,
		.ends = ARENA_ARRAY(arena, struct moment, program->n_ops),
		.places = ARENA_ARRAY(arena, int, program->n_ops),
		.times = 1};
	for (int i = 0; i < program->n_ops; i++) {
		walk.places[i] = -1;
		if (program->ops[i].stream == STREAM_COMPUTE && costs[i].device > 0)
			walk.last = i;
	}
	for (int s = 0; s < STREAM_COUNT; s++)
		walk.free[s] = long_ago;
	walk.free[STREAM_COMPUTE] = (struct moment){0, 0};
	walk_through(&walk, 0, program->n_ops, -1);
	return walk.gaps;
}
