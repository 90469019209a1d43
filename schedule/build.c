/* schedule_build: steps are emitted one after the other, and the last, the steady one, is the
 * schedule; only the rate limiter's queue and the stream order pass from step to step. */
#include <stdlib.h>
#include <string.h>

#include "schedule/passes/passes.h"
#include "schedule/schedule.h"

enum { PREVIOUS_STEP = 1 << 30 };

/* --- groups --------------------------------------------------------------------------------------
 */

static int add_group(
	struct builder *b, enum group_kind kind, int64_t size, int64_t stride, int engine)
{
	struct schedule *schedule = b->schedule;
	if (engine + 1 > schedule->n_engines)
		schedule->n_engines = engine + 1;
	schedule->groups[schedule->n_groups] = (struct group){kind, size, stride, engine};
	return schedule->n_groups++;
}

/* One for all units that are resharded to that size. */
static int reshard_group(struct builder *b, int64_t size, bool one_engine)
{
	for (int g = 0; g < b->schedule->n_groups; g++)
		if (b->schedule->groups[g].kind == GROUP_RESHARD &&
			b->schedule->groups[g].size == size)
			return g;
	return add_group(b, GROUP_RESHARD, size, 1, one_engine ? 0 : b->schedule->n_engines);
}

/* Gradients are reduced over all ranks; parameters are gathered, and the norm is summed, over those
 * that share an optimizer state: the same communicator unless they are fewer. */
static void build_zero_groups(struct builder *b)
{
	int64_t shard = b->plan->mesh.shard, ranks = plan_data_parallel(b->plan);
	if (shard > 1)
		b->group_gather = b->group_reduce = add_group(b, GROUP_SHARD, shard, 1, 0);
	if (ranks > 1)
		b->group_replicate =
			add_group(b, GROUP_WORLD, ranks, 1, shard > 1 && shard < ranks);
}

/* PyTorch: one communicator a process group, shared by gathers and reductions. Ours on GPUs:
 * gathers and reductions apart. On a CPU one thread carries out everything. */
static void build_groups(struct builder *b)
{
	const struct mesh *mesh = &b->plan->mesh;
	bool ours = b->plan->runtime == RUNTIME_SHARDPLAN;
	bool one = b->runtime->one_engine && topology_issues_inline(b->topology);
	b->schedule->groups = ARENA_ARRAY(b->arena, struct group, 3 + b->n_units);
	b->group_gather = b->group_reduce = b->group_replicate = -1;
	if (!b->shards) {
		if (mesh->replicate > 1)
			b->group_replicate = add_group(b, GROUP_WORLD, mesh->replicate, 1, 0);
		return;
	}
	if (is_zero(b)) {
		build_zero_groups(b);
		return;
	}
	b->group_gather = b->group_reduce = add_group(b, GROUP_SHARD, mesh->shard, 1, 0);
	if (ours && !one)
		b->group_reduce = add_group(b, GROUP_SHARD, mesh->shard, 1, 1);
	if (mesh->replicate > 1)
		b->group_replicate = add_group(b, GROUP_REPLICATE, mesh->replicate, mesh->shard,
			one ? 0 : b->schedule->n_engines);
	for (int u = 0; u < b->n_units; u++)
		if (b->schedule->units[u].reshard_group > 0)
			b->units[u].group_reshard =
				reshard_group(b, b->schedule->units[u].reshard_group, one);
}

/* --- resident buffers ----------------------------------------------------------------------------
 */

/* cuBLAS: 2 x 4 MiB + 8 x 16 KiB, and 32 MiB from Hopper on (CublasHandlePool.cpp). */
static int64_t workspace_bytes(const struct builder *b)
{
	if (b->topology->overheads.workspace_bytes > 0)
		return b->topology->overheads.workspace_bytes;
	if (b->runtime->workspace_bytes > 0)
		return b->runtime->workspace_bytes;
	if (b->topology->device.kind != DEVICE_GPU)
		return 0;
	return b->topology->device.generation >= GENERATION_HOPPER ? 33554432 : 8519680;
}

static int64_t optimizer_state_bytes(const struct builder *b)
{
	if (b->plan->optimizer == OPTIMIZER_SGD)
		return 0;
	return 2 * dtype_bytes(b->plan->master_dtype);
}

static void reset_resident(struct unit_state *state)
{
	state->parameter_shard = state->optimizer_state = state->reduce_input = -1;
	state->kept_gradient = state->kept_gradient_shard = state->kept = -1;
	state->master_shard = state->host_low_precision = state->kept_host_gradient = -1;
	state->ready = state->returned = no_ref();
}

static void build_states(struct builder *b, int unit, int64_t state_bytes)
{
	enum dtype master = b->plan->master_dtype;
	int64_t chunk = b->schedule->units[unit].chunk;
	b->units[unit].parameter_shard = buffer_resident(
		b, BUFFER_PARAMETER_SHARD, unit, chunk * dtype_bytes(master), master);
	if (state_bytes > 0)
		b->units[unit].optimizer_state = buffer_resident(
			b, BUFFER_OPTIMIZER_STATE, unit, chunk * state_bytes, master);
}

static void build_resident(struct builder *b)
{
	enum dtype master = b->plan->master_dtype;
	int64_t state_bytes = optimizer_state_bytes(b), workspace = workspace_bytes(b);
	b->n_buffers = 0;
	for (int u = 0; u < b->n_units; u++) {
		const struct unit *unit = &b->schedule->units[u];
		struct unit_state *state = &b->units[u];
		reset_resident(state);
		if (unit->parameters == 0)
			continue;
		if (offloads(b, u))
			offload_resident(b, u, state_bytes);
		else
			build_states(b, u, state_bytes);
		if (strategy_keeps_parameters(b->plan->strategy) && !is_ddp(b)) /* ours */
			state->kept = buffer_resident(b, BUFFER_UNSHARDED, u,
				unit->gathered * dtype_bytes(b->plan->param_dtype),
				b->plan->param_dtype);
		if (is_ddp(b) && !is_zero(b))
			state->reduce_input = buffer_resident(b, BUFFER_REDUCE_INPUT, u,
				unit->elements * dtype_bytes(master), master);
	}
	if (is_zero(b))
		zero_build_resident(b);
	if (is_zero3(b))
		zero3_build_resident(b);
	b->kernel_workspace = workspace > 0 ? buffer_resident(b, BUFFER_KERNEL_WORKSPACE, -1,
						      workspace, DTYPE_INT8)
					    : -1;
	b->n_resident = b->n_buffers;
}

/* --- one step ------------------------------------------------------------------------------------
 */

static void reset_unit(struct unit_state *state, bool is_low_precision_kept)
{
	state->gathered = state->resharded = state->staged = -1;
	state->gradient = state->host_gradient = -1;
	state->gradient_shard = state->kept_gradient_shard;
	if (!is_low_precision_kept)
		state->low_precision = -1;
	state->n_range_gradients = 0;
	state->prefetched = false;
	state->reduced = no_ref();
	state->unsharded = state->kept;
	if (state->kept < 0)
		state->ready = no_ref();
}

static void fill(int *items, int n)
{
	for (int i = 0; i < n; i++)
		items[i] = -1;
}

static void step_begin(struct builder *b, int step)
{
	b->step = step;
	b->n_ops = 0;
	b->indices.n = 0;
	b->n_buffers = b->n_resident;
	b->implicit_gathered = b->reduce_input_in_flight = -1;
	b->copied_out = b->gathers_after = no_ref();
	b->delayed_post_backward = -1;
	b->tokens = b->logits = b->backward_work = -1;
	if (is_zero(b))
		b->collector = -1;
	b->reduce_in_flight = no_ref();
	for (int u = 0; u < b->n_units; u++)
		reset_unit(&b->units[u], is_zero3(b));
	fill(b->saved, b->n_events);
	fill(b->results, b->n_events);
	fill(b->copies, b->n_events);
	fill(b->range_gradients, b->n_events);
}

static void forward_event(struct builder *b, int index)
{
	const struct event *event = &b->events[index];
	switch (event->kind) {
	case EVENT_ENTER:
		gather_pre_forward(b, event->unit);
		break;
	case EVENT_RANGE:
		forward_range(b, index);
		break;
	case EVENT_EXIT:
		gather_post_forward(b, event->unit);
		break;
	}
}

static void micro_batch(struct builder *b, int index)
{
	b->micro_batch = index;
	b->last_micro_batch = index == b->plan->grad_accum - 1;
	b->synchronise = b->last_micro_batch || b->plan->sync_each_micro_batch;
	b->in_backward = false;
	zero3_begin(b);
	for (int i = 0; i < b->n_events; i++)
		forward_event(b, i);
	loss(b);
	b->in_backward = true;
	for (int u = 0; u < b->n_units; u++)
		b->units[u].backward_began = false;
	for (int i = b->n_events - 1; i >= 0; i--)
		backward_event(b, i);
	if (is_ddp(b))
		ddp_finish_backward(b);
	end_backward(b);
}

/* Every operation of a step is known after the first, which is all that stream order needs; what
 * the limiter or ZeRO-3's trace makes of a step takes one more. */
static int steps_until_steady(const struct builder *b)
{
	return b->plan->limit_all_gathers || is_zero(b) || is_zero3(b) ? 3 : 2;
}

static void emit_steps(struct builder *b)
{
	int steps = steps_until_steady(b);
	for (int step = 0; step < steps; step++) {
		step_begin(b, step);
		for (int i = 0; i < b->plan->grad_accum; i++)
			micro_batch(b, i);
		optimizer_step(b);
	}
}

/* --- the result ----------------------------------------------------------------------------------
 */

static void *keep(struct builder *b, const void *items, int n, size_t size)
{
	void *copy = arena_alloc(b->arena, (size_t)n, size);
	if (n > 0)
		memcpy(copy, items, (size_t)n * size);
	return copy;
}

static void finish(struct builder *b)
{
	struct program *program = ARENA_NEW(b->arena, struct program);
	for (int i = 0; i < b->indices.n; i++)
		if (b->indices.items[i] < -PREVIOUS_STEP / 2)
			b->indices.items[i] += PREVIOUS_STEP - b->n_ops;
	program->n_ops = b->n_ops;
	program->ops = keep(b, b->ops, b->n_ops, sizeof(struct op));
	program->n_buffers = b->n_buffers;
	program->buffers = keep(b, b->buffers, b->n_buffers, sizeof(struct buffer));
	program->n_indices = b->indices.n;
	program->indices = keep(b, b->indices.items, b->indices.n, sizeof(int));
	b->schedule->n_classes = 1;
	b->schedule->programs = program;
}

static void builder_finish(struct builder *b)
{
	for (int u = 0; u < b->n_units; u++)
		free(b->units[u].range_gradients);
	free(b->ops);
	free(b->buffers);
	free(b->indices.items);
	free(b->waits.items);
	free(b->host_waits.items);
	free(b->takes.items);
	free(b->gives.items);
	free(b->uses.items);
	free(b->pending_host_waits.items);
	free(b->limiter);
	free(b->zero3.trace.items);
	free(b->zero3.bucket.items);
}

static void builder_init(struct builder *b, struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology)
{
	*b = (struct builder){.arena = arena, .plan = plan, .model = model, .topology = topology};
	b->schedule = ARENA_NEW(arena, struct schedule);
	*b->schedule = (struct schedule){
		.arena = arena, .plan = *plan, .model = model, .topology = topology};
	b->plan = &b->schedule->plan;
	b->runtime = runtime_of(plan->runtime);
	b->rules = plan_activation_rules(plan);
	b->shards = strategy_shards(plan->strategy);
	b->casts = plan->param_dtype != plan->master_dtype;
	b->checkpointing = ARENA_ARRAY(arena, enum checkpointing, model->architecture.layers);
	for (int64_t l = 0; l < model->architecture.layers; l++)
		b->checkpointing[l] = plan_block_checkpointing(plan, l);
	b->optimizer = b->whole_ready = no_ref();
	for (int s = 0; s < STREAM_COUNT; s++)
		b->last_on_stream[s] = no_ref();
	b->n_units = is_ddp(b) ? buckets_build(plan, model, arena, &b->schedule->units)
			       : units_build(plan, model, arena, &b->schedule->units);
	b->schedule->n_units = b->n_units;
	b->units = ARENA_ARRAY(arena, struct unit_state, b->n_units);
	b->residuals = ARENA_ARRAY(arena, int, model->architecture.layers + 2);
	build_walk(b);
	b->saved = ARENA_ARRAY(arena, int, b->n_events);
	b->saved_bytes = ARENA_ARRAY(arena, int64_t, b->n_events);
	for (int i = 0; i < b->n_events; i++)
		b->saved_bytes[i] = -1;
	b->results = ARENA_ARRAY(arena, int, b->n_events);
	b->copies = ARENA_ARRAY(arena, int, b->n_events);
	b->range_gradients = ARENA_ARRAY(arena, int, b->n_events);
	if (is_ddp(b))
		ddp_prepare(b);
}

struct schedule *schedule_emit(struct arena *arena, const struct plan *plan,
	const struct model *model, const struct topology *topology)
{
	struct builder b;
	builder_init(&b, arena, plan, model, topology);
	build_groups(&b);
	build_resident(&b);
	emit_steps(&b);
	finish(&b);
	builder_finish(&b);
	return b.schedule;
}

bool schedule_build(struct arena *arena, const struct plan *plan, const struct model *model,
	const struct topology *topology, struct schedule **schedule, struct error *error)
{
	*schedule = schedule_emit(arena, plan, model, topology);
	return schedule_validate(*schedule, error);
}
