/* What the caching allocator reserves: the schedule's buffers, as the tensors that they are, go
 * through PyTorch's rules (allocator.h). The host takes blocks when it issues, ahead of the device,
 * in list order; a give on the stream of the block's own pool is effective at once (stream-ordered
 * reuse), on another stream it is when that stream has passed (rule 5 of docs/schedule.md). FSDP2
 * lets its streams wait instead, so that its blocks are reusable at once (docs/runtimes.md). The
 * optimizer's state comes into being at the end of the first step, in the holes of that step. */
#include <string.h>

#include "simulator/memory/allocator.h"
#include "simulator/memory/memory.h"

enum { PIECES_MAX = 1 << 12 };

struct pieces {
	int n;
	int64_t bytes[PIECES_MAX];
};

/* The tensors of a buffer, and where the operation that takes it has their blocks. */
struct cut {
	int n, first;
	int64_t *bytes; /* NULL before it was taken for the first time */
};

/* What an operation has taken and not given back, in one iteration: the blocks of all its buffers.
 */
struct taken {
	int n, *blocks; /* NULL: nothing */
};

struct pools {
	const struct engine *engine;
	const struct activation_rules *rules;
	bool at_once;                /* gives to other streams need not wait for them */
	struct taken *taken[2];      /* of even and odd steps, by position in the list */
	int *takers;                 /* by buffer: the operation that takes it; -1 */
	struct cut *cuts;            /* by buffer */
	int last[BUFFER_ROLE_COUNT]; /* the buffer of each role that was cut last; -1 */
	struct arena *arena;
	struct allocator allocator;
	struct pieces pieces;
};

/* --- the tensors of a buffer ------------------------------------------------------------------ */

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

static void add_saved(struct pools *pools, const struct buffer *buffer)
{
	const struct schedule *schedule = pools->engine->schedule;
	struct tensor tensors[MODULE_TENSORS_MAX];
	int64_t bytes;
	for (int m = buffer->first_module; m < buffer->end_module; m++) {
		int n = model_saved_tensors(schedule->model, m, pools->rules,
			schedule->plan.micro_batch, schedule->plan.seq_len, tensors, &bytes);
		for (int i = 0; i < n; i++)
			add(&pools->pieces, tensors[i].bytes);
	}
}

static int64_t trained_elements(const struct model *model, int parameter)
{
	const struct parameter *p = &model->parameters[parameter];
	return p->trainable ? p->elements : 0;
}

static void add_gradients(struct pools *pools, const struct buffer *buffer)
{
	const struct model *model = pools->engine->schedule->model;
	for (int m = buffer->first_module; m < buffer->end_module; m++)
		for (int p = 0; p < model->modules[m].n_parameters; p++)
			add(&pools->pieces,
				trained_elements(model, model->modules[m].first_parameter + p) *
					dtype_bytes(buffer->dtype));
}

/* FSDP2's parameters are tensors of their own, sharded and gathered. */
static void add_parameters(struct pools *pools, const struct buffer *buffer, int times)
{
	const struct unit *unit = &pools->engine->schedule->units[buffer->unit];
	int64_t whole = unit->gathered;
	for (int i = 0; i < unit->n_slices && whole > 0; i++)
		for (int k = 0; k < times; k++)
			add(&pools->pieces,
				buffer->bytes / whole / times * unit->slices[i].padded_elements);
}

/* In as many pieces as tensors of the residual stream would fill it. */
static void add_even(struct pools *pools, int64_t bytes, int64_t piece)
{
	for (; bytes > 0; bytes -= piece)
		add(&pools->pieces, min_i64(bytes, piece));
}

/* Bytes of an element: frozen ones are in the compute dtype and have no states. */
static int64_t shard_width(
	const struct pools *pools, const struct buffer *buffer, const struct unit_slice *slice)
{
	const struct schedule *schedule = pools->engine->schedule;
	const struct plan *plan = &schedule->plan;
	if (schedule->model->parameters[slice->parameter].trainable)
		return dtype_bytes(plan->master_dtype);
	return buffer->role == BUFFER_PARAMETER_SHARD ? dtype_bytes(plan->param_dtype) : 0;
}

static void add_shards(struct pools *pools, const struct buffer *buffer, int times)
{
	const struct unit *unit = &pools->engine->schedule->units[buffer->unit];
	bool apart =
		runtime_of(pools->engine->schedule->plan.runtime)->layout == LAYOUT_PER_PARAMETER;
	for (int k = 0; k < times; k++) {
		if (!apart)
			add(&pools->pieces, buffer->bytes / times);
		for (int i = 0; i < unit->n_slices && apart && unit->gathered > 0; i++)
			add(&pools->pieces, shard_width(pools, buffer, &unit->slices[i]) *
						    (unit->slices[i].padded_elements /
							    (unit->gathered / unit->chunk)));
	}
}

static void cut_activations(struct pools *pools, const struct buffer *buffer)
{
	const struct plan *plan = &pools->engine->schedule->plan;
	int64_t residual = model_residual_bytes(
		pools->engine->schedule->model, pools->rules, plan->micro_batch, plan->seq_len);
	if (buffer->end_module > buffer->first_module)
		add_saved(pools, buffer);
	if (sum(&pools->pieces) == buffer->bytes)
		return;
	pools->pieces.n = 0;
	add_even(pools, buffer->bytes, max_i64(residual, buffer->bytes / 64));
}

static void cut_loss(struct pools *pools, const struct buffer *buffer)
{
	const struct schedule *schedule = pools->engine->schedule;
	int64_t logits = schedule->plan.micro_batch * schedule->plan.seq_len *
			 schedule->model->architecture.vocab;
	add_even(pools, buffer->bytes, max_i64(4 * logits, buffer->bytes / 8));
}

/* Buffers without a model, and whatever else there is, are one tensor. */
static void cut(struct pools *pools, const struct buffer *buffer)
{
	const struct schedule *schedule = pools->engine->schedule;
	bool flat = runtime_of(schedule->plan.runtime)->layout != LAYOUT_PER_PARAMETER;
	pools->pieces.n = 0;
	if (schedule->model == NULL) {
		add(&pools->pieces, buffer->bytes);
		return;
	}
	switch ((int)buffer->role) {
	case BUFFER_ACTIVATIONS:
	case BUFFER_FORWARD_WORK:
	case BUFFER_RECOMPUTED:
	case BUFFER_BACKWARD_WORK:
		cut_activations(pools, buffer);
		break;
	case BUFFER_LOSS_WORK:
		cut_loss(pools, buffer);
		break;
	case BUFFER_GRADIENT:
		add_gradients(pools, buffer);
		break;
	case BUFFER_PARAMETER_SHARD:
	case BUFFER_OPTIMIZER_STATE:
		if (buffer->unit >= 0)
			add_shards(pools, buffer, buffer->role == BUFFER_OPTIMIZER_STATE ? 2 : 1);
		break;
	case BUFFER_UNSHARDED:
		if (buffer->unit >= 0 && !flat)
			add_parameters(pools, buffer, 1);
		break;
	}
	int64_t left = buffer->bytes - sum(&pools->pieces);
	if (left < 0)
		pools->pieces.n = 0;
	add(&pools->pieces, left < 0 ? buffer->bytes : left);
}

/* --- takes and gives -------------------------------------------------------------------------- */

/* Whether two buffers are cut alike: the same tensors of blocks that are alike, of units that are
 * alike. */
static bool alike(const struct pools *pools, const struct buffer *a, const struct buffer *b)
{
	const struct schedule *schedule = pools->engine->schedule;
	const struct model *model = schedule->model;
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
	const struct unit *left = &schedule->units[a->unit], *right = &schedule->units[b->unit];
	return left->n_slices == right->n_slices && left->gathered == right->gathered &&
	       left->chunk == right->chunk && left->elements == right->elements &&
	       left->parameters == right->parameters &&
	       left->trained_parameters == right->trained_parameters;
}

/* Blocks repeat, so what was cut last for a role is likely to serve again. */
static const struct cut *cut_of(struct pools *pools, int index)
{
	const struct buffer *buffers = pools->engine->program->buffers;
	int *last = &pools->last[buffers[index].role];
	struct cut *c = &pools->cuts[index];
	if (c->bytes != NULL)
		return c;
	if (*last >= 0 && alike(pools, &buffers[*last], &buffers[index])) {
		c->n = pools->cuts[*last].n;
		c->bytes = pools->cuts[*last].bytes;
		return c;
	}
	cut(pools, &buffers[index]);
	c->n = pools->pieces.n;
	c->bytes = ARENA_ARRAY(pools->arena, int64_t, c->n + 1);
	memcpy(c->bytes, pools->pieces.bytes, (size_t)c->n * sizeof(*c->bytes));
	*last = index;
	return c;
}

static bool is_pooled(const struct pools *pools, int buffer)
{
	return pools->engine->program->buffers[buffer].pool != STREAM_HOST;
}

/* For good. */
static void take_to_keep(struct pools *pools, int index)
{
	const struct cut *c = cut_of(pools, index);
	for (int i = 0; i < c->n && is_pooled(pools, index); i++)
		allocator_take(&pools->allocator, (int)pools->engine->program->buffers[index].pool,
			c->bytes[i]);
}

static void take_one(struct pools *pools, int index, struct taken *taken)
{
	struct cut *c = &pools->cuts[index];
	int pool = (int)pools->engine->program->buffers[index].pool;
	c->first = taken->n;
	for (int i = 0; i < c->n; i++)
		taken->blocks[taken->n++] =
			is_pooled(pools, index)
				? allocator_take(&pools->allocator, pool, c->bytes[i])
				: -1;
}

static void take(struct pools *pools, const struct op *op, struct taken *taken)
{
	const int *takes = slice_of(pools->engine->program, op->takes);
	int n = 0;
	for (int t = 0; t < op->takes.count; t++)
		n += cut_of(pools, takes[t])->n;
	if (n > taken->n)
		taken->blocks = ARENA_ARRAY(pools->arena, int, n);
	taken->n = 0;
	for (int t = 0; t < op->takes.count; t++)
		take_one(pools, takes[t], taken);
}

/* What the step before the first would have taken cannot be given. */
static void release(struct pools *pools, int buffer, const struct taken *taken)
{
	const struct cut *c = &pools->cuts[buffer];
	for (int i = c->first; i < c->first + c->n && taken->n > 0; i++) {
		allocator_give(&pools->allocator, taken->blocks[i]);
		taken->blocks[i] = -1;
	}
}

/* What the operation at a position took: of this step, or, below 0, of the one before. */
static const struct taken *taken_at(const struct pools *pools, int step, int64_t position)
{
	if (position >= 0)
		return &pools->taken[step & 1][position];
	return &pools->taken[(step + 1) & 1][position + pools->engine->n_carried_out];
}

/* Where what the i-th index names was taken. */
static int64_t taker_position(const struct pools *pools, int op, const struct cursor *at, int i)
{
	const struct engine *engine = pools->engine;
	const struct program *program = engine->program;
	int taker = pools->takers[program->indices[i]];
	struct position place = {taker > op ? taker - program->n_ops : taker, 0, 0};
	struct cursor here = *at;
	if (program->n_loops > 0)
		place = program->places[i];
	here.step = 0;
	return position_of(engine, &engine->tasks[op], &place, &here);
}

/* Of the buffers from `first` on, those of one block: they stand for as many. */
static int end_of_block(const struct pools *pools, const struct op *op, int first, int end)
{
	const struct schedule *schedule = pools->engine->schedule;
	const int *buffers = pools->engine->program->indices;
	int n = buffers_at_once(schedule, op, buffers[first]), i = first + 1;
	while (i < end && buffers_at_once(schedule, op, buffers[i]) == n)
		i++;
	return i;
}

static void give_one(
	struct pools *pools, int op, const struct cursor *at, bool issued, int index, int block)
{
	const struct engine *engine = pools->engine;
	int buffer = engine->program->indices[index], taker = pools->takers[buffer];
	bool own = engine->program->buffers[buffer].pool == engine->program->ops[op].stream ||
		   pools->at_once;
	if (own != issued || taker < 0)
		return;
	int64_t position =
		taker_position(pools, op, at, index) + block * engine->tasks[taker].place.inner;
	release(pools, buffer, taken_at(pools, at->step, position));
}

/* The gives of an operation that become effective when it is issued, or when it has finished: block
 * by block. */
static void give(struct pools *pools, int index, const struct cursor *at, bool issued)
{
	const struct schedule *schedule = pools->engine->schedule;
	const struct program *program = pools->engine->program;
	const struct op *op = &program->ops[index];
	int end = op->gives.first + op->gives.count;
	for (int first = op->gives.first, next; first < end; first = next) {
		int n = buffers_at_once(schedule, op, program->indices[first]);
		next = end_of_block(pools, op, first, end);
		for (int block = 0; block < n; block++)
			for (int i = first; i < next; i++)
				give_one(pools, index, at, issued, i, block);
	}
}

/* Of a unit, or of all, block by block. */
static void take_state(struct pools *pools, int index)
{
	const struct schedule *schedule = pools->engine->schedule;
	const struct program *program = pools->engine->program;
	const struct op *op = &program->ops[index];
	int end = op->uses.first + op->uses.count;
	for (int first = op->uses.first, next; first < end && op->kind == OP_OPTIMIZER;
		first = next) {
		int n = buffers_at_once(schedule, op, program->indices[first]);
		next = end_of_block(pools, op, first, end);
		for (int block = 0; block < n; block++)
			for (int i = first; i < next; i++)
				if (program->buffers[program->indices[i]].role ==
					BUFFER_OPTIMIZER_STATE)
					take_to_keep(pools, program->indices[i]);
	}
}

static void on_issue(struct pools *pools, const struct cursor *at)
{
	const struct engine *engine = pools->engine;
	const struct task *task = &engine->tasks[at->at];
	struct cursor here = *at;
	here.step = 0;
	int64_t position = position_of(engine, task, &task->place, &here);
	take(pools, &engine->program->ops[at->at], &pools->taken[at->step & 1][position]);
	if (at->step == 0)
		take_state(pools, at->at);
	give(pools, at->at, at, true);
}

/* Block by block. */
static void take_resident(struct pools *pools)
{
	const struct buffer *buffers = pools->engine->program->buffers;
	int n = pools->engine->program->n_buffers;
	for (int first = 0, end; first < n; first = end) {
		int times = buffer_times(&buffers[first]);
		end = first + 1;
		while (end < n && buffers[end].resident && buffer_times(&buffers[end]) == times)
			end++;
		for (int block = 0; block < times && buffers[first].resident; block++)
			for (int i = first; i < end; i++)
				if (buffers[i].role != BUFFER_OPTIMIZER_STATE)
					take_to_keep(pools, i);
	}
}

/* The ends of operations in the order in which they happened, over all steps. */
struct ends {
	const struct engine *engine;
	int step, at; /* of the log */
};

/* The instance that ends next; -1. A step that was simulated once is as it was. */
static int next_end(struct ends *ends)
{
	const struct record *record = ends->engine->record;
	if (record == NULL)
		return -1;
	while (ends->at < record->n_log && record->log[ends->at] >= 0)
		ends->at++;
	if (ends->at < record->n_log)
		return ~record->log[ends->at];
	if (ends->engine->n_steps > 1 || ends->step == SIMULATED_STEPS_MAX - 1)
		return -1;
	ends->step++;
	ends->at = 0;
	return next_end(ends);
}

/* Whether `end` has happened when the host issues `instance` of `step`: with one step on record,
 * the host has waited for all of the steps before. */
static bool is_before(const struct ends *ends, int end, int instance, int step)
{
	const struct record *record = ends->engine->record;
	if (ends->step < step && ends->engine->n_steps == 1)
		return true;
	return ends->step <= step && end < instance && record->end[end] <= record->issued[instance];
}

static void give_ended(struct pools *pools, struct ends *ends, int instance, int step)
{
	const struct engine *engine = pools->engine;
	for (int end = next_end(ends); end >= 0 && is_before(ends, end, instance, step);
		end = next_end(ends)) {
		struct cursor at = engine->record->at[end];
		if (engine->n_steps == 1)
			at.step = ends->step;
		give(pools, at.at, &at, false);
		ends->at++;
	}
}

/* Segments as they were when the step, or the micro-batch, before began: the rest goes on alike. */
struct seen {
	uint64_t of_step, of_iteration;
	struct cursor at; /* the iteration */
};

static bool is_settled(struct pools *pools, struct seen *seen, const struct cursor *at)
{
	uint64_t before = seen->of_step;
	if (at->at > 0 || at->round[0] > 0 || pools->engine->n_steps > 1)
		return false;
	seen->of_step = allocator_layout(&pools->allocator);
	return at->step > 1 && seen->of_step == before;
}

/* The last iteration is carried out. */
static void pass_over(struct pools *pools, struct seen *seen, struct cursor *at)
{
	const struct program *program = pools->engine->program;
	int loop = program_loop(program, at->at, -1);
	if (loop < 0 || program->loops[loop].layers != 0 || at->round[1] > 0 || !pools->at_once)
		return;
	bool follows = seen->at.step == at->step && seen->at.at == at->at &&
		       seen->at.round[0] + 1 == at->round[0];
	uint64_t layout = allocator_layout(&pools->allocator);
	if (follows && layout == seen->of_iteration)
		at->round[0] = program->loops[loop].times - 1;
	seen->of_iteration = layout;
	seen->at = *at;
}

static void replay(struct pools *pools)
{
	const struct engine *engine = pools->engine;
	struct ends ends = {.engine = engine};
	struct seen seen = {0};
	struct cursor at = {0};
	int instance = 0;
	take_resident(pools);
	/* What has finished is reusable for operations issued then. */
	while (at.step < SIMULATED_STEPS_MAX && !pools->allocator.failed) {
		give_ended(pools, &ends, instance, at.step);
		if (is_settled(pools, &seen, &at))
			break;
		pass_over(pools, &seen, &at);
		on_issue(pools, &at);
		list_advance(&engine->host.list, engine->program, &at);
		if (++instance == engine->n_steps * engine->n_carried_out)
			instance = 0; /* with one step on record, the next one is the same */
	}
}

static void find_takers(struct pools *pools)
{
	const struct program *program = pools->engine->program;
	for (int i = 0; i < program->n_buffers; i++)
		pools->takers[i] = -1;
	for (int i = 0; i < program->n_ops; i++)
		for (int t = 0; t < program->ops[i].takes.count; t++)
			pools->takers[slice_of(program, program->ops[i].takes)[t]] = i;
}

bool memory_defers_frees(const struct schedule *schedule)
{
	return runtime_of(schedule->plan.runtime)->defers_frees;
}

struct reserved memory_reserved(const struct engine *engine, int64_t limit, struct arena *arena)
{
	int n = engine->program->n_buffers;
	struct activation_rules rules = plan_activation_rules(&engine->schedule->plan);
	struct pools pools = {.engine = engine,
		.rules = &rules,
		.at_once = !memory_defers_frees(engine->schedule),
		.takers = ARENA_ARRAY(arena, int, n),
		.cuts = ARENA_ARRAY(arena, struct cut, n),
		.arena = arena};
	for (int step = 0; step < 2; step++)
		pools.taken[step] = ARENA_ARRAY(arena, struct taken, engine->n_carried_out);
	for (int role = 0; role < BUFFER_ROLE_COUNT; role++)
		pools.last[role] = -1;
	find_takers(&pools);
	allocator_init(
		&pools.allocator, limit, engine->schedule->plan.allocator == ALLOCATOR_EXPANDABLE);
	replay(&pools);
	struct reserved reserved = {.bytes = pools.allocator.peak_reserved,
		.active = pools.allocator.peak_active,
		.retries = pools.allocator.retries,
		.fits = !pools.allocator.failed};
	allocator_finish(&pools.allocator);
	return reserved;
}
