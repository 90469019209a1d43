/* Small schedules read block by block and unit by unit, built once for plans that are alike. */
#include "planner/mixed/probe.h"

#include <math.h>
#include <stdlib.h>

/* --- loads, by block -----------------------------------------------------------------------------
 */

static struct load_row *row_of(struct load_row *rows, int blocks, int layer)
{
	return &rows[layer >= 0 && layer < blocks ? layer : blocks];
}

static int last_loss(const struct program *program)
{
	int loss = -1;
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == OP_LOSS)
			loss = i;
	return loss;
}

static void add_load(const struct schedule *schedule, const struct cost *costs, struct arena *arena,
	int blocks, struct load_row *rows)
{
	const struct program *program = &schedule->programs[0];
	struct touches *touches = bound_touches(program, arena);
	const double *issue = bound_issue(schedule, costs, arena);
	int loss = last_loss(program);
	for (int i = 0; i < program->n_ops; i++) {
		struct load_row *row = row_of(rows, blocks, program->ops[i].layer);
		if (op_kind_class(program->ops[i].kind) != OP_CLASS_COMPUTE)
			continue;
		row->compute += costs[i].device;
		row->issue += bound_issue_of_load(schedule, &program->ops[i], issue[i]);
		bound_add_cover(&costs[i], row->cover);
	}
	for (int i = 0; i < program->n_buffers; i++) {
		const struct buffer *buffer = &program->buffers[i];
		if (bound_is_load(buffer) && !buffer_in_host(buffer) && touches[i].first <= loss &&
			loss <= touches[i].last)
			row_of(rows, blocks, buffer->layer)->saved += buffer->bytes;
	}
}

static bool probe_load(struct mix_probes *probes, const struct plan *plan, struct load_probe *probe,
	struct error *error)
{
	int layers = (int)probes->question->model->architecture.layers;
	struct schedule *schedule;
	struct cost *costs;
	probe->rows = ARENA_ARRAY(&probes->arena, struct load_row, layers + 1);
	if (!bound_probe(probes->question, &probes->scratch, plan, plan->micro_batch, 1, &schedule,
		    &costs, error))
		return false;
	if (schedule == NULL)
		return true;
	probe->edges = bound_edges(&schedule->programs[0], costs);
	add_load(schedule, costs, &probes->scratch, layers, probe->rows);
	return true;
}

/* --- shapes, by unit -----------------------------------------------------------------------------
 */

static struct work *work_of(struct shape_row *row, bool middle)
{
	return middle ? &row->middle : &row->rest;
}

/* The part of its stream's elements that a unit has: what the end of a step takes for it. */
static double share_of(const struct schedule *schedule, enum stream stream, int unit)
{
	int64_t total = 0;
	for (int u = 0; u < schedule->n_units; u++)
		if ((schedule->units[u].offload != OFFLOAD_NONE) == (stream == STREAM_HOST))
			total += schedule->units[u].chunk;
	bool mine = (schedule->units[unit].offload != OFFLOAD_NONE) == (stream == STREAM_HOST);
	return mine && total > 0 ? (double)schedule->units[unit].chunk / (double)total : 0;
}

/* One operation updates all units of its stream. It takes at least as long as the sum of its
 * parts would: what takes a part of the bytes takes no less than that part of the time. */
static void add_update(struct shape_probe *probe, const struct schedule *schedule,
	const struct op *op, const struct work *work)
{
	double left = 1;
	for (int u = 0; u < probe->n; u++) {
		double share = share_of(schedule, op->stream, u);
		work_add(&probe->rows[u].rest, work, share);
		left -= share;
	}
	work_add(&probe->rows[probe->n].rest, work, left > 0.5 ? 1 : 0); /* of no unit */
}

/* What stands still belongs to no unit: it is the same whichever are kept. */
static void add_shape_operation(struct shape_probe *probe, const struct schedule *schedule,
	int index, const struct cost *cost, double issue, const struct bound_pauses *pauses)
{
	const struct op *op = &schedule->programs[0].ops[index];
	enum op_class class = op_kind_class(op->kind);
	bool middle = op->micro_batch > 0 && op->micro_batch < (int)schedule->plan.grad_accum - 1;
	struct work work = {.stalls = pauses->host[index],
		.alone = pauses->host[index],
		.issue = class == OP_CLASS_COMPUTE ? 0 : issue};
	bound_add_copy(op, cost, &work);
	work_of(&probe->rows[probe->n], middle)->stalls += pauses->stalls[index];
	if (class == OP_CLASS_COLLECTIVE) {
		int engine = schedule->groups[op->group].engine;
		if (engine >= ENGINES_MAX || cost->device <= 0)
			return;
		probe->communication.multiprocessors[engine] =
			fmin(probe->communication.multiprocessors[engine], cost->multiprocessors);
		work.engines[engine] = cost->device;
	} else if (class != OP_CLASS_COMPUTE && op->stream == STREAM_COMPUTE) {
		work.compute = cost->device;
		if (bound_hides(pauses, op))
			work.cover = cost->device;
		else
			work.alone = cost->device;
	}
	if (op->unit < 0 && bound_is_update(op->kind))
		add_update(probe, schedule, op, &work);
	else
		work_add(work_of(&probe->rows[op->unit >= 0 ? op->unit : probe->n], middle), &work,
			1);
}

static bool is_of_reductions(enum stream pool)
{
	return pool == STREAM_REDUCE || pool == STREAM_REPLICATE;
}

/* What pools hold at least, of which `kept` is there at the loss. Reductions do not depend on what
 * is prefetched; of gathers it is sure that each is there once. */
static void add_pools(
	struct shape_probe *probe, const struct program *program, const int64_t kept[STREAM_COUNT])
{
	struct bound_pools pools = bound_pools(program);
	for (int s = 0; s < STREAM_COUNT; s++) {
		if (s == STREAM_COMPUTE || s == STREAM_HOST)
			continue;
		if (is_of_reductions((enum stream)s))
			probe->reduced += max_i64(kept[s], pools.peaks[s]);
		else
			probe->apart += max_i64(kept[s], pools.largest[s]);
	}
}

/* A buffer of the optimizer's: of its unit, or of all units whose elements it works on. */
static void add_at_end(
	struct shape_probe *probe, const struct schedule *schedule, const struct buffer *buffer)
{
	if (buffer->unit >= 0 || buffer->role != BUFFER_OPTIMIZER_WORK) {
		probe->rows[buffer->unit >= 0 ? buffer->unit : probe->n].at_end += buffer->bytes;
		return;
	}
	for (int u = 0; u < probe->n; u++) {
		double share = share_of(schedule, STREAM_COMPUTE, u);
		int64_t bytes = (int64_t)(share * (1 - 1e-9) * (double)buffer->bytes);
		probe->rows[u].at_end += bytes;
	}
}

static int first_update(const struct program *program)
{
	for (int i = 0; i < program->n_ops; i++)
		if (program->ops[i].kind == OP_OPTIMIZER)
			return i;
	return -1;
}

static void add_shape_memory(
	struct shape_probe *probe, const struct schedule *schedule, struct arena *arena)
{
	const struct program *program = &schedule->programs[0];
	struct touches *touches = bound_touches(program, arena);
	bool pools = bound_has_pools(schedule->topology, &schedule->plan);
	int64_t kept[STREAM_COUNT] = {0};
	int loss = last_loss(program), end = first_update(program);
	for (int i = 0; i < program->n_buffers; i++) {
		const struct buffer *b = &program->buffers[i];
		struct shape_row *row = &probe->rows[b->unit >= 0 ? b->unit : probe->n];
		if (touches[i].first > touches[i].last || buffer_in_host(b))
			continue;
		bool there =
			bound_is_kept(b) && touches[i].first <= loss && loss <= touches[i].last;
		bool ends = touches[i].first <= end && end <= touches[i].last;
		if (there && pools && b->pool != STREAM_COMPUTE)
			kept[b->pool] += b->bytes;
		else if (there)
			row->kept += b->bytes;
		if (ends && pools && is_of_reductions(b->pool))
			row->held += b->bytes;
		if (ends && !bound_is_load(b))
			add_at_end(probe, schedule, b);
	}
	if (pools)
		add_pools(probe, program, kept);
}

static void place_units(struct shape_probe *probe, const struct schedule *schedule)
{
	int place = 0, host_place = 0;
	for (int u = 0; u < probe->n; u++) {
		bool has = schedule->units[u].parameters > 0;
		probe->places[u] = u > 0 && has ? place++ : -1;
		probe->host_places[u] = has ? host_place++ : -1;
	}
}

static bool probe_shape(struct mix_probes *probes, const struct plan *plan,
	struct shape_probe *probe, struct error *error)
{
	struct schedule *schedule;
	struct cost *costs;
	struct plan usual = bound_usual(plan);
	if (!bound_probe(probes->question, &probes->scratch, &usual, 1, bound_micro_batches(plan),
		    &schedule, &costs, error) ||
		schedule == NULL)
		return error->message[0] == '\0';
	const struct program *program = &schedule->programs[0];
	probe->n = schedule->n_units;
	probe->rows = ARENA_ARRAY(&probes->arena, struct shape_row, probe->n + 1);
	probe->places = ARENA_ARRAY(&probes->arena, int, probe->n + 1);
	probe->host_places = ARENA_ARRAY(&probes->arena, int, probe->n + 1);
	struct bound_pauses pauses = bound_pauses(schedule, costs, &probes->scratch);
	probe->communication = pauses.communication;
	const double *issue = bound_issue(schedule, costs, &probes->scratch);
	for (int i = 0; i < program->n_ops; i++)
		add_shape_operation(probe, schedule, i, &costs[i], issue[i], &pauses);
	add_shape_memory(probe, schedule, &probes->scratch);
	place_units(probe, schedule);
	probe->fixed = bound_fixed_bytes(schedule);
	return true;
}

/* --- looking up ----------------------------------------------------------------------------------
 */

/* From the newest: plans that are alike follow one another. */
bool mix_probe_load(struct mix_probes *probes, const struct plan *plan,
	const struct load_probe **probe, struct error *error)
{
	struct load_probe *found;
	for (int i = probes->n_loads - 1; i >= 0; i--)
		if (bound_same_load(&probes->ignored, &probes->loads[i]->plan, plan)) {
			*probe = probes->loads[i];
			return true;
		}
	probes->loads = array_grow(probes->loads, &probes->load_capacity, probes->n_loads + 1,
		sizeof(struct load_probe *));
	*probe = found = ARENA_NEW(&probes->arena, struct load_probe);
	found->plan = *plan;
	probes->loads[probes->n_loads++] = found;
	return probe_load(probes, plan, found, error);
}

bool mix_probe_shape(struct mix_probes *probes, const struct plan *plan,
	const struct shape_probe **probe, struct error *error)
{
	struct shape_probe *found;
	for (int i = probes->n_shapes - 1; i >= 0; i--)
		if (bound_same_shape(&probes->ignored, &probes->shapes[i]->plan, plan)) {
			*probe = probes->shapes[i];
			return true;
		}
	probes->shapes = array_grow(probes->shapes, &probes->shape_capacity, probes->n_shapes + 1,
		sizeof(struct shape_probe *));
	*probe = found = ARENA_NEW(&probes->arena, struct shape_probe);
	found->plan = *plan;
	probes->shapes[probes->n_shapes++] = found;
	return probe_shape(probes, plan, found, error);
}

void mix_probes_init(struct mix_probes *probes, const struct question *question)
{
	*probes = (struct mix_probes){.question = question, .ignored = bound_ignored()};
}

void mix_probes_finish(struct mix_probes *probes)
{
	free(probes->loads);
	free(probes->shapes);
	arena_finish(&probes->arena);
	arena_finish(&probes->scratch);
}
