/* The tensors of buffers. Blocks repeat: what was cut last for a role is likely to serve again. */
#include "simulator/memory/pieces.h"

#include <string.h>

#include "simulator/memory/allocator.h"

enum { PIECES_MAX = 1 << 12 };

struct pieces {
	int n;
	int64_t bytes[PIECES_MAX];
};

static void add(struct pieces *pieces, int64_t bytes)
{
	if (bytes <= 0)
		return;
	if (pieces->n < PIECES_MAX)
		pieces->bytes[pieces->n++] = bytes;
	else
		pieces->bytes[PIECES_MAX - 1] += bytes;
}

static int64_t sum(const struct pieces *pieces)
{
	int64_t total = 0;
	for (int i = 0; i < pieces->n; i++)
		total += pieces->bytes[i];
	return total;
}

static void add_saved(struct cutter *cutter, const struct buffer *buffer)
{
	const struct schedule *schedule = cutter->schedule;
	struct tensor tensors[MODULE_TENSORS_MAX];
	int64_t bytes;
	for (int m = buffer->first_module; m < buffer->end_module; m++) {
		int n = model_saved_tensors(cutter->program->model, m, &cutter->rules,
			schedule->plan.micro_batch, schedule->plan.seq_len, tensors, &bytes);
		for (int i = 0; i < n; i++)
			add(cutter->pieces, tensors[i].bytes);
	}
}

static int64_t trained_elements(const struct model *model, int parameter)
{
	const struct parameter *p = &model->parameters[parameter];
	return p->trainable ? p->elements : 0;
}

static void add_gradients(struct cutter *cutter, const struct buffer *buffer)
{
	const struct model *model = cutter->program->model;
	for (int m = buffer->first_module; m < buffer->end_module; m++)
		for (int p = 0; p < model->modules[m].n_parameters; p++)
			add(cutter->pieces,
				trained_elements(model, model->modules[m].first_parameter + p) *
					dtype_bytes(buffer->dtype));
}

/* FSDP2's parameters are tensors of their own, sharded and gathered. */
static void add_parameters(struct cutter *cutter, const struct buffer *buffer, int times)
{
	const struct unit *unit = &cutter->program->units[buffer->unit];
	int64_t whole = unit->gathered;
	for (int i = 0; i < unit->n_slices && whole > 0; i++)
		for (int k = 0; k < times; k++)
			add(cutter->pieces,
				buffer->bytes / whole / times * unit->slices[i].padded_elements);
}

/* Cuts a buffer into tensors of the residual stream's size. */
static void add_even(struct cutter *cutter, int64_t bytes, int64_t piece)
{
	for (; bytes > 0; bytes -= piece)
		add(cutter->pieces, min_i64(bytes, piece));
}

/* Bytes of an element: frozen ones are in the compute dtype and have no states. */
static int64_t shard_width(
	const struct cutter *cutter, const struct buffer *buffer, const struct unit_slice *slice)
{
	const struct plan *plan = &cutter->schedule->plan;
	if (cutter->program->model->parameters[slice->parameter].trainable)
		return dtype_bytes(plan->master_dtype);
	return buffer->role == BUFFER_PARAMETER_SHARD ? dtype_bytes(plan->param_dtype) : 0;
}

static void add_shards(struct cutter *cutter, const struct buffer *buffer, int times)
{
	const struct unit *unit = &cutter->program->units[buffer->unit];
	const struct runtime *runtime = runtime_of(cutter->schedule->plan.runtime);
	bool apart = runtime->layout == LAYOUT_PER_PARAMETER ||
		     (runtime->by_parameter && buffer->role == BUFFER_OPTIMIZER_STATE);
	for (int k = 0; k < times; k++) {
		if (!apart)
			add(cutter->pieces, buffer->bytes / times);
		for (int i = 0; i < unit->n_slices && apart && unit->gathered > 0; i++)
			add(cutter->pieces, shard_width(cutter, buffer, &unit->slices[i]) *
						    (unit->slices[i].padded_elements /
							    (unit->gathered / unit->chunk)));
	}
}

static void cut_activations(struct cutter *cutter, const struct buffer *buffer)
{
	const struct plan *plan = &cutter->schedule->plan;
	int64_t residual = model_residual_bytes(
		cutter->program->model, &cutter->rules, plan->micro_batch, plan->seq_len);
	if (buffer->end_module > buffer->first_module)
		add_saved(cutter, buffer);
	if (sum(cutter->pieces) == buffer->bytes)
		return;
	cutter->pieces->n = 0;
	add_even(cutter, buffer->bytes, max_i64(residual, buffer->bytes / 64));
}

static void cut_loss(struct cutter *cutter, const struct buffer *buffer)
{
	const struct schedule *schedule = cutter->schedule;
	const struct model *model = cutter->program->model;
	int64_t logits = model_tokens(model, schedule->plan.micro_batch, schedule->plan.seq_len) *
			 model->architecture.vocab;
	add_even(cutter, buffer->bytes, max_i64(4 * logits, buffer->bytes / 8));
}

/* Buffers without a model, and whatever else there is, are one tensor. */
static void cut(struct cutter *cutter, const struct buffer *buffer)
{
	const struct schedule *schedule = cutter->schedule;
	bool flat = runtime_of(schedule->plan.runtime)->layout != LAYOUT_PER_PARAMETER;
	cutter->pieces->n = 0;
	if (cutter->program->model == NULL) {
		add(cutter->pieces, buffer->bytes);
		return;
	}
	switch ((int)buffer->role) {
	case BUFFER_ACTIVATIONS:
	case BUFFER_FORWARD_WORK:
	case BUFFER_RECOMPUTED:
	case BUFFER_BACKWARD_WORK:
		cut_activations(cutter, buffer);
		break;
	case BUFFER_LOSS_WORK:
		cut_loss(cutter, buffer);
		break;
	case BUFFER_GRADIENT:
		add_gradients(cutter, buffer);
		break;
	case BUFFER_PARAMETER_SHARD:
	case BUFFER_OPTIMIZER_STATE:
		if (buffer->unit >= 0)
			add_shards(cutter, buffer, buffer->role == BUFFER_OPTIMIZER_STATE ? 2 : 1);
		break;
	case BUFFER_UNSHARDED:
		if (buffer->unit >= 0 && !flat)
			add_parameters(cutter, buffer, 1);
		break;
	}
	int64_t left = buffer->bytes - sum(cutter->pieces);
	if (left < 0)
		cutter->pieces->n = 0;
	add(cutter->pieces, left < 0 ? buffer->bytes : left);
}

/* Do two buffers consist of equal pieces? They do if they hold the same tensors of equal blocks or
 * of equal units. */
static bool alike(const struct cutter *cutter, const struct buffer *a, const struct buffer *b)
{
	const struct unit *units = cutter->program->units;
	const struct model *model = cutter->program->model;
	if (a->role != b->role || a->bytes != b->bytes || a->dtype != b->dtype ||
		a->end_module - a->first_module != b->end_module - b->first_module ||
		(a->unit < 0) != (b->unit < 0))
		return false;
	for (int m = 0; model != NULL && m < a->end_module - a->first_module; m++) {
		int left = a->first_module + m, right = b->first_module + m;
		if (!model_leaves_are_alike(model, left, right) ||
			model_trained_elements(model, left) != model_trained_elements(model, right))
			return false;
	}
	if (a->unit < 0 || a->unit == b->unit)
		return true;
	const struct unit *left = &units[a->unit], *right = &units[b->unit];
	return left->n_slices == right->n_slices && left->gathered == right->gathered &&
	       left->chunk == right->chunk && left->elements == right->elements &&
	       left->parameters == right->parameters &&
	       left->trained_parameters == right->trained_parameters;
}

static void keep(struct cutter *cutter, struct cut *c)
{
	c->n = cutter->pieces->n;
	c->bytes = arena_alloc_unset(cutter->arena, (size_t)c->n + 1, sizeof(*c->bytes));
	memcpy(c->bytes, cutter->pieces->bytes, (size_t)c->n * sizeof(*c->bytes));
	for (int i = 0; i < c->n; i++)
		c->n_small += allocator_is_small(c->bytes[i]);
}

const struct cut *cutter_cut(struct cutter *cutter, int index)
{
	const struct buffer *buffers = cutter->program->buffers;
	int *last = &cutter->last[buffers[index].role];
	struct cut *c = &cutter->cuts[index];
	if (c->bytes != NULL)
		return c;
	if (*last >= 0 && alike(cutter, &buffers[*last], &buffers[index])) {
		*c = cutter->cuts[*last];
		return c;
	}
	cut(cutter, &buffers[index]);
	keep(cutter, c);
	*last = index;
	return c;
}

int64_t cutter_taken_at(
	const struct cutter *cutter, int op, const struct cursor *at, int i, int block)
{
	const struct engine *engine = cutter->engine;
	const struct program *program = cutter->program;
	int taker = cutter->takers[program->indices[i]];
	struct position place = {taker > op ? taker - program->n_ops : taker, 0, 0};
	struct cursor here = *at;
	if (program->n_loops > 0)
		place = program->places[i];
	here.step = 0;
	return position_of(engine, &engine->tasks[op], &place, &here) +
	       block * engine->tasks[taker].place.inner;
}

int cutter_end_of_block(const struct cutter *cutter, const struct op *op, int first, int end)
{
	const int *buffers = cutter->program->indices;
	int n = buffers_at_once(cutter->program, op, buffers[first]), i = first + 1;
	while (i < end && buffers_at_once(cutter->program, op, buffers[i]) == n)
		i++;
	return i;
}

void cutter_each_resident(
	const struct cutter *cutter, void (*take)(void *self, int buffer), void *self)
{
	const struct buffer *buffers = cutter->program->buffers;
	int n = cutter->program->n_buffers;
	for (int first = 0, end; first < n; first = end) {
		int times = buffer_times(&buffers[first]);
		end = first + 1;
		while (end < n && buffers[end].resident && buffer_times(&buffers[end]) == times)
			end++;
		for (int block = 0; block < times && buffers[first].resident; block++)
			for (int i = first; i < end; i++)
				if (buffers[i].role != BUFFER_OPTIMIZER_STATE)
					take(self, i);
	}
}

static void find_takers(struct cutter *cutter)
{
	const struct program *program = cutter->program;
	for (int i = 0; i < program->n_buffers; i++)
		cutter->takers[i] = -1;
	for (int i = 0; i < program->n_ops; i++)
		for (int t = 0; t < program->ops[i].takes.count; t++)
			cutter->takers[slice_of(program, program->ops[i].takes)[t]] = i;
}

void cutter_init(struct cutter *cutter, const struct engine *engine, struct arena *arena)
{
	*cutter = (struct cutter){.engine = engine,
		.schedule = engine->schedule,
		.program = engine->program,
		.rules = plan_activation_rules(
			&engine->schedule->plan, engine->schedule->topology->device.generation),
		.cuts = ARENA_ARRAY(arena, struct cut, engine->program->n_buffers),
		.takers = ARENA_ARRAY(arena, int, engine->program->n_buffers),
		.pieces = arena_alloc_unset(arena, 1, sizeof(struct pieces)),
		.arena = arena};
	for (int role = 0; role < BUFFER_ROLE_COUNT; role++)
		cutter->last[role] = -1;
	find_takers(cutter);
}
