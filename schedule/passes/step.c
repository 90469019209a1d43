/* Begins and ends a step, answers the questions that passes share, and keeps the step's lists. */
#include "schedule/passes/step.h"

#include <stdlib.h>

struct step *step_begin(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, int class)
{
	struct step *step = ARENA_NEW(arena, struct step);
	const int *chunks;
	model = plan_stage(plan, plan_model(plan, model, arena), class, arena, &chunks);
	*step = (struct step){.arena = arena,
		.model = model,
		.class = class,
		.pipeline = plan_pipeline(plan),
		.chunks = chunks,
		.topology = topology,
		.method = method_of(plan, topology)};
	step->schedule = ARENA_NEW(arena, struct schedule);
	*step->schedule = (struct schedule){
		.arena = arena, .plan = *plan, .model = model_whole(model), .topology = topology};
	step->plan = &step->schedule->plan;
	step->rules = plan_activation_rules(plan, topology->device.generation);
	step->checkpointing = ARENA_ARRAY(arena, enum checkpointing, model->architecture.layers);
	for (int64_t l = 0; l < model->architecture.layers; l++)
		step->checkpointing[l] = plan_block_checkpointing(plan, model_layer(model, l));
	return step;
}

void step_repeat(struct step *step, const int *times, struct unit *units, int n_units)
{
	step->times = times;
	step->units = units;
	step->n_units = n_units;
}

const int *step_frees_pending(const struct step *step)
{
	return step->frees_pending;
}

static void *keep(struct step *step, const void *items, int n, size_t size)
{
	void *copy = arena_alloc(step->arena, (size_t)n, size);
	if (n > 0)
		memcpy(copy, items, (size_t)n * size);
	return copy;
}

/* The last pass makes the program of one class of ranks. */
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

struct schedule *step_end(struct step *step)
{
	free(step->actions.items);
	free(step->lists.items);
	free(step->buffers);
	free(step->indices.items);
	return step->schedule;
}

/* --- questions -----------------------------------------------------------------------------------
 */

bool unit_has_parameters(const struct step *step, int unit)
{
	return step->units[unit].parameters > 0;
}

bool unit_is_trained(const struct step *step, int unit)
{
	return !unit_is_frozen(&step->units[unit]);
}

int unit_twin(const struct step *step, int unit)
{
	const struct unit *units = step->units;
	return unit > 0 && units_are_twins(&units[unit - 1], &units[unit]) ? unit - 1 : -1;
}

bool range_goes_back(const struct step *step, int range)
{
	return range >= step->first_back;
}

bool unit_goes_back(const struct step *step, int unit)
{
	return step->units[unit].end_module > step->ranges[step->first_back].first_module;
}

bool unit_is_offloaded(const struct step *step, int unit)
{
	return step->units[unit].offload != OFFLOAD_NONE;
}

bool unit_parameters_are_offloaded(const struct step *step, int unit)
{
	return step->units[unit].offload == OFFLOAD_PARAMETERS;
}

/* With only the optimizer offloaded the shard on the device is in the compute dtype already. */
bool unit_is_cast(const struct step *step, int unit)
{
	return step->method.casts_shard && step->method.casts && unit_is_trained(step, unit) &&
	       (unit_parameters_are_offloaded(step, unit) || !unit_is_offloaded(step, unit));
}

int unit_group(const struct step *step, int unit)
{
	if (step->units[unit].of_experts)
		return step->group_expert_shard;
	return step->method.scatters ? step->group_reduce : step->group_replicate;
}

enum stream unit_updater(const struct step *step, int unit)
{
	return unit_is_offloaded(step, unit) ? STREAM_HOST : STREAM_COMPUTE;
}

enum checkpointing range_checkpointing(const struct step *step, int range)
{
	int layer = step->ranges[range].layer;
	return layer >= 0 ? step->checkpointing[layer] : CHECKPOINTING_NONE;
}

int slot_begin(const struct step *step, int range)
{
	while (!step->ranges[range].first_of_slot)
		range--;
	return range;
}

bool range_ends_backward(const struct step *step, int range)
{
	return range == step->first_back || step->ranges[range].first_of_chunk;
}

bool chunk_has_loss(const struct step *step, int chunk)
{
	return pipeline_stage(&step->pipeline, step->class, chunk) ==
	       step->pipeline.ranks * step->pipeline.chunks - 1;
}

bool unit_is_in_chunk(const struct step *step, int unit, int chunk)
{
	return chunk >= step->unit_chunks[unit].first && chunk <= step->unit_chunks[unit].last;
}

bool range_has_head(const struct step *step, int range)
{
	return step->model->modules[step->ranges[range].end_module - 1].kind == MODULE_HEAD;
}

/* --- actions -------------------------------------------------------------------------------------
 */

static const enum stream usual_streams[ACTION_KIND_COUNT] = {
#define X(suffix, kind, stream, ...) [ACTION_##suffix] = STREAM_##stream,
	ACTIONS(X)
#undef X
};

bool action_makes_input(const struct action *action)
{
	return action->kind == ACTION_BACKWARD || action->kind == ACTION_BACKWARD_INPUT;
}

/* Returns the end of the leaves of a range that may read what it reads: products that stand side by
 * side. */
static int readers_end(const struct step *step, const struct range *range)
{
	static const bool reads_others[MODULE_KIND_COUNT] = {
		[MODULE_ATTENTION_CORE] = true,
		[MODULE_ATTENTION_OUTPUT] = true,
		[MODULE_ACTIVATION] = true,
		[MODULE_DOWN] = true,
		[MODULE_EXPERTS_ACTIVATION] = true,
		[MODULE_EXPERTS_DOWN] = true,
		[MODULE_SHARED_ACTIVATION] = true,
		[MODULE_SHARED_DOWN] = true,
	};
	int m = range->first_module + 1;
	while (m < range->end_module && !reads_others[step->model->modules[m].kind])
		m++;
	return m;
}

bool action_reads_input(const struct step *step, const struct action *action)
{
	return action->kind != ACTION_RECOMPUTE ||
	       (action->flags & FIRST &&
		       action->first_module < readers_end(step, &step->ranges[action->range]));
}

bool action_ends_range(const struct step *step, const struct action *action)
{
	return action->kind != ACTION_RECOMPUTE ||
	       action->end_module == step->ranges[action->range].end_module;
}

struct action_list actions_begin(struct step *step)
{
	struct action_list old = step->actions;
	step->actions = (struct action_list){0};
	/* A pass writes about as many actions as it reads. */
	step->actions.items =
		array_grow(NULL, &step->actions.capacity, old.n + old.n / 4, sizeof(struct action));
	return old;
}

void actions_end(struct action_list *old)
{
	free(old->items);
}

struct action *action_add(struct step *step, struct action action)
{
	struct action_list *list = &step->actions;
	if (list->n == list->capacity)
		list->items = array_grow(
			list->items, &list->capacity, list->n + 1, sizeof(struct action));
	list->items[list->n] = action;
	return &list->items[list->n++];
}

struct action action_at(const struct action *at, enum action_kind kind, int unit)
{
	return (struct action){.kind = kind,
		.stream = usual_streams[kind],
		.flags = at->flags &
			 (IN_BACKWARD | SYNCHRONISES | INPUT_PART | WEIGHT_PART | PAIRED),
		.unit = unit,
		.range = -1,
		.micro_batch = at->micro_batch,
		.flight = at->flight,
		.chunk = at->chunk,
		.cause = -1};
}

struct action action_of_step(enum action_kind kind, int unit)
{
	return (struct action){.kind = kind,
		.stream = usual_streams[kind],
		.unit = unit,
		.range = -1,
		.micro_batch = -1,
		.flight = -1,
		.cause = -1};
}

void action_add_beside(
	struct step *step, const struct action *at, enum action_kind kind, unsigned flags)
{
	struct action action = action_at(at, kind, -1);
	action.range = at->range;
	action.flags |= flags;
	action_add(step, action);
}

/* The first action that is added reads the shard, which has to be on the device before it. */
void action_add_gather(struct step *step, struct action gather, bool is_limited)
{
	bool is_cast = !(gather.flags & FROM_PART) && unit_is_cast(step, gather.unit);
	unsigned reads = gather.flags & FROM_PART ? 0 : READS_SHARD;
	struct action cast = action_at(&gather, ACTION_CAST_SHARD, gather.unit);
	struct action limit = action_at(&gather, ACTION_LIMIT, gather.unit);
	cast.cause = limit.cause = gather.cause;
	if (is_cast) {
		cast.flags |= reads;
		reads = 0;
		action_add(step, cast);
	}
	if (is_limited) {
		limit.flags |= reads;
		reads = 0;
		action_add(step, limit);
	}
	gather.flags |= reads;
	action_add(step, gather);
}

/* Gathers several leaves at once: their shards are packed side by side and gathered in place. */
void action_add_gather_of_leaves(
	struct step *step, const struct action *at, struct slice units, int cause)
{
	struct action pack = action_at(at, ACTION_PACK_LEAVES, -1);
	struct action gather = action_at(at, ACTION_GATHER_LEAVES, -1);
	pack.units = gather.units = units;
	pack.cause = gather.cause = cause;
	action_add(step, pack);
	action_add(step, gather);
}

void number_add(struct numbers *list, int item)
{
	if (list->n == list->capacity)
		list->items = array_grow(list->items, &list->capacity, list->n + 1, sizeof(int));
	list->items[list->n++] = item;
}

/* --- buffers -------------------------------------------------------------------------------------
 */

static int buffer_add(struct step *step, struct buffer buffer)
{
	if (step->n_buffers == step->buffer_capacity)
		step->buffers = array_grow(step->buffers, &step->buffer_capacity,
			step->n_buffers + 1, sizeof(struct buffer));
	step->buffers[step->n_buffers] = buffer;
	return step->n_buffers++;
}

int buffer_new(struct step *step, enum buffer_role role, enum stream pool, int unit, int64_t bytes,
	enum dtype dtype)
{
	return buffer_add(step, (struct buffer){.role = role,
					.pool = pool,
					.unit = unit,
					.layer = -1,
					.dtype = dtype,
					.bytes = bytes});
}

int buffer_new_resident(
	struct step *step, enum buffer_role role, int unit, int64_t bytes, enum dtype dtype)
{
	int buffer = buffer_new(step, role, STREAM_COMPUTE, unit, bytes, dtype);
	step->buffers[buffer].resident = true;
	return buffer;
}

int buffer_new_on_host(
	struct step *step, enum buffer_role role, int unit, int64_t bytes, enum dtype dtype)
{
	int buffer = buffer_new_resident(step, role, unit, bytes, dtype);
	step->buffers[buffer].pool = STREAM_HOST;
	return buffer;
}
