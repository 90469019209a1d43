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

struct pools {
	const struct engine *engine;
	const struct activation_rules *rules;
	bool at_once; /* gives to other streams need not wait for them */
	bool *held;   /* by buffer */
	struct cut {
		int n, *blocks;
		int64_t *bytes;      /* NULL before it was taken for the first time */
	} * cuts;                    /* by buffer */
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

static void add_gradients(struct pools *pools, const struct buffer *buffer)
{
	const struct model *model = pools->engine->schedule->model;
	for (int m = buffer->first_module; m < buffer->end_module; m++)
		for (int p = 0; p < model->modules[m].n_parameters; p++)
			add(&pools->pieces,
				model->parameters[model->modules[m].first_parameter + p].elements *
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

static void add_shards(struct pools *pools, const struct buffer *buffer, int times)
{
	const struct unit *unit = &pools->engine->schedule->units[buffer->unit];
	bool apart =
		runtime_of(pools->engine->schedule->plan.runtime)->layout == LAYOUT_PER_PARAMETER;
	int64_t chunk = unit->chunk > 0 ? buffer->bytes / unit->chunk / times : 0;
	for (int k = 0; k < times; k++) {
		if (!apart)
			add(&pools->pieces, buffer->bytes / times);
		for (int i = 0; i < unit->n_slices && apart && unit->gathered > 0; i++)
			add(&pools->pieces, chunk * (unit->slices[i].padded_elements /
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
		const struct module *left = &model->modules[a->first_module + m];
		const struct module *right = &model->modules[b->first_module + m];
		if (left->kind != right->kind || left->n_parameters != right->n_parameters)
			return false;
	}
	if (a->unit < 0 || a->unit == b->unit)
		return true;
	const struct unit *left = &schedule->units[a->unit], *right = &schedule->units[b->unit];
	return left->n_slices == right->n_slices && left->gathered == right->gathered &&
	       left->chunk == right->chunk && left->elements == right->elements &&
	       left->parameters == right->parameters;
}

/* Blocks repeat, so what was cut last for a role is likely to serve again. */
static void keep_cut(struct pools *pools, int index, struct cut *c)
{
	const struct buffer *buffers = pools->engine->program->buffers;
	int *last = &pools->last[buffers[index].role];
	if (*last >= 0 && alike(pools, &buffers[*last], &buffers[index])) {
		c->n = pools->cuts[*last].n;
		c->bytes = pools->cuts[*last].bytes;
	} else {
		cut(pools, &buffers[index]);
		c->n = pools->pieces.n;
		c->bytes = ARENA_ARRAY(pools->arena, int64_t, c->n + 1);
		memcpy(c->bytes, pools->pieces.bytes, (size_t)c->n * sizeof(*c->bytes));
		*last = index;
	}
	c->blocks = ARENA_ARRAY(pools->arena, int, c->n + 1);
}

static void take(struct pools *pools, int index)
{
	const struct buffer *buffer = &pools->engine->program->buffers[index];
	struct cut *c = &pools->cuts[index];
	if (pools->held[index] || buffer->pool == STREAM_HOST)
		return;
	if (c->bytes == NULL)
		keep_cut(pools, index, c);
	for (int i = 0; i < c->n; i++)
		c->blocks[i] = allocator_take(&pools->allocator, (int)buffer->pool, c->bytes[i]);
	pools->held[index] = true;
}

static void release(struct pools *pools, int index)
{
	if (!pools->held[index])
		return;
	for (int i = 0; i < pools->cuts[index].n; i++)
		allocator_give(&pools->allocator, pools->cuts[index].blocks[i]);
	pools->held[index] = false;
}

/* The gives of `op` that become effective when it is issued, or when it has finished. */
static void give(struct pools *pools, const struct op *op, bool issued)
{
	const struct program *program = pools->engine->program;
	const int *gives = slice_of(program, op->gives);
	for (int i = 0; i < op->gives.count; i++) {
		bool own = program->buffers[gives[i]].pool == op->stream || pools->at_once;
		if (own == issued)
			release(pools, gives[i]);
	}
}

static void take_state(struct pools *pools, const struct op *op)
{
	const struct program *program = pools->engine->program;
	const int *uses = slice_of(program, op->uses);
	for (int i = 0; i < op->uses.count && op->kind == OP_OPTIMIZER; i++)
		if (program->buffers[uses[i]].role == BUFFER_OPTIMIZER_STATE)
			take(pools, uses[i]);
}

static void on_issue(struct pools *pools, int index)
{
	const struct program *program = pools->engine->program;
	const struct op *op = &program->ops[index];
	const int *takes = slice_of(program, op->takes);
	for (int i = 0; i < op->takes.count; i++)
		take(pools, takes[i]);
	take_state(pools, op);
	give(pools, op, true);
}

static void take_resident(struct pools *pools)
{
	const struct program *program = pools->engine->program;
	for (int i = 0; i < program->n_buffers; i++)
		if (program->buffers[i].resident &&
			program->buffers[i].role != BUFFER_OPTIMIZER_STATE)
			take(pools, i);
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
	if (ends->at == record->n_log && ends->engine->n_steps == 1 &&
		ends->step < SIMULATED_STEPS_MAX - 1) {
		ends->step++;
		ends->at = 0;
		return next_end(ends);
	}
	if (ends->at == record->n_log)
		return -1;
	return ends->step * ends->engine->n_ops + ~record->log[ends->at];
}

/* Whether `end` has happened when the host issues `instance`, of the same step at least: with one
 * step on record, the host has waited for all of the steps before. */
static bool is_before(const struct engine *engine, int end, int instance)
{
	const struct record *record = engine->record;
	int n = engine->n_ops;
	if (end >= instance)
		return false;
	if (engine->n_steps > 1)
		return record->end[end] <= record->issued[instance];
	return end / n < instance / n || record->end[end % n] <= record->issued[instance % n];
}

static void replay(struct pools *pools)
{
	const struct engine *engine = pools->engine;
	int n = engine->n_ops;
	struct ends ends = {.engine = engine};
	take_resident(pools);
	/* What has finished is reusable for operations issued then. */
	for (int i = 0; i < SIMULATED_STEPS_MAX * n && !pools->allocator.failed; i++) {
		for (int end = next_end(&ends); end >= 0 && is_before(engine, end, i);
			end = next_end(&ends)) {
			give(pools, &engine->program->ops[end % n], false);
			ends.at++;
		}
		on_issue(pools, i % n);
	}
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
		.held = ARENA_ARRAY(arena, bool, n),
		.cuts = ARENA_ARRAY(arena, struct cut, n),
		.arena = arena};
	for (int role = 0; role < BUFFER_ROLE_COUNT; role++)
		pools.last[role] = -1;
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
