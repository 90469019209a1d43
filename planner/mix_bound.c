/* Bounds of mixed plans, from four small schedules: nothing or everything checkpointed, everything
 * or nothing resharded.
 *
 * What a block computes and saves depends on its own checkpointing, what a unit gathers and keeps
 * on its own resharding; the rest of the plan (embedding, head, root) is the same. So the work of a
 * mix is a sum over blocks and units, each taken from the schedule in which it has its value, and
 * the bounds of bound.c hold for these sums. Where a unit's work might depend on its blocks'
 * checkpointing, the smaller one is taken. tests/planner/test_mix.c compares with the simulator. */
#include "planner/mix.h"

#include <math.h>
#include <string.h>

#include "schedule/per_unit.h"

/* --- loads, by block -----------------------------------------------------------------------------
 */

struct load_row {
	double compute, arithmetic;
	int64_t saved;
};

/* rows[blocks] is everything outside of blocks. */
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

static void add_load(const struct schedule *schedule, const struct cost *costs, int blocks,
	struct arena *arena, struct load_row *rows)
{
	const struct program *program = &schedule->programs[0];
	struct touches *touches = bound_touches(program, arena);
	int loss = last_loss(program);
	for (int i = 0; i < program->n_ops; i++) {
		struct load_row *row = row_of(rows, blocks, program->ops[i].layer);
		if (op_kind_class(program->ops[i].kind) != OP_CLASS_COMPUTE)
			continue;
		row->compute += costs[i].device;
		row->arithmetic += costs[i].arithmetic;
	}
	for (int i = 0; i < program->n_buffers; i++) {
		const struct buffer *buffer = &program->buffers[i];
		if (bound_is_load(buffer) && !buffer_in_host(buffer) && touches[i].first <= loss &&
			loss <= touches[i].last)
			row_of(rows, blocks, buffer->layer)->saved += buffer->bytes;
	}
}

/* --- shapes, by unit -----------------------------------------------------------------------------
 */

struct shape_row {
	struct work work;
	int64_t kept;
};

struct shape_probe {
	int n; /* units; rows[n] is everything else */
	struct shape_row *rows;
	int *places; /* of a unit among those that reshard; -1: not */
	int64_t at_end, fixed;
	double multiprocessors[ENGINES_MAX];
};

static void add_shape_operation(struct shape_probe *probe, const struct schedule *schedule,
	const struct op *op, const struct cost *cost, double times)
{
	enum op_class class = op_kind_class(op->kind);
	struct work *work = &probe->rows[op->unit >= 0 ? op->unit : probe->n].work;
	if (class == OP_CLASS_COLLECTIVE) {
		int engine = schedule->groups[op->group].engine;
		if (engine >= ENGINES_MAX || cost->device <= 0)
			return;
		probe->multiprocessors[engine] =
			fmin(probe->multiprocessors[engine], cost->multiprocessors);
		work->engines[engine] += times * cost->device;
	} else if (class != OP_CLASS_COMPUTE && op->stream == STREAM_COMPUTE) {
		work->compute += times * cost->device;
	}
}

static void add_shape_memory(
	struct shape_probe *probe, const struct program *program, struct arena *arena)
{
	struct touches *touches = bound_touches(program, arena);
	int loss = last_loss(program), end = -1;
	for (int i = 0; i < program->n_ops && end < 0; i++)
		if (program->ops[i].kind == OP_OPTIMIZER)
			end = i;
	for (int i = 0; i < program->n_buffers; i++) {
		const struct buffer *b = &program->buffers[i];
		if (touches[i].first > touches[i].last || buffer_in_host(b))
			continue;
		if (bound_is_kept(b) && touches[i].first <= loss && loss <= touches[i].last)
			probe->rows[b->unit >= 0 ? b->unit : probe->n].kept += b->bytes;
		if (!bound_is_load(b) && touches[i].first <= end && end <= touches[i].last)
			probe->at_end += b->bytes;
	}
}

static void place_units(struct shape_probe *probe, const struct schedule *schedule)
{
	int place = 0;
	for (int u = 0; u < probe->n; u++)
		probe->places[u] = u > 0 && schedule->units[u].parameters > 0 ? place++ : -1;
}

static bool probe_shape(const struct question *question, const struct plan *plan,
	struct arena *arena, struct shape_probe *probe, struct error *error)
{
	struct arena scratch = {0};
	struct schedule *schedule;
	struct cost *costs;
	int64_t probed = bound_micro_batches(plan);
	*probe = (struct shape_probe){0};
	if (!bound_probe(question, &scratch, plan, 1, probed, &schedule, &costs, error) ||
		schedule == NULL) {
		arena_finish(&scratch);
		return error->message[0] == '\0';
	}
	const struct program *program = &schedule->programs[0];
	probe->n = schedule->n_units;
	probe->rows = ARENA_ARRAY(arena, struct shape_row, probe->n + 1);
	probe->places = ARENA_ARRAY(arena, int, probe->n + 1);
	for (int e = 0; e < ENGINES_MAX; e++)
		probe->multiprocessors[e] = INFINITY;
	for (int i = 0; i < program->n_ops; i++) {
		const struct op *op = &program->ops[i];
		bool middle = op->micro_batch > 0 && op->micro_batch < (int)probed - 1;
		add_shape_operation(probe, schedule, op, &costs[i],
			middle ? (double)(plan->grad_accum - 2) : 1);
	}
	add_shape_memory(probe, program, &scratch);
	place_units(probe, schedule);
	probe->fixed = bound_fixed_bytes(schedule);
	arena_finish(&scratch);
	return true;
}

/* --- tables --------------------------------------------------------------------------------------
 */

static bool fill_loads(const struct question *question, struct mix_cell *cell, struct arena *arena,
	struct error *error)
{
	int layers = (int)question->model->architecture.layers;
	struct load_row *rows[2];
	struct arena scratch = {0};
	for (int full = 0; full < 2; full++) {
		struct plan plan = cell->plan;
		struct schedule *schedule;
		struct cost *costs;
		plan.activation_checkpointing =
			checkpointing_names[full ? CHECKPOINTING_FULL : CHECKPOINTING_NONE];
		rows[full] = ARENA_ARRAY(arena, struct load_row, layers + 1);
		if ((cell->blocks == 0 && full) ||
			!bound_probe(question, &scratch, &plan, plan.micro_batch, 1, &schedule,
				&costs, error) ||
			schedule == NULL)
			break;
		add_load(schedule, costs, layers, &scratch, rows[full]);
	}
	arena_finish(&scratch);
	for (int k = 0; k <= cell->blocks; k++) {
		const struct load_row *rest = rows[0] + layers, *other = rest;
		if (cell->blocks > 0)
			other = rows[1] + layers;
		cell->compute[k] = fmin(rest->compute, other->compute);
		cell->arithmetic[k] = fmax(rest->arithmetic, other->arithmetic);
		cell->saved[k] = min_i64(rest->saved, other->saved);
		for (int b = 0; b < layers; b++) {
			const struct load_row *row = &rows[b < k][b];
			cell->compute[k] += row->compute;
			cell->arithmetic[k] += row->arithmetic;
			cell->saved[k] += row->saved;
		}
	}
	return error->message[0] == '\0';
}

static struct work least_work(const struct work *a, const struct work *b)
{
	struct work least = {fmin(a->compute, b->compute), {0}, 0};
	for (int e = 0; e < ENGINES_MAX; e++)
		least.engines[e] = fmin(a->engines[e], b->engines[e]);
	return least;
}

static void merge(struct shape_probe *into, const struct shape_probe *other)
{
	for (int u = 0; u <= into->n; u++) {
		into->rows[u].work = least_work(&into->rows[u].work, &other->rows[u].work);
		into->rows[u].kept = min_i64(into->rows[u].kept, other->rows[u].kept);
	}
	into->at_end = min_i64(into->at_end, other->at_end);
	into->fixed = min_i64(into->fixed, other->fixed);
	for (int e = 0; e < ENGINES_MAX; e++)
		into->multiprocessors[e] =
			fmin(into->multiprocessors[e], other->multiprocessors[e]);
}

/* The strategy whose every unit keeps its parameters. */
static enum strategy keeping(enum strategy strategy)
{
	return strategy == STRATEGY_HYBRID_SHARD ? STRATEGY_HYBRID_SHARD_ZERO2
						 : STRATEGY_SHARD_GRAD_OP;
}

/* `keeps`: no unit is resharded. */
static bool probe_shapes(const struct question *question, const struct mix_cell *cell, bool keeps,
	struct arena *arena, struct shape_probe *probe, struct error *error)
{
	struct plan plan = cell->plan;
	struct shape_probe full;
	if (keeps) {
		plan.strategy = keeping(plan.strategy);
		plan.reshard_after_forward = "false";
	}
	if (!probe_shape(question, &plan, arena, probe, error))
		return false;
	if (cell->blocks == 0)
		return true;
	plan.activation_checkpointing = checkpointing_names[CHECKPOINTING_FULL];
	if (!probe_shape(question, &plan, arena, &full, error))
		return false;
	if (full.n != probe->n)
		*probe = (struct shape_probe){0};
	else
		merge(probe, &full);
	return true;
}

static void add_unit(struct mix_cell *cell, int m, const struct shape_row *row)
{
	cell->moved[m].compute += row->work.compute;
	for (int e = 0; e < ENGINES_MAX; e++)
		cell->moved[m].engines[e] += row->work.engines[e];
	cell->kept[m] += row->kept;
}

static void fill_moved(
	struct mix_cell *cell, const struct shape_probe *reshards, const struct shape_probe *keeps)
{
	for (int m = 0; m < max_i64(cell->units, 1); m++) {
		for (int u = 0; u <= reshards->n; u++) {
			int place = u < reshards->n ? reshards->places[u] : -1;
			bool kept = place >= 0 && place >= cell->units - m;
			struct shape_row row = reshards->rows[u];
			if (cell->units > 0 && place < 0) {
				row.work = least_work(&row.work, &keeps->rows[u].work);
				row.kept = min_i64(row.kept, keeps->rows[u].kept);
			}
			add_unit(cell, m, kept && m > 0 ? &keeps->rows[u] : &row);
		}
	}
	cell->at_end = reshards->at_end;
	cell->fixed = reshards->fixed;
	memcpy(cell->multiprocessors, reshards->multiprocessors, sizeof(cell->multiprocessors));
	if (cell->units == 0)
		return;
	cell->at_end = min_i64(cell->at_end, keeps->at_end);
	for (int e = 0; e < ENGINES_MAX; e++)
		cell->multiprocessors[e] =
			fmin(cell->multiprocessors[e], keeps->multiprocessors[e]);
}

static bool fill_shapes(const struct question *question, struct mix_cell *cell, struct arena *arena,
	struct error *error)
{
	struct shape_probe reshards, keeps = {0};
	if (!probe_shapes(question, cell, false, arena, &reshards, error) ||
		(cell->units > 0 && !probe_shapes(question, cell, true, arena, &keeps, error)))
		return false;
	if (cell->units > 0 && keeps.n != reshards.n)
		cell->units = 0;
	if (reshards.rows != NULL)
		fill_moved(cell, &reshards, &keeps);
	return true;
}

bool mix_cell_build(const struct question *question, const struct plan *plan, bool checkpoints,
	bool reshards, struct arena *arena, struct mix_cell *cell, struct error *error)
{
	bool root;
	struct error mine = {0};
	int64_t units = plan_units(plan, question->model, &root) - (root ? 1 : 0);
	*cell = (struct mix_cell){.plan = *plan,
		.blocks = checkpoints ? (int)question->model->architecture.layers : 0,
		.units = reshards ? (int)units : 0};
	cell->compute = ARENA_ARRAY(arena, double, cell->blocks + 1);
	cell->arithmetic = ARENA_ARRAY(arena, double, cell->blocks + 1);
	cell->saved = ARENA_ARRAY(arena, int64_t, cell->blocks + 1);
	cell->moved = ARENA_ARRAY(arena, struct work, cell->units + 1);
	cell->kept = ARENA_ARRAY(arena, int64_t, cell->units + 1);
	return (fill_loads(question, cell, arena, &mine) &&
		       fill_shapes(question, cell, arena, &mine)) ||
	       error_set(error, mine.code, "%s", mine.message);
}

/* --- bounds --------------------------------------------------------------------------------------
 */

#define ROUNDING (1 - 1e-9) /* sums in another order than the simulator's */

/* (1) and (2) of bound.c are rows of their own, (3) is one for each engine. The programme's rows
 * are the same sums; one place makes both. */
static void fill_rows(const struct topology *topology, const struct mix_cell *cell,
	struct arena *arena, struct programme *p)
{
	double n = (double)cell->plan.grad_accum;
	p->n_rows = 1 + 2 * ENGINES_MAX;
	for (int r = 0; r < p->n_rows; r++) {
		int e = (r - 1) / 2;
		bool engine = r > 0 && r % 2 == 1;
		double loss = r > 0 && !engine && isfinite(cell->multiprocessors[e])
				      ? bound_loss(topology, cell->multiprocessors[e])
				      : 0;
		double *load = ARENA_ARRAY(arena, double, p->sizes[0]);
		double *shape = ARENA_ARRAY(arena, double, p->sizes[1]);
		for (int k = 0; k < p->sizes[0]; k++)
			load[k] = engine ? 0
					 : n * (cell->compute[k] -
						       loss * (cell->compute[k] -
								      cell->arithmetic[k]));
		for (int m = 0; m < p->sizes[1]; m++)
			shape[m] =
				engine ? cell->moved[m].engines[e]
				       : (1 - loss) * cell->moved[m].compute +
						 (loss > 0 ? loss * cell->moved[m].engines[e] : 0);
		p->rows[r] = (struct programme_row){0, {load, shape}};
	}
}

void mix_programme(const struct topology *topology, const struct mix_cell *cell, int64_t limit,
	struct arena *arena, struct programme *programme)
{
	*programme = (struct programme){.n_groups = 2,
		.sizes = {cell->blocks + 1, (int)max_i64(cell->units, 1)},
		.bytes = {cell->saved, cell->kept},
		.capacity = limit - cell->fixed};
	fill_rows(topology, cell, arena, programme);
}

struct bound mix_bound(
	const struct topology *topology, const struct mix_cell *cell, int blocks, int units)
{
	struct arena arena = {0};
	struct programme programme;
	int choice[PROGRAMME_GROUPS_MAX] = {blocks, units};
	mix_programme(topology, cell, 0, &arena, &programme);
	struct bound bound = {.time = programme_objective(&programme, choice) * ROUNDING,
		.memory = max_i64(programme_bytes(&programme, choice), cell->at_end) + cell->fixed};
	arena_finish(&arena);
	return bound;
}

struct plan mix_plan(const struct mix_cell *cell, int blocks, int units, struct arena *arena)
{
	struct plan plan = cell->plan;
	if (blocks > 0)
		plan.activation_checkpointing =
			blocks == cell->blocks ? checkpointing_names[CHECKPOINTING_FULL]
					       : arena_printf(arena, "%dx%s+%dx%s", blocks,
							 checkpointing_names[CHECKPOINTING_FULL],
							 cell->blocks - blocks,
							 checkpointing_names[CHECKPOINTING_NONE]);
	if (units > 0)
		plan.reshard_after_forward =
			arena_printf(arena, "%dxtrue+%dxfalse", cell->units - units, units);
	return plan;
}
