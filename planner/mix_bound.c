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

/* --- tables --------------------------------------------------------------------------------------
 */

static void add_blocks(
	struct mix_cell *cell, int layers, const struct load_row *none, const struct load_row *full)
{
	for (int k = 0; k <= cell->blocks; k++) {
		const struct load_row *rest = none + layers, *other = full + layers;
		cell->compute[k] = fmin(rest->compute, other->compute);
		cell->arithmetic[k] = fmax(rest->arithmetic, other->arithmetic);
		cell->saved[k] = min_i64(rest->saved, other->saved);
		for (int b = 0; b < layers; b++) {
			const struct load_row *row = b < k ? &full[b] : &none[b];
			cell->compute[k] += row->compute;
			cell->arithmetic[k] += row->arithmetic;
			cell->saved[k] += row->saved;
		}
	}
}

static bool fill_loads(struct mix_probes *probes, struct mix_cell *cell, struct error *error)
{
	struct plan plan = cell->plan;
	const struct load_probe *none, *full;
	plan.activation_checkpointing = checkpointing_names[CHECKPOINTING_NONE];
	if (!mix_probe_load(probes, &plan, &none, error))
		return false;
	full = none;
	plan.activation_checkpointing = checkpointing_names[CHECKPOINTING_FULL];
	if (cell->blocks > 0 && !mix_probe_load(probes, &plan, &full, error))
		return false;
	add_blocks(cell, (int)probes->question->model->architecture.layers, none->rows, full->rows);
	return true;
}

static struct work least_work(const struct work *a, const struct work *b)
{
	struct work least = {fmin(a->compute, b->compute), {0}, 0};
	for (int e = 0; e < ENGINES_MAX; e++)
		least.engines[e] = fmin(a->engines[e], b->engines[e]);
	return least;
}

static struct work work_of_step(const struct plan *plan, const struct shape_row *row)
{
	double middle = fmax(0, (double)plan->grad_accum - 2);
	struct work work = {row->rest.compute + middle * row->middle.compute, {0}, 0};
	for (int e = 0; e < ENGINES_MAX; e++)
		work.engines[e] = row->rest.engines[e] + middle * row->middle.engines[e];
	return work;
}

/* A shape_probe for a cell's own number of micro-batches. */
struct shape {
	int n;
	const int *places;
	struct unit_work {
		struct work work; /* s per step */
		int64_t kept;
	} * units;
	int64_t at_end, fixed;
	double multiprocessors[ENGINES_MAX];
};

static void shape_of(const struct plan *plan, const struct shape_probe *probe, struct arena *arena,
	struct shape *shape)
{
	*shape = (struct shape){probe->n, probe->places, NULL, probe->at_end, probe->fixed, {0}};
	memcpy(shape->multiprocessors, probe->multiprocessors, sizeof(shape->multiprocessors));
	if (probe->rows == NULL)
		return;
	shape->units = ARENA_ARRAY(arena, struct unit_work, probe->n + 1);
	for (int u = 0; u <= probe->n; u++)
		shape->units[u] = (struct unit_work){
			work_of_step(plan, &probe->rows[u]), probe->rows[u].kept};
}

static void merge(const struct plan *plan, struct shape *into, const struct shape_probe *other)
{
	for (int u = 0; u <= into->n && into->units != NULL; u++) {
		struct work work = work_of_step(plan, &other->rows[u]);
		into->units[u].work = least_work(&into->units[u].work, &work);
		into->units[u].kept = min_i64(into->units[u].kept, other->rows[u].kept);
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
static bool find_shape(struct mix_probes *probes, const struct mix_cell *cell, bool keeps,
	struct arena *arena, struct shape *shape, struct error *error)
{
	struct plan plan = cell->plan;
	const struct shape_probe *none, *full;
	if (keeps) {
		plan.strategy = keeping(plan.strategy);
		plan.reshard_after_forward = "false";
	}
	if (!mix_probe_shape(probes, &plan, &none, error))
		return false;
	shape_of(&cell->plan, none, arena, shape);
	if (cell->blocks == 0)
		return true;
	plan.activation_checkpointing = checkpointing_names[CHECKPOINTING_FULL];
	if (!mix_probe_shape(probes, &plan, &full, error))
		return false;
	if (full->n != none->n || full->rows == NULL)
		*shape = (struct shape){0};
	else
		merge(&cell->plan, shape, full);
	return true;
}

static void add_unit(struct mix_cell *cell, int m, const struct unit_work *unit)
{
	cell->moved[m].compute += unit->work.compute;
	for (int e = 0; e < ENGINES_MAX; e++)
		cell->moved[m].engines[e] += unit->work.engines[e];
	cell->kept[m] += unit->kept;
}

/* `reshards` becomes the least of both where a unit keeps its parameters anyway. */
static void fill_moved(struct mix_cell *cell, struct shape *reshards, const struct shape *keeps)
{
	for (int u = 0; u <= reshards->n && cell->units > 0; u++) {
		struct unit_work *unit = &reshards->units[u];
		if (u < reshards->n && reshards->places[u] >= 0)
			continue;
		unit->work = least_work(&unit->work, &keeps->units[u].work);
		unit->kept = min_i64(unit->kept, keeps->units[u].kept);
	}
	for (int m = 0; m < max_i64(cell->units, 1); m++) {
		for (int u = 0; u <= reshards->n; u++) {
			int place = u < reshards->n ? reshards->places[u] : -1;
			bool kept = m > 0 && place >= 0 && place >= cell->units - m;
			add_unit(cell, m, kept ? &keeps->units[u] : &reshards->units[u]);
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

static bool fill_shapes(
	struct mix_probes *probes, struct mix_cell *cell, struct arena *arena, struct error *error)
{
	struct shape reshards, keeps = {0};
	if (!find_shape(probes, cell, false, arena, &reshards, error) ||
		(cell->units > 0 && !find_shape(probes, cell, true, arena, &keeps, error)))
		return false;
	if (keeps.n != reshards.n || keeps.units == NULL)
		cell->units = 0;
	if (reshards.units != NULL)
		fill_moved(cell, &reshards, &keeps);
	return true;
}

bool mix_cell_build(struct mix_probes *probes, const struct plan *plan, bool checkpoints,
	bool reshards, struct arena *arena, struct mix_cell *cell, struct error *error)
{
	const struct question *question = probes->question;
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
	return (fill_loads(probes, cell, &mine) && fill_shapes(probes, cell, arena, &mine)) ||
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
