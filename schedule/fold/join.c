/* The micro-batch behind the repeated one has shown that neighbours are alike. It is removed here,
 * and the repeated one is carried out once more in its place. */
#include "schedule/fold/folding.h"

#include <string.h>

/* Returns the operation that stands for one that is removed. */
static int joined_op(const struct folding *f, int op)
{
	return op >= f->body_first + f->body_n ? op - f->body_n : op;
}

static int joined_target(const struct folding *f, int op)
{
	int n_ops = f->program->n_ops;
	return op < 0 ? joined_op(f, op + n_ops) - n_ops + f->body_n : joined_op(f, op);
}

/* Returns the new number of each buffer. A buffer of a removed operation gets the number of the
 * buffer that stands for it. */
static int *joined_buffers(const struct folding *f)
{
	const struct program *program = f->program;
	int *numbers = ARENA_ARRAY(f->arena, int, program->n_buffers), n = 0;
	for (int x = f->body_first + f->body_n; x < f->body_first + 2 * f->body_n; x++)
		for (int i = 0; i < program->ops[x].takes.count; i++)
			numbers[slice_of(program, program->ops[x].takes)[i]] = -1;
	for (int b = 0; b < program->n_buffers; b++)
		numbers[b] = numbers[b] < 0 ? -1 : n++;
	for (int x = f->body_first; x < f->body_first + f->body_n; x++) {
		const int *one = slice_of(program, program->ops[x].takes);
		const int *two = slice_of(program, program->ops[x + f->body_n].takes);
		for (int i = 0; i < program->ops[x].takes.count; i++)
			numbers[two[i]] = numbers[one[i]];
	}
	return numbers;
}

static void renumber(const struct folding *f, struct slice slice, const int *numbers)
{
	int *indices = f->program->indices + slice.first;
	for (int i = 0; i < slice.count; i++)
		indices[i] = numbers != NULL ? numbers[indices[i]] : joined_target(f, indices[i]);
}

static void join_indices(const struct folding *f, const int *numbers)
{
	for (int x = 0; x < f->program->n_ops; x++) {
		const struct op *op = &f->program->ops[x];
		renumber(f, op->waits, NULL);
		renumber(f, op->host_waits, NULL);
		renumber(f, op->takes, numbers);
		renumber(f, op->gives, numbers);
		renumber(f, op->uses, numbers);
	}
}

/* Moves buffers to their new places. Those that share the number of an earlier one are dropped. */
static void join_buffers(const struct folding *f, const int *numbers)
{
	struct program *program = f->program;
	struct listed_names *names =
		program->unfolding != NULL ? program->unfolding->buffers : NULL;
	int n = 0;
	for (int b = 0; b < program->n_buffers; b++) {
		if (numbers[b] < n)
			continue;
		program->buffers[n] = program->buffers[b];
		if (names != NULL)
			names[n] = names[b];
		n++;
	}
	program->n_buffers = n;
}

static void join_loops(const struct folding *f)
{
	struct program *program = f->program;
	int end = f->body_first + f->body_n, n = 0;
	for (int l = 0; l < program->n_loops; l++) {
		struct loop loop = program->loops[l];
		if (loop.first >= end && loop.first < end + f->body_n)
			continue;
		loop.times += loop.first == f->body_first && loop.layers == 0;
		loop.first = joined_op(f, loop.first);
		program->loops[n++] = loop;
	}
	program->n_loops = n;
}

void fold_join_next(const struct folding *f)
{
	struct program *program = f->program;
	int end = f->body_first + f->body_n;
	if (f->body_n == 0)
		return;
	const int *numbers = joined_buffers(f);
	join_indices(f, numbers);
	join_buffers(f, numbers);
	join_loops(f);
	program->n_ops -= f->body_n;
	size_t behind = (size_t)(program->n_ops - end);
	memmove(program->ops + end, program->ops + end + f->body_n, behind * sizeof(struct op));
	if (program->unfolding == NULL)
		return;
	struct listed *listed = program->unfolding->ops + end;
	memmove(listed, listed + f->body_n, behind * sizeof(*listed));
}
