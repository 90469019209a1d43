/* Notes what the operation that is being made takes, gives and uses. */
#include "schedule/passes/lower.h"

/* An operation may use each of thousands of buffers, so a mark per buffer replaces a search. */
static bool is_used(const struct lowering *l, int buffer)
{
	return buffer < l->users.n && l->users.items[buffer] == l->step->n_ops;
}

void op_use(struct lowering *l, int buffer)
{
	if (buffer >= 0 && !is_used(l, buffer))
		op_use_another(l, buffer);
}

void op_use_another(struct lowering *l, int buffer)
{
	if (buffer < 0)
		return;
	number_add(&l->uses, buffer);
	while (l->users.n <= buffer)
		number_add(&l->users, -1);
	l->users.items[buffer] = l->step->n_ops;
}

void op_take(struct lowering *l, int buffer)
{
	if (buffer >= 0)
		number_add(&l->takes, buffer);
}

static bool is_still_shared(struct lowering *l, int buffer)
{
	for (int i = 0; i < l->shared.n; i++) {
		if (l->shared.items[i] != buffer)
			continue;
		l->shared.items[i] = l->shared.items[--l->shared.n];
		return true;
	}
	return false;
}

void op_give(struct lowering *l, int *buffer)
{
	if (*buffer >= 0 && !is_still_shared(l, *buffer))
		number_add(&l->gives, *buffer);
	*buffer = -1;
}

int op_take_on(struct lowering *l, enum buffer_role role, enum stream pool, int unit, int64_t bytes,
	enum dtype dtype)
{
	int buffer = buffer_new(l->step, role, pool, unit, bytes, dtype);
	op_take(l, buffer);
	op_use(l, buffer);
	return buffer;
}

int op_take_new(
	struct lowering *l, enum buffer_role role, int unit, int64_t bytes, enum dtype dtype)
{
	return op_take_on(l, role, STREAM_COMPUTE, unit, bytes, dtype);
}

void op_set_range(struct lowering *l, int range)
{
	l->op.layer = l->step->ranges[range].layer;
	l->op.first_module = l->step->ranges[range].first_module;
	l->op.end_module = l->step->ranges[range].end_module;
}

void buffer_set_range(struct lowering *l, int buffer, int range)
{
	struct buffer *b = &l->step->buffers[buffer];
	b->layer = l->step->ranges[range].layer;
	b->first_module = l->step->ranges[range].first_module;
	b->end_module = l->step->ranges[range].end_module;
}

struct flight *flight_of(struct lowering *l)
{
	return &l->flights[l->at->flight];
}

struct live *live_of(struct lowering *l)
{
	return &l->units[l->at->unit];
}

int64_t compute_bytes(const struct lowering *l)
{
	return dtype_bytes(l->step->plan->param_dtype);
}

int64_t reduce_bytes(const struct lowering *l)
{
	return dtype_bytes(plan_gradient_dtype(l->step->plan));
}

int64_t master_bytes(const struct lowering *l)
{
	return dtype_bytes(l->step->plan->master_dtype);
}
