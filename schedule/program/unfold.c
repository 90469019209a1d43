/* Prints a folded program as the whole list, loop by loop, with the numbers of its unfolding. It
 * never holds more of the list than a line. */
#include <stdlib.h>

#include "schedule/program/print.h"

/* Stands at iteration i of the inner loop and j of the outer one. */
struct carrying {
	struct printer *printer;
	const struct program *program;
	int n;        /* printed so far */
	int *indices; /* of one operation */
	int n_indices, capacity;
};

typedef void visiting(struct carrying *c, int op, int i, int j);

/* Carries out operations [first, end) inside of the loop `outer`. */
static void carry_out(
	struct carrying *c, int first, int end, int outer, int i, int j, visiting *visit)
{
	const struct program *program = c->program;
	int l = outer + 1;
	for (int x = first; x < end; x++) {
		while (l < program->n_loops &&
			(program->loops[l].first < x || program->loops[l].outer != outer))
			l++;
		if (l == program->n_loops || program->loops[l].first != x) {
			visit(c, x, i, j);
			continue;
		}
		const struct loop *loop = &program->loops[l];
		for (int t = 0; t < loop->times; t++)
			carry_out(c, x, x + loop->n, l, loop->layers != 0 ? t : i,
				loop->layers != 0 ? j : t, visit);
		x += loop->n - 1;
	}
}

static int at(struct going going, int i)
{
	return going.first < 0 ? -1 : going.first + i * going.by;
}

/* --- buffers -------------------------------------------------------------------------------------
 */

static void print_one_buffer(struct carrying *c, int buffer, int i)
{
	const struct listed_names *names = &c->program->unfolding->buffers[buffer];
	struct buffer one = c->program->buffers[buffer];
	int modules = one.end_module - one.first_module;
	one.unit = at(names->unit, i);
	one.layer = at(names->layer, i);
	if (names->module.first >= 0) {
		one.first_module = at(names->module, i);
		one.end_module = one.first_module + modules;
	}
	print_buffer(c->printer, &one, c->n++);
}

static bool is_repeated(const struct program *program, int buffer)
{
	return buffer < program->n_buffers && program->buffers[buffer].resident &&
	       buffer_times(&program->buffers[buffer]) > 1;
}

/* The buffers of a repeated block stand side by side. */
static void print_residents(struct carrying *c)
{
	const struct program *program = c->program;
	for (int b = 0, end; b < program->n_buffers && program->buffers[b].resident; b = end) {
		int times = buffer_times(&program->buffers[b]);
		for (end = b + 1; times > 1 && is_repeated(program, end);)
			end++;
		for (int t = 0; t < times; t++)
			for (int k = b; k < end; k++)
				print_one_buffer(c, k, t);
	}
}

static void print_taken(struct carrying *c, int op, int i, int j)
{
	const struct slice takes = c->program->ops[op].takes;
	(void)j;
	for (int t = 0; t < takes.count; t++)
		print_one_buffer(c, slice_of(c->program, takes)[t], i);
}

/* --- operations ----------------------------------------------------------------------------------
 */

static struct slice keep(
	struct carrying *c, const struct position *numbers, int count, int i, int j)
{
	struct slice slice = {c->n_indices, count};
	if (c->n_indices + count > c->capacity)
		c->indices = array_grow(
			c->indices, &c->capacity, c->n_indices + count, sizeof(*c->indices));
	for (int k = 0; k < count; k++)
		c->indices[c->n_indices++] =
			numbers[k].first + i * numbers[k].inner + j * numbers[k].outer;
	return slice;
}

struct op program_unfolded(const struct program *program, int index, int i, int j)
{
	const struct listed *listed = &program->unfolding->ops[index];
	struct op op = program->ops[index];
	int modules = op.end_module - op.first_module;
	op.unit = at(listed->names.unit, i);
	op.cause = at(listed->cause, i);
	op.layer = at(listed->names.layer, i);
	op.micro_batch += j;
	if (listed->names.module.first >= 0) {
		op.first_module = at(listed->names.module, i);
		op.end_module = op.first_module + modules;
	}
	return op;
}

static void print_one_op(struct carrying *c, int index, int i, int j)
{
	const struct program *program = c->program;
	const struct listed *listed = &program->unfolding->ops[index];
	const struct position *places = program->places, *numbers = program->unfolding->numbers;
	struct op op = program_unfolded(program, index, i, j);
	c->n_indices = 0;
	op.waits = keep(c, places + op.waits.first, op.waits.count, i, j);
	op.host_waits = keep(c, places + op.host_waits.first, op.host_waits.count, i, j);
	op.takes = keep(c, numbers + listed->takes.first, listed->takes.count, i, j);
	op.gives = keep(c, numbers + listed->gives.first, listed->gives.count, i, j);
	op.uses = keep(c, numbers + listed->uses.first, listed->uses.count, i, j);
	print_op(c->printer, &op, c->indices, c->n++);
}

void print_carried_out(struct printer *printer, const struct program *program)
{
	struct carrying c = {.printer = printer, .program = program};
	print_residents(&c);
	carry_out(&c, 0, program->n_ops, -1, 0, 0, print_taken);
	c.n = 0;
	carry_out(&c, 0, program->n_ops, -1, 0, 0, print_one_op);
	free(c.indices);
}
