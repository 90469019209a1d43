/* Bounds of mixed plans, from a few small schedules: every block on one level of checkpointing,
 * everything or nothing resharded.
 *
 * What a block computes and saves depends on its own checkpointing, what a unit gathers and keeps
 * on its own resharding; the rest of the plan (embedding, head, root) is the same. So the work of a
 * mix is a sum over blocks and units, each taken from the schedule in which it has its value, and
 * the bounds of bound.c hold for these sums. Where a unit's work might depend on its blocks'
 * checkpointing, the smaller one is taken. tests/planner/test_mix.c compares with the simulator. */
#include "planner/mix.h"

#include <math.h>

#include "schedule/per_unit.h"

/* --- tables --------------------------------------------------------------------------------------
 */

enum { LEVELS = CHECKPOINTING_FULL + 1 };

/* What `n` blocks add that go from one level to another. */
static void sum_blocks(
	struct mix_load *load, int n, const struct load_row *from, const struct load_row *to)
{
	for (int k = 0; k < n; k++) {
		load->compute[k + 1] = load->compute[k] + to[k].compute - from[k].compute;
		for (int s = 0; s < SHARES; s++)
			load->cover[k + 1][s] =
				load->cover[k][s] + to[k].cover[s] - from[k].cover[s];
		load->saved[k + 1] = load->saved[k] + to[k].saved - from[k].saved;
	}
}

static void add_block(struct mix_load *load, const struct load_row *row)
{
	load->compute[0] += row->compute;
	load->saved[0] += row->saved;
	for (int s = 0; s < SHARES; s++)
		load->cover[0][s] += row->cover[s];
}

static struct bound_edges most_edges(const struct load_probe *const *levels)
{
	struct bound_edges most = levels[CHECKPOINTING_NONE]->edges;
	for (int c = 0; c < LEVELS; c++) {
		most.lead = fmax(most.lead, levels[c]->edges.lead);
		most.trail = fmax(most.trail, levels[c]->edges.trail);
	}
	return most;
}

/* Nothing checkpointed; of what lies outside of blocks what says least over all levels. */
static void sum_rest(struct mix_load *load, int layers, const struct load_probe *const *levels)
{
	const struct load_row *none = levels[CHECKPOINTING_NONE]->rows;
	struct load_row least = none[layers];
	for (int c = 0; c < LEVELS; c++) {
		const struct load_row *rest = &levels[c]->rows[layers];
		least.compute = fmin(least.compute, rest->compute);
		least.saved = min_i64(least.saved, rest->saved);
		for (int s = 0; s < SHARES; s++)
			least.cover[s] = fmax(least.cover[s], rest->cover[s]);
	}
	add_block(load, &least);
	for (int b = 0; b < layers; b++)
		add_block(load, &none[b]);
}

static bool has_level(const struct mix_cell *cell, int level)
{
	return level == CHECKPOINTING_NONE ||
	       (level == CHECKPOINTING_FULL ? cell->knobs.full : cell->knobs.selective);
}

static bool fill_loads(struct mix_probes *probes, struct mix_cell *cell, struct error *error)
{
	struct plan plan = cell->plan;
	const struct load_probe *levels[LEVELS];
	int layers = (int)probes->question->model->architecture.layers;
	for (int c = 0; c < LEVELS; c++) {
		levels[c] = levels[CHECKPOINTING_NONE];
		plan.activation_checkpointing = checkpointing_names[c];
		if (has_level(cell, c) && !mix_probe_load(probes, &plan, &levels[c], error))
			return false;
	}
	cell->edges = most_edges(levels);
	sum_rest(&cell->loads[MIX_FULL], layers, levels);
	sum_blocks(&cell->loads[MIX_FULL], cell->sizes[MIX_FULL] - 1,
		levels[CHECKPOINTING_SELECTIVE]->rows, levels[CHECKPOINTING_FULL]->rows);
	sum_blocks(&cell->loads[MIX_SOME], cell->sizes[MIX_SOME] - 1,
		levels[CHECKPOINTING_NONE]->rows, levels[CHECKPOINTING_SELECTIVE]->rows);
	return true;
}

/* What says least. */
static struct work least_work(const struct work *a, const struct work *b)
{
	struct work least = {.compute = fmin(a->compute, b->compute),
		.cover = fmax(a->cover, b->cover),
		.stalls = fmin(a->stalls, b->stalls)};
	for (int e = 0; e < ENGINES_MAX; e++)
		least.engines[e] = fmin(a->engines[e], b->engines[e]);
	return least;
}

static void add_work(struct work *sum, const struct work *work, double times)
{
	sum->compute += times * work->compute;
	sum->cover += times * work->cover;
	sum->stalls += times * work->stalls;
	for (int e = 0; e < ENGINES_MAX; e++)
		sum->engines[e] += times * work->engines[e];
}

static struct work work_of_step(const struct plan *plan, const struct shape_row *row)
{
	struct work work = row->rest;
	add_work(&work, &row->middle, fmax(0, (double)plan->grad_accum - 2));
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
	int64_t apart, at_end, fixed;
	struct bound_communication communication;
};

static void shape_of(const struct plan *plan, const struct shape_probe *probe, struct arena *arena,
	struct shape *shape)
{
	*shape = (struct shape){.n = probe->n,
		.places = probe->places,
		.apart = probe->apart,
		.at_end = probe->at_end,
		.fixed = probe->fixed,
		.communication = probe->communication};
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
	into->apart = min_i64(into->apart, other->apart);
	into->at_end = min_i64(into->at_end, other->at_end);
	into->fixed = min_i64(into->fixed, other->fixed);
	into->communication = bound_less_communication(&into->communication, &other->communication);
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
	const struct shape_probe *none, *other;
	if (keeps) {
		plan.strategy = keeping(plan.strategy);
		plan.reshard_after_forward = "false";
	}
	if (!mix_probe_shape(probes, &plan, &none, error))
		return false;
	shape_of(&cell->plan, none, arena, shape);
	for (int c = CHECKPOINTING_NONE + 1; c < LEVELS; c++) {
		if (!has_level(cell, c))
			continue;
		plan.activation_checkpointing = checkpointing_names[c];
		if (!mix_probe_shape(probes, &plan, &other, error))
			return false;
		if (other->n != shape->n || other->rows == NULL)
			*shape = (struct shape){0};
		else
			merge(&cell->plan, shape, other);
	}
	return true;
}

static void add_unit(struct mix_cell *cell, int m, const struct unit_work *unit)
{
	add_work(&cell->moved[m], &unit->work, 1);
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
	cell->apart = reshards->apart;
	cell->at_end = reshards->at_end;
	cell->fixed = reshards->fixed;
	cell->communication = reshards->communication;
	if (cell->units == 0)
		return;
	cell->apart = min_i64(cell->apart, keeps->apart);
	cell->at_end = min_i64(cell->at_end, keeps->at_end);
	cell->communication = bound_less_communication(&cell->communication, &keeps->communication);
}

static bool fill_shapes(
	struct mix_probes *probes, struct mix_cell *cell, struct arena *arena, struct error *error)
{
	struct shape reshards, keeps = {0};
	if (!find_shape(probes, cell, false, arena, &reshards, error) ||
		(cell->units > 0 && !find_shape(probes, cell, true, arena, &keeps, error)))
		return false;
	if (cell->units > 0 && (keeps.n != reshards.n || keeps.units == NULL)) {
		cell->units = 0;
		cell->knobs.reshards = false;
	}
	cell->sizes[MIX_UNITS] = (int)max_i64(cell->units, 1);
	if (reshards.units != NULL)
		fill_moved(cell, &reshards, &keeps);
	return true;
}

static struct mix_load new_load(struct arena *arena, int n)
{
	return (struct mix_load){.compute = ARENA_ARRAY(arena, double, n),
		.cover = arena_alloc(arena, (size_t)n, sizeof(double[SHARES])),
		.saved = ARENA_ARRAY(arena, int64_t, n)};
}

bool mix_cell_build(struct mix_probes *probes, const struct plan *plan,
	const struct mix_knobs *knobs, struct arena *arena, struct mix_cell *cell,
	struct error *error)
{
	const struct question *question = probes->question;
	int layers = (int)question->model->architecture.layers;
	bool root;
	struct error mine = {0};
	int64_t units = plan_units(plan, question->model, &root) - (root ? 1 : 0);
	*cell = (struct mix_cell){.plan = *plan,
		.knobs = *knobs,
		.blocks = knobs->full ? layers : 0,
		.units = knobs->reshards ? (int)units : 0};
	cell->sizes[MIX_FULL] = cell->blocks + 1;
	cell->sizes[MIX_SOME] = knobs->selective ? layers + 1 : 1;
	cell->sizes[MIX_UNITS] = (int)max_i64(cell->units, 1);
	for (int c = MIX_FULL; c <= MIX_SOME; c++)
		cell->loads[c] = new_load(arena, cell->sizes[c]);
	cell->moved = ARENA_ARRAY(arena, struct work, cell->units + 1);
	cell->kept = ARENA_ARRAY(arena, int64_t, cell->units + 1);
	return (fill_loads(probes, cell, &mine) && fill_shapes(probes, cell, arena, &mine)) ||
	       error_set(error, mine.code, "%s", mine.message);
}

/* --- bounds --------------------------------------------------------------------------------------
 */

#define ROUNDING (1 - 1e-9) /* sums in another order than the simulator's */

/* A row of the programme is the sum of what a step has of these, each times its weight. */
struct weights {
	double compute, stalls, cover, engines[ENGINES_MAX];
	int share; /* of cover */
};

static double work_sum(const struct weights *weights, const struct work *work)
{
	double sum = weights->compute * work->compute + weights->stalls * work->stalls +
		     weights->cover * work->cover;
	for (int e = 0; e < ENGINES_MAX; e++)
		sum += weights->engines[e] * work->engines[e];
	return sum;
}

static void add_row(const struct mix_cell *cell, const struct weights *weights, double constant,
	struct arena *arena, struct programme *p)
{
	struct programme_row *row = &p->rows[p->n_rows++];
	double n = (double)cell->plan.grad_accum;
	row->constant = constant;
	for (int c = MIX_FULL; c <= MIX_SOME; c++) {
		const struct mix_load *load = &cell->loads[c];
		double *term = ARENA_ARRAY(arena, double, p->sizes[c]);
		for (int k = 0; k < p->sizes[c]; k++)
			term[k] = n * (weights->compute * load->compute[k] +
					      weights->cover * load->cover[k][weights->share]);
		row->term[c] = term;
	}
	double *shape = ARENA_ARRAY(arena, double, p->sizes[MIX_UNITS]);
	for (int m = 0; m < p->sizes[MIX_UNITS]; m++)
		shape[m] = work_sum(weights, &cell->moved[m]);
	row->term[MIX_UNITS] = shape;
}

/* (3) for the engines of a set, and one share. */
static struct weights contention_weights(const double losses[ENGINES_MAX], unsigned set, int share)
{
	struct weights weights = {.compute = 1, .stalls = 1, .share = share};
	double all = 0;
	for (int e = 0; e < ENGINES_MAX; e++) {
		if (!(set >> e & 1))
			continue;
		weights.engines[e] = bound_loss_beside(losses[e], bound_shares[share]);
		weights.stalls -= weights.engines[e];
		all += losses[e];
	}
	weights.cover = -bound_loss_beside(fmin(all, 0.5), bound_shares[share]);
	return weights;
}

/* Of the mix that checkpoints nothing and keeps nothing. */
static double value_there(const struct mix_cell *cell, const struct weights *weights)
{
	const struct mix_load *load = &cell->loads[MIX_FULL];
	return work_sum(weights, &cell->moved[0]) +
	       (double)cell->plan.grad_accum * weights->cover * load->cover[0][weights->share];
}

/* With the share that says most about that mix: the others' are alike. */
static void add_contention(const struct mix_cell *cell, const double losses[ENGINES_MAX],
	unsigned set, double edges, struct arena *arena, struct programme *p)
{
	struct weights best = contention_weights(losses, set, 0);
	for (int share = 1; share < SHARES; share++) {
		struct weights weights = contention_weights(losses, set, share);
		if (value_there(cell, &weights) + weights.stalls * edges >
			value_there(cell, &best) + best.stalls * edges)
			best = weights;
	}
	add_row(cell, &best, best.stalls * edges, arena, p);
}

/* (1) to (3) of bound.c. */
static void fill_rows(const struct topology *topology, const struct mix_cell *cell,
	struct arena *arena, struct programme *p)
{
	double edges = bound_edge_stalls(&cell->edges, &cell->communication);
	double losses[ENGINES_MAX];
	unsigned all = 0;
	add_row(cell, &(struct weights){.compute = 1, .stalls = 1}, edges, arena, p);
	for (int e = 0; e < ENGINES_MAX; e++) {
		struct weights engine = {0};
		losses[e] = bound_loss(topology, cell->communication.multiprocessors[e]);
		if (!isfinite(cell->communication.multiprocessors[e]))
			continue; /* no collective */
		engine.engines[e] = 1;
		add_row(cell, &engine, cell->communication.idle[e], arena, p);
		if (losses[e] <= 0)
			continue;
		add_contention(cell, losses, 1u << e, edges, arena, p);
		if (cell->moved[0].engines[e] > cell->moved[0].stalls + edges)
			all |= 1u << e;
	}
	if (all & (all - 1))
		add_contention(cell, losses, all, edges, arena, p);
}

void mix_programme(const struct topology *topology, const struct mix_cell *cell, int64_t limit,
	struct arena *arena, struct programme *programme)
{
	*programme = (struct programme){.n_groups = MIX_CHOICES,
		.sizes = {cell->sizes[MIX_FULL], cell->sizes[MIX_SOME], cell->sizes[MIX_UNITS]},
		.bytes = {cell->loads[MIX_FULL].saved, cell->loads[MIX_SOME].saved, cell->kept},
		.capacity = limit - cell->fixed - cell->apart,
		.ordered = cell->knobs.selective};
	fill_rows(topology, cell, arena, programme);
}

struct bound mix_bound(
	const struct topology *topology, const struct mix_cell *cell, const int mix[MIX_CHOICES])
{
	struct arena arena = {0};
	struct programme programme;
	mix_programme(topology, cell, 0, &arena, &programme);
	struct bound bound = {.time = programme_objective(&programme, mix) * ROUNDING,
		.memory = max_i64(programme_bytes(&programme, mix) + cell->apart, cell->at_end) +
			  cell->fixed};
	arena_finish(&arena);
	return bound;
}

struct plan mix_plan(const struct mix_cell *cell, const int mix[MIX_CHOICES], struct arena *arena)
{
	struct plan plan = cell->plan;
	enum checkpointing *row = ARENA_ARRAY(arena, enum checkpointing, cell->blocks);
	for (int b = 0; b < cell->blocks; b++)
		row[b] = b < mix[MIX_FULL]   ? CHECKPOINTING_FULL
			 : b < mix[MIX_SOME] ? CHECKPOINTING_SELECTIVE
					     : CHECKPOINTING_NONE;
	if (cell->blocks > 0)
		plan.activation_checkpointing = plan_checkpointing_text(arena, row, cell->blocks);
	if (mix[MIX_UNITS] > 0)
		plan.reshard_after_forward =
			arena_printf(arena, "%dx%s+%dxfalse", cell->units - mix[MIX_UNITS],
				cell->plan.reshard_after_forward, mix[MIX_UNITS]);
	return plan;
}
