/* Emitting operations and buffers: bookkeeping only, no policy. */
#include <stdlib.h>
#include <string.h>

#include "schedule/passes/passes.h"

void list_add(struct list *list, int item)
{
	if (list->n == list->capacity)
		list->items = array_grow(list->items, &list->capacity, list->n + 1, sizeof(int));
	list->items[list->n++] = item;
}

static struct slice flush(struct builder *b, struct list *list)
{
	struct slice slice = {b->indices.n, list->n};
	for (int i = 0; i < list->n; i++)
		list_add(&b->indices, list->items[i]);
	list->n = 0;
	return slice;
}

struct ref no_ref(void)
{
	return (struct ref){0, -1};
}

void op_begin(struct builder *b, enum op_kind kind, enum stream stream, int unit)
{
	b->op = (struct op){
		.kind = kind,
		.stream = stream,
		.unit = unit,
		.micro_batch = b->micro_batch,
		.group = -1,
		.layer = -1,
		.cause = -1,
		.first_module = 0,
		.end_module = 0,
		.dtype = b->plan->param_dtype,
	};
	for (int i = 0; i < b->pending_host_waits.n; i++)
		list_add(&b->host_waits, b->pending_host_waits.items[i]);
	b->pending_host_waits.n = 0;
}

static bool contains(const struct list *list, int item)
{
	for (int i = 0; i < list->n; i++)
		if (list->items[i] == item)
			return true;
	return false;
}

/* Steps before the previous one are long over when this one runs. -1 and below cannot collide with
 * "previous step": the last operation of the previous step is encoded when the step's length is
 * known (build.c adds it), so here it is kept as op - 2^30. */
static bool encode(const struct builder *b, struct ref ref, int *code)
{
	if (ref.op < 0 || ref.step < b->step - 1)
		return false;
	*code = ref.step == b->step ? ref.op : ref.op - (1 << 30);
	return true;
}

void op_wait(struct builder *b, struct ref ref)
{
	int code;
	if (!encode(b, ref, &code) || contains(&b->waits, code))
		return;
	if (ref.step == b->step && b->ops[ref.op].stream == b->op.stream)
		return; /* stream order says it already */
	list_add(&b->waits, code);
}

void op_wait_stream(struct builder *b, enum stream stream)
{
	if (stream != b->op.stream)
		op_wait(b, b->last_on_stream[stream]);
}

/* The first operation of a step on a gathering stream must not overtake the optimizer of the step
 * before; later ones follow it on their stream. */
void op_wait_gathering(struct builder *b)
{
	struct ref last = b->last_on_stream[b->op.stream];
	if (last.op < 0 || last.step < b->step)
		op_wait(b, b->optimizer);
	/* FSDP2 instead of recording streams: gathers come after the copy-out that released a
	 * buffer, so that they never run further ahead than the buffers (docs/runtimes.md). */
	op_wait(b, b->gathers_after);
}

void op_use(struct builder *b, int buffer)
{
	if (buffer >= 0 && !contains(&b->uses, buffer))
		list_add(&b->uses, buffer);
}

void op_take(struct builder *b, int buffer)
{
	if (buffer >= 0)
		list_add(&b->takes, buffer);
}

void op_give(struct builder *b, int buffer)
{
	if (buffer >= 0)
		list_add(&b->gives, buffer);
}

struct ref op_end(struct builder *b)
{
	b->op.waits = flush(b, &b->waits);
	b->op.host_waits = flush(b, &b->host_waits);
	b->op.takes = flush(b, &b->takes);
	b->op.gives = flush(b, &b->gives);
	b->op.uses = flush(b, &b->uses);
	if (b->n_ops == b->op_capacity)
		b->ops = array_grow(b->ops, &b->op_capacity, b->n_ops + 1, sizeof(struct op));
	b->ops[b->n_ops] = b->op;
	struct ref ref = {b->step, b->n_ops++};
	b->last_on_stream[b->op.stream] = ref;
	return ref;
}

static int buffer_add(struct builder *b, struct buffer buffer)
{
	if (b->n_buffers == b->buffer_capacity)
		b->buffers = array_grow(
			b->buffers, &b->buffer_capacity, b->n_buffers + 1, sizeof(struct buffer));
	b->buffers[b->n_buffers] = buffer;
	return b->n_buffers++;
}

int buffer_new(struct builder *b, enum buffer_role role, enum stream pool, int unit, int64_t bytes,
	enum dtype dtype)
{
	return buffer_add(b, (struct buffer){.role = role,
				     .pool = pool,
				     .unit = unit,
				     .layer = -1,
				     .dtype = dtype,
				     .bytes = bytes});
}

int buffer_resident(
	struct builder *b, enum buffer_role role, int unit, int64_t bytes, enum dtype dtype)
{
	return buffer_add(b, (struct buffer){.role = role,
				     .pool = STREAM_COMPUTE,
				     .unit = unit,
				     .layer = -1,
				     .dtype = dtype,
				     .bytes = bytes,
				     .resident = true});
}
