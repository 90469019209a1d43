/* Walks through a list with loops that are repeated. */
#include "simulator/engine/lists.h"

static int count(const int *member, int n, int value)
{
	int found = 0;

	for (int i = 0; i < n; i++)
		found += member == NULL || member[i] == value;
	return found;
}

/* Outer loops are listed first, so the last loop that contains the position is the innermost. */
static void find_loops(const struct program *program, struct list *list)
{
	for (int l = 0; l < program->n_loops; l++) {
		const struct loop *loop = &program->loops[l];
		int last = -1;

		list->opens[l] = -1;
		list->lengths[l] = 0;
		for (int i = 0; i < list->n && list->ops[i] < loop->first + loop->n; i++) {
			if (list->ops[i] < loop->first)
				continue;
			if (list->opens[l] < 0)
				list->opens[l] = i;
			list->lengths[l]++;
			last = i;
		}
		if (last >= 0)
			list->closes[last] = l;
	}
}

struct list list_of(
	const struct program *program, const int *member, int value, struct arena *arena)
{
	struct list list = {.n = count(member, program->n_ops, value)};
	int n = 0;

	list.ops = ARENA_ARRAY(arena, int, list.n);
	for (int i = 0; i < program->n_ops; i++)
		if (member == NULL || member[i] == value)
			list.ops[n++] = i;
	if (program->n_loops == 0)
		return list;
	list.closes = ARENA_ARRAY(arena, int, list.n);
	list.opens = ARENA_ARRAY(arena, int, program->n_loops);
	list.lengths = ARENA_ARRAY(arena, int, program->n_loops);
	for (int i = 0; i < list.n; i++)
		list.closes[i] = -1;
	find_loops(program, &list);
	return list;
}

static int depth_of(const struct program *program, int loop)
{
	return program->loops[loop].outer >= 0;
}

/* The loop around `loop`, if it ends at the same operation. */
static int closed_outside(
	const struct list *list, const struct program *program, int loop, int place)
{
	int outer = program->loops[loop].outer;

	return outer >= 0 && list->opens[outer] + list->lengths[outer] - 1 == place ? outer : -1;
}

void list_advance(const struct list *list, const struct program *program, struct cursor *cursor)
{
	int place = cursor->at++;

	for (int loop = program->n_loops > 0 ? list->closes[place] : -1; loop >= 0;) {
		int *round = &cursor->round[depth_of(program, loop)];

		if (++*round < program->loops[loop].times) {
			cursor->at = list->opens[loop];
			return;
		}
		*round = 0;
		loop = closed_outside(list, program, loop, place);
	}
	if (cursor->at == list->n) {
		cursor->at = 0;
		cursor->step++;
	}
}
