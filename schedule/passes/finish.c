/* The program of the step: of one class of ranks. */
#include <string.h>

#include "schedule/passes/step.h"

static void *keep(struct step *step, const void *items, int n, size_t size)
{
	void *copy = arena_alloc(step->arena, (size_t)n, size);
	if (n > 0)
		memcpy(copy, items, (size_t)n * size);
	return copy;
}

void pass_finish(struct step *step)
{
	struct program *program = ARENA_NEW(step->arena, struct program);
	program->model = step->model;
	program->n_units = step->n_units;
	program->units = step->units;
	program->n_ops = step->n_ops;
	program->ops = step->ops;
	program->n_buffers = step->n_buffers;
	program->buffers = keep(step, step->buffers, step->n_buffers, sizeof(struct buffer));
	program->n_indices = step->indices.n;
	program->indices = keep(step, step->indices.items, step->indices.n, sizeof(int));
	step->schedule->n_classes = 1;
	step->schedule->programs = program;
}
