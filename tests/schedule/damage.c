/* Schedules changed in place: copies, slices, places drawn at random. */
#include "damage.h"

#include "schedule/laws/laws.h"
#include "support.h"

bool is_accepted(const struct schedule *schedule)
{
	struct error error = {0};
	bool ok = schedule_validate(schedule, &error);
	if (!ok) {
		assert_int_equal(error.code, EXIT_CODE_INTERNAL);
		assert_int_equal(strncmp(error.message, "schedule: ", 10), 0);
		assert_null(strchr(error.message, '\n'));
	}
	return ok;
}

struct schedule *schedule_copy(struct arena *arena, const struct schedule *schedule)
{
	struct schedule *c = ARENA_NEW(arena, struct schedule);
	struct program *p = ARENA_NEW(arena, struct program);
	const struct program *from = &schedule->programs[0];
	*c = *schedule;
	*p = *from;
	p->ops = ARENA_ARRAY(arena, struct op, p->n_ops);
	p->buffers = ARENA_ARRAY(arena, struct buffer, p->n_buffers);
	p->indices = ARENA_ARRAY(arena, int, p->n_indices + 1000);
	memcpy(p->ops, from->ops, (size_t)p->n_ops * sizeof(struct op));
	memcpy(p->buffers, from->buffers, (size_t)p->n_buffers * sizeof(struct buffer));
	memcpy(p->indices, from->indices, (size_t)p->n_indices * sizeof(int));
	c->groups = ARENA_ARRAY(arena, struct group, c->n_groups);
	memcpy(c->groups, schedule->groups, (size_t)c->n_groups * sizeof(struct group));
	c->programs = p;
	return c;
}

void slice_add(struct program *p, struct slice *slice, int item)
{
	int first = p->n_indices;
	for (int i = 0; i < slice->count; i++)
		p->indices[p->n_indices++] = p->indices[slice->first + i];
	p->indices[p->n_indices++] = item;
	*slice = (struct slice){first, slice->count + 1};
}

void slice_drop(struct program *p, struct slice *slice, int index)
{
	int first = p->n_indices;
	for (int i = 0; i < slice->count; i++)
		if (i != index)
			p->indices[p->n_indices++] = p->indices[slice->first + i];
	*slice = (struct slice){first, slice->count - 1};
}

void slice_set(struct program *p, struct slice *slice, int index, int item)
{
	slice_drop(p, slice, index);
	slice_add(p, slice, item);
}

struct slice *op_member(struct op *op, enum member member)
{
	struct slice *const members[] = {
		&op->waits, &op->host_waits, &op->takes, &op->gives, &op->uses};
	return members[member];
}

int draw_op(const struct program *p, enum member member, uint64_t *seed)
{
	for (int round = 0; round < 1000; round++) {
		int i = (int)random_below(seed, p->n_ops);
		if (op_member(&p->ops[i], member)->count > 0)
			return i;
	}
	return -1;
}

int draw_item(const struct program *p, struct slice slice, uint64_t *seed, int *index)
{
	*index = (int)random_below(seed, slice.count);
	return slice_of(p, slice)[*index];
}
