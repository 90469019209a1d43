/* Small schedules read block by block and unit by unit, built once for plans that are alike. */
#include "planner/mixed/samples.h"

#include <math.h>
#include <stdlib.h>

/* --- loads, by block -------------------------------------------------------------------------- */

static struct load_row *row_of(struct load_row *rows, int blocks, int layer)
{
	return &rows[layer >= 0 && layer < blocks ? layer : blocks];
}

static void add_load(const struct schedule *schedule, const struct cost *costs, struct arena *arena,
	int blocks, struct load_row *rows)
{
	const struct program *program = &schedule->programs[0];
	struct touches *touches = bound_touches(program, arena);
	const double *issue = bound_issue(schedule, costs, arena);
	int loss = bound_last_loss(program);
	for (int i = 0; i < program->n_ops; i++) {
		struct load_row *row = row_of(rows, blocks, program->ops[i].layer);
		if (op_kind_class(program->ops[i].kind) != OP_CLASS_COMPUTE)
			continue;
		row->compute += costs[i].device;
		row->before += i <= loss ? costs[i].device : 0;
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

static bool measure_load(struct samples *samples, const struct plan *plan,
	struct load_sample *sample, struct error *error)
{
	int layers = (int)samples->question->model->architecture.layers;
	struct sample taken;
	sample->rows = ARENA_ARRAY(&samples->arena, struct load_row, layers + 1);
	if (!bound_sample(samples->question, &samples->scratch, plan, plan->micro_batch, 1, &taken,
		    error))
		return false;
	if (taken.schedule == NULL)
		return true;
	sample->edges = bound_edges(&taken.schedule->programs[0], taken.costs);
	add_load(taken.schedule, taken.costs, &samples->scratch, layers, sample->rows);
	return true;
}

/* --- shapes, by unit -------------------------------------------------------------------------- */

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
static void add_update(struct shape_sample *sample, const struct schedule *schedule,
	const struct op *op, const struct work *work)
{
	double left = 1;
	for (int u = 0; u < sample->n; u++) {
		double share = share_of(schedule, op->stream, u);
		work_add(&sample->rows[u].rest, work, share);
		left -= share;
	}
	work_add(&sample->rows[sample->n].rest, work, left > 0.5 ? 1 : 0); /* of no unit */
}

/* What stands still belongs to no unit: it is the same whichever are kept. */
static void add_shape_operation(struct shape_sample *sample, const struct schedule *schedule,
	int index, const struct cost *cost, double issue, const struct bound_pauses *pauses)
{
	const struct op *op = &schedule->programs[0].ops[index];
	enum op_class class = op_kind_class(op->kind);
	bool middle = op->micro_batch > 0 && op->micro_batch < (int)schedule->plan.grad_accum - 1;
	struct work work = {.stalls = pauses->host[index],
		.alone = pauses->host[index],
		.issue = class == OP_CLASS_COMPUTE ? 0 : issue};
	bound_add_copy(op, cost, &work);
	work_of(&sample->rows[sample->n], middle)->stalls += pauses->stalls[index];
	if (class == OP_CLASS_COLLECTIVE) {
		int communicator = schedule->groups[op->group].engine;
		if (communicator >= COMMUNICATORS_MAX || cost->device <= 0)
			return;
		sample->communication.multiprocessors[communicator] = fmin(
			sample->communication.multiprocessors[communicator], cost->multiprocessors);
		bound_add_collective(schedule, index, cost, pauses, &work);
	} else if (class != OP_CLASS_COMPUTE && op->stream == STREAM_COMPUTE) {
		work.compute = cost->device;
		if (bound_hides(pauses, op))
			work.cover = cost->device;
		else
			work.alone = cost->device;
	}
	if (op->unit < 0 && bound_is_update(op->kind))
		add_update(sample, schedule, op, &work);
	else
		work_add(work_of(&sample->rows[op->unit >= 0 ? op->unit : sample->n], middle),
			&work, 1);
}

static bool is_of_reductions(enum stream pool)
{
	return pool == STREAM_REDUCE || pool == STREAM_REPLICATE;
}

/* What pools hold at least, of which `kept` is there at the loss. Reductions do not depend on what
 * is prefetched; of gathers it is sure that each is there once. */
static void add_pools(struct shape_sample *sample, const struct program *program,
	const int64_t kept[STREAM_COUNT])
{
	struct bound_pools pools = bound_pools(program);
	for (int s = 0; s < STREAM_COUNT; s++) {
		if (s == STREAM_COMPUTE || s == STREAM_HOST)
			continue;
		if (is_of_reductions((enum stream)s))
			sample->reduced += max_i64(kept[s], pools.peaks[s]);
		else
			sample->apart += max_i64(kept[s], pools.largest[s]);
	}
}

/* A buffer of the optimizer's: of its unit, or of all units whose elements it works on. */
static void add_at_end(
	struct shape_sample *sample, const struct schedule *schedule, const struct buffer *buffer)
{
	if (buffer->unit >= 0 || buffer->role != BUFFER_OPTIMIZER_WORK) {
		sample->rows[buffer->unit >= 0 ? buffer->unit : sample->n].at_end += buffer->bytes;
		return;
	}
	for (int u = 0; u < sample->n; u++) {
		double share = share_of(schedule, STREAM_COMPUTE, u);
		int64_t bytes = (int64_t)(share * (1 - 1e-9) * (double)buffer->bytes);
		sample->rows[u].at_end += bytes;
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
	struct shape_sample *sample, const struct schedule *schedule, struct arena *arena)
{
	const struct program *program = &schedule->programs[0];
	struct touches *touches = bound_touches(program, arena);
	bool pools = bound_has_pools(schedule->topology, &schedule->plan);
	int64_t kept[STREAM_COUNT] = {0};
	int loss = bound_last_loss(program), end = first_update(program);
	for (int i = 0; i < program->n_buffers; i++) {
		const struct buffer *b = &program->buffers[i];
		struct shape_row *row = &sample->rows[b->unit >= 0 ? b->unit : sample->n];
		if (touches[i].first > touches[i].last || buffer_in_host(b))
			continue;
		bool there =
			bound_is_kept(b) && touches[i].first <= loss && loss <= touches[i].last;
		bool ends = touches[i].first <= end && end <= touches[i].last;
		bool apart = pools && b->pool != STREAM_COMPUTE;
		if (there && apart && !is_of_reductions(b->pool))
			row->pooled += b->bytes;
		if (there && apart)
			kept[b->pool] += b->bytes;
		else if (there)
			row->kept += b->bytes;
		if (ends && pools && is_of_reductions(b->pool))
			row->held += b->bytes;
		if (ends && !bound_is_load(b))
			add_at_end(sample, schedule, b);
	}
	if (pools)
		add_pools(sample, program, kept);
}

static void place_units(struct shape_sample *sample, const struct schedule *schedule)
{
	int place = 0, host_place = 0;
	for (int u = 0; u < sample->n; u++) {
		bool has = schedule->units[u].parameters > 0;
		sample->places[u] = u > 0 && has ? place++ : -1;
		sample->host_places[u] = has ? host_place++ : -1;
	}
}

static bool measure_shape(struct samples *samples, const struct plan *plan,
	struct shape_sample *sample, struct error *error)
{
	struct sample taken;
	struct plan usual = bound_usual(plan);
	if (!bound_sample(samples->question, &samples->scratch, &usual, 1,
		    bound_micro_batches(plan), &taken, error) ||
		taken.schedule == NULL)
		return error->message[0] == '\0';
	const struct schedule *schedule = taken.schedule;
	const struct cost *costs = taken.costs;
	const struct program *program = &schedule->programs[0];
	sample->n = schedule->n_units;
	sample->rows = ARENA_ARRAY(&samples->arena, struct shape_row, sample->n + 1);
	sample->places = ARENA_ARRAY(&samples->arena, int, sample->n + 1);
	sample->host_places = ARENA_ARRAY(&samples->arena, int, sample->n + 1);
	struct bound_pauses pauses = bound_pauses(schedule, costs, &samples->scratch);
	sample->communication = pauses.communication;
	const double *issue = bound_issue(schedule, costs, &samples->scratch);
	for (int i = 0; i < program->n_ops; i++)
		add_shape_operation(sample, schedule, i, &costs[i], issue[i], &pauses);
	add_shape_memory(sample, schedule, &samples->scratch);
	place_units(sample, schedule);
	sample->fixed = bound_fixed_bytes(schedule);
	return true;
}

/* --- looking up ------------------------------------------------------------------------------- */

/* From the newest: plans that are alike follow one another. */
bool sample_load(struct samples *samples, const struct plan *plan,
	const struct load_sample **sample, struct error *error)
{
	struct load_sample *found;
	for (int i = samples->n_loads - 1; i >= 0; i--)
		if (bound_same_load(&samples->ignored, &samples->loads[i]->plan, plan)) {
			*sample = samples->loads[i];
			return true;
		}
	samples->loads = array_grow(samples->loads, &samples->load_capacity, samples->n_loads + 1,
		sizeof(struct load_sample *));
	*sample = found = ARENA_NEW(&samples->arena, struct load_sample);
	found->plan = *plan;
	samples->loads[samples->n_loads++] = found;
	return measure_load(samples, plan, found, error);
}

bool sample_shape(struct samples *samples, const struct plan *plan,
	const struct shape_sample **sample, struct error *error)
{
	struct shape_sample *found;
	for (int i = samples->n_shapes - 1; i >= 0; i--)
		if (bound_same_shape(&samples->ignored, &samples->shapes[i]->plan, plan)) {
			*sample = samples->shapes[i];
			return true;
		}
	samples->shapes = array_grow(samples->shapes, &samples->shape_capacity,
		samples->n_shapes + 1, sizeof(struct shape_sample *));
	*sample = found = ARENA_NEW(&samples->arena, struct shape_sample);
	found->plan = *plan;
	samples->shapes[samples->n_shapes++] = found;
	return measure_shape(samples, plan, found, error);
}

void samples_init(struct samples *samples, const struct question *question)
{
	*samples = (struct samples){.question = question, .ignored = bound_ignored()};
}

void samples_finish(struct samples *samples)
{
	free(samples->loads);
	free(samples->shapes);
	arena_finish(&samples->arena);
	arena_finish(&samples->scratch);
}
