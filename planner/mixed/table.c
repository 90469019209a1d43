/* What the bounds of mixed plans are sums of, from a few small schedules: every block on one level
 * of checkpointing, everything or nothing resharded, everything or nothing offloaded.
 *
 * What a block computes and saves depends on its own checkpointing, what a unit gathers and keeps
 * on its own resharding and offload; the rest of the plan (embedding, head, root) is the same. So
 * the work of a mix is a sum over blocks and units, each taken from the schedule in which it has
 * its value, and the bounds of bound.c hold for these sums. Where a unit's work might depend on its
 * blocks' checkpointing, the smaller one is taken.
 *
 * Of a unit that is resharded or kept, on the device or not, the sum is w(resharded, device) and
 * what offload adds to it, w(resharded, host) - w(resharded, device), and what keeping adds, the
 * smaller one of w(kept, .) - w(resharded, .): never more than what the unit does.
 *
 * Host and device update at different times, the host while nothing else runs (bound.c): a part of
 * the units takes at least its part of what all take. The pools of reductions peak at some
 * operation when all stay; there a unit on the host lacks no more than its reduced gradients.
 * tests/planner/test_mix.c compares with the simulator. */
#include "planner/mixed/mix.h"

#include <math.h>

#include "schedule/plan/plan.h"
#include "schedule/resolve/resolve.h"

/* --- tables ----------------------------------------------------------------------------------- */

enum { LEVELS = CHECKPOINTING_FULL + 1 };

/* What `n` blocks add that go from one level to another. */
static void sum_blocks(
	struct mix_load *load, int n, const struct load_row *from, const struct load_row *to)
{
	for (int k = 0; k < n; k++) {
		load->compute[k + 1] = load->compute[k] + to[k].compute - from[k].compute;
		load->issue[k + 1] = load->issue[k] + to[k].issue - from[k].issue;
		load->before[k + 1] = load->before[k] + to[k].before - from[k].before;
		for (int s = 0; s < SHARES; s++)
			load->cover[k + 1][s] =
				load->cover[k][s] + to[k].cover[s] - from[k].cover[s];
		load->saved[k + 1] = load->saved[k] + to[k].saved - from[k].saved;
	}
}

static void add_block(struct mix_load *load, const struct load_row *row)
{
	load->compute[0] += row->compute;
	load->issue[0] += row->issue;
	load->before[0] += row->before;
	load->saved[0] += row->saved;
	for (int s = 0; s < SHARES; s++)
		load->cover[0][s] += row->cover[s];
}

static struct bound_edges most_edges(const struct load_sample *const *levels)
{
	struct bound_edges most = levels[CHECKPOINTING_NONE]->edges;
	for (int c = 0; c < LEVELS; c++) {
		most.lead = fmax(most.lead, levels[c]->edges.lead);
		most.trail = fmax(most.trail, levels[c]->edges.trail);
	}
	return most;
}

/* Nothing checkpointed; of what is outside of blocks the least over all levels. */
static void sum_rest(struct mix_load *load, int layers, const struct load_sample *const *levels)
{
	const struct load_row *none = levels[CHECKPOINTING_NONE]->rows;
	struct load_row least = none[layers];
	for (int c = 0; c < LEVELS; c++) {
		const struct load_row *rest = &levels[c]->rows[layers];
		least.compute = fmin(least.compute, rest->compute);
		least.issue = fmin(least.issue, rest->issue);
		least.before = fmin(least.before, rest->before);
		least.saved = min_i64(least.saved, rest->saved);
		for (int s = 0; s < SHARES; s++)
			least.cover[s] = fmax(least.cover[s], rest->cover[s]);
	}
	add_block(load, &least);
	for (int b = 0; b < layers; b++)
		add_block(load, &none[b]);
}

static bool has_level(const struct subproblem *subproblem, int level)
{
	return level == CHECKPOINTING_NONE ||
	       (level == CHECKPOINTING_FULL ? subproblem->knobs.full : subproblem->knobs.selective);
}

static bool fill_loads(struct samples *samples, struct subproblem *subproblem, struct error *error)
{
	struct plan plan = subproblem->plan;
	const struct load_sample *levels[LEVELS];
	int layers = (int)samples->question->model->architecture.layers;
	for (int c = 0; c < LEVELS; c++) {
		levels[c] = levels[CHECKPOINTING_NONE];
		if (c != CHECKPOINTING_NONE) /* there it is the plan's own */
			plan.activation_checkpointing =
				rows_of_checkpointing((enum checkpointing)c);
		if (has_level(subproblem, c) && !sample_load(samples, &plan, &levels[c], error))
			return false;
	}
	subproblem->edges = most_edges(levels);
	sum_rest(&subproblem->loads[MIX_FULL], layers, levels);
	sum_blocks(&subproblem->loads[MIX_FULL], subproblem->sizes[MIX_FULL] - 1,
		levels[CHECKPOINTING_SELECTIVE]->rows, levels[CHECKPOINTING_FULL]->rows);
	sum_blocks(&subproblem->loads[MIX_SOME], subproblem->sizes[MIX_SOME] - 1,
		levels[CHECKPOINTING_NONE]->rows, levels[CHECKPOINTING_SELECTIVE]->rows);
	return true;
}

static struct work work_of_step(const struct plan *plan, const struct shape_row *row)
{
	struct work work = row->rest;
	work_add(&work, &row->middle, fmax(0, (double)plan->grad_accum - 2));
	return work;
}

/* A shape_sample for a subproblem's own number of micro-batches, over all levels of checkpointing.
 */
struct shape {
	int n;
	const int *places, *host_places;
	struct unit_work {
		struct work work; /* s per step */
		int64_t kept, pooled, held, at_end;
	} * units; /* NULL: there is none */
	int64_t apart, reduced, fixed;
	struct bound_communication communication;
};

static void shape_of(const struct plan *plan, const struct shape_sample *sample,
	struct arena *arena, struct shape *shape)
{
	*shape = (struct shape){.n = sample->n,
		.places = sample->places,
		.host_places = sample->host_places,
		.apart = sample->apart,
		.reduced = sample->reduced,
		.fixed = sample->fixed,
		.communication = sample->communication};
	if (sample->rows == NULL)
		return;
	shape->units = ARENA_ARRAY(arena, struct unit_work, sample->n + 1);
	for (int u = 0; u <= sample->n; u++) {
		const struct shape_row *row = &sample->rows[u];
		shape->units[u] = (struct unit_work){
			work_of_step(plan, row), row->kept, row->pooled, row->held, row->at_end};
	}
}

static struct unit_work least_unit(const struct unit_work *a, const struct unit_work *b)
{
	return (struct unit_work){work_least(&a->work, &b->work), min_i64(a->kept, b->kept),
		min_i64(a->pooled, b->pooled), max_i64(a->held, b->held),
		min_i64(a->at_end, b->at_end)};
}

/* What is not of a unit. */
static void merge_rest(struct shape *into, const struct shape *other)
{
	into->apart = min_i64(into->apart, other->apart);
	into->fixed = min_i64(into->fixed, other->fixed);
	into->communication = bound_less_communication(&into->communication, &other->communication);
}

static void merge(struct shape *into, const struct shape *other)
{
	if (into->units == NULL || other->units == NULL || into->n != other->n) {
		into->units = NULL;
		return;
	}
	for (int u = 0; u <= into->n; u++)
		into->units[u] = least_unit(&into->units[u], &other->units[u]);
	into->reduced = min_i64(into->reduced, other->reduced);
	merge_rest(into, other);
}

/* The strategy whose every unit keeps its parameters. */
static enum strategy keeping(enum strategy strategy)
{
	return strategy == STRATEGY_HYBRID_SHARD ? STRATEGY_HYBRID_SHARD_ZERO2
						 : STRATEGY_SHARD_GRAD_OP;
}

/* `keeps`: no unit is resharded. `stays`: none is offloaded. */
static bool find_shape(struct samples *samples, const struct subproblem *subproblem, bool keeps,
	bool stays, struct arena *arena, struct shape *shape, struct error *error)
{
	struct plan plan = subproblem->plan;
	if (keeps) {
		plan.strategy = keeping(plan.strategy);
		plan.reshard_after_forward = rows_of_reshard(false);
	}
	if (stays)
		plan.cpu_offload = rows_of_offload(OFFLOAD_NONE);
	for (int c = CHECKPOINTING_NONE; c < LEVELS; c++) {
		const struct shape_sample *sample;
		struct shape level;
		if (!has_level(subproblem, c))
			continue;
		if (c != CHECKPOINTING_NONE)
			plan.activation_checkpointing =
				rows_of_checkpointing((enum checkpointing)c);
		if (!sample_shape(samples, &plan, &sample, error))
			return false;
		shape_of(&subproblem->plan, sample, arena, &level);
		if (c == CHECKPOINTING_NONE)
			*shape = level;
		else
			merge(shape, &level);
	}
	return true;
}

/* --- units ------------------------------------------------------------------------------------ */

/* By whether units keep their parameters, and whether they are offloaded; those that the subproblem
 * has no choice between are the same. */
struct shapes {
	const struct shape *of[2][2];
};

/* What `more` adds to `less`, at least. */
static struct unit_work added(const struct unit_work *less, const struct unit_work *more)
{
	struct unit_work added = *more;
	work_add(&added.work, &less->work, -1);
	added.kept -= less->kept;
	added.at_end -= less->at_end;
	return added;
}

/* What keeping its parameters adds to a unit, on the device or not. */
static struct unit_work added_by_keeping(const struct shapes *shapes, int unit)
{
	struct unit_work here =
		added(&shapes->of[0][0]->units[unit], &shapes->of[1][0]->units[unit]);
	struct unit_work there =
		added(&shapes->of[0][1]->units[unit], &shapes->of[1][1]->units[unit]);
	return least_unit(&here, &there);
}

/* What all mixes have of a unit that is on the device and does not choose to keep anything. */
static struct unit_work base_of(
	const struct subproblem *subproblem, const struct shapes *shapes, int unit)
{
	const struct shape *first = shapes->of[0][0];
	struct unit_work base = first->units[unit];
	for (int keeps = 0; keeps < 2; keeps++) {
		bool chooses = unit < first->n && first->places[unit] >= 0;
		if (subproblem->units > 0 && !chooses)
			base = least_unit(&base, &shapes->of[keeps][0]->units[unit]);
		if (subproblem->hosts > 0 && (unit == first->n || first->host_places[unit] < 0))
			base = least_unit(&base, &shapes->of[keeps][1]->units[unit]);
	}
	return base;
}

/* What offload adds to a unit, whether it keeps its parameters or, where it has that choice, when
 * it does not. The pools of reductions are counted as if it stayed. */
static struct unit_work added_by_hosting(
	const struct subproblem *subproblem, const struct shapes *shapes, int unit)
{
	struct unit_work most =
		added(&shapes->of[0][0]->units[unit], &shapes->of[0][1]->units[unit]);
	int64_t held = shapes->of[0][0]->units[unit].held;
	bool chooses = subproblem->units > 0 && shapes->of[0][0]->places[unit] >= 0;
	for (int keeps = 0; keeps < 2; keeps++) {
		const struct unit_work *here = &shapes->of[keeps][0]->units[unit];
		struct unit_work more = added(here, &shapes->of[keeps][1]->units[unit]);
		held = max_i64(held, here->held);
		if (!chooses)
			most = least_unit(&most, &more);
	}
	most.kept -= held;
	return most;
}

static int64_t least_at_end(const struct shapes *shapes, int unit, bool hosts)
{
	return min_i64(
		shapes->of[0][hosts]->units[unit].at_end, shapes->of[1][hosts]->units[unit].at_end);
}

static void add_unit(struct work *work, int64_t *bytes, const struct unit_work *unit)
{
	work_add(work, &unit->work, 1);
	*bytes += unit->kept;
}

/* The last units keep their parameters. */
static void fill_moved(struct subproblem *subproblem, const struct shapes *shapes)
{
	const struct shape *first = shapes->of[0][0];
	int u = first->n - 1;
	for (int i = 0; i <= first->n; i++) {
		struct unit_work unit = base_of(subproblem, shapes, i);
		add_unit(&subproblem->moved[0], &subproblem->kept[0], &unit);
	}
	for (int m = 1; m < subproblem->sizes[MIX_UNITS]; m++, u--) {
		while (first->places[u] < 0)
			u--;
		struct unit_work unit = added_by_keeping(shapes, u);
		subproblem->moved[m] = subproblem->moved[m - 1];
		subproblem->kept[m] = subproblem->kept[m - 1];
		add_unit(&subproblem->moved[m], &subproblem->kept[m], &unit);
	}
}

/* The last units are offloaded. What is of no unit is the least of both. */
static void fill_hosted(struct subproblem *subproblem, const struct shapes *shapes)
{
	const struct shape *first = shapes->of[0][0];
	int last = subproblem->hosts, u = first->n - 1;
	struct work work = {0};
	int64_t kept = 0, end = 0;
	for (int i = 0; i <= first->n; i++)
		end += i < first->n && first->host_places[i] >= 0
			       ? least_at_end(shapes, i, false)
			       : min_i64(least_at_end(shapes, i, false),
					 least_at_end(shapes, i, true));
	if (last == 0)
		subproblem->at_end[0] = end;
	for (int k = last - 1; k >= 0; k--, u--) {
		while (first->host_places[u] < 0)
			u--;
		struct unit_work unit = added_by_hosting(subproblem, shapes, u);
		add_unit(&work, &kept, &unit);
		end += least_at_end(shapes, u, true) - least_at_end(shapes, u, false);
		subproblem->hosted[k] = work;
		subproblem->hosted_kept[k] = kept;
		subproblem->at_end[k] = end;
	}
}

/* On the device or not. */
static int64_t pooled_of(const struct shapes *shapes, int unit, int keeps)
{
	return min_i64(
		shapes->of[keeps][0]->units[unit].pooled, shapes->of[keeps][1]->units[unit].pooled);
}

/* Units that keep their parameters hold them in the pool of gathers: what these take beyond what is
 * counted of such pools for all mixes. */
static void fill_pooled(struct subproblem *subproblem, const struct shapes *shapes, int64_t counted)
{
	const struct shape *first = shapes->of[0][0];
	int64_t pooled = 0;
	int u = first->n - 1;
	for (int i = 0; i <= first->n; i++)
		pooled += min_i64(pooled_of(shapes, i, 0), pooled_of(shapes, i, 1));
	subproblem->kept[0] += max_i64(0, pooled - counted);
	for (int m = 1; m < subproblem->sizes[MIX_UNITS]; m++, u--) {
		while (first->places[u] < 0)
			u--;
		pooled += max_i64(0, pooled_of(shapes, u, 1) - pooled_of(shapes, u, 0));
		subproblem->kept[m] += max_i64(0, pooled - counted);
	}
}

/* What updates take is counted unit by unit where some are of the host. */
static void forget_updates(struct bound_communication *communication)
{
	for (int e = 0; e < COMMUNICATORS_MAX; e++) {
		communication->idle[e] = 0;
		communication->late[e] = fmin(communication->late[e], 0);
	}
	for (int l = 0; l < LINKS; l++)
		communication->links[l] = 0;
	communication->late_network = fmin(communication->late_network, 0);
}

static void fill_rest(struct subproblem *subproblem, const struct shapes *shapes)
{
	struct shape rest = *shapes->of[0][0];
	for (int i = 0; i < 4; i++)
		merge_rest(&rest, shapes->of[i / 2][i % 2]);
	subproblem->apart =
		rest.apart + min_i64(shapes->of[0][0]->reduced, shapes->of[1][0]->reduced);
	fill_pooled(subproblem, shapes, rest.apart);
	subproblem->fixed = rest.fixed;
	subproblem->communication = rest.communication;
	if (subproblem->hosts > 0)
		forget_updates(&subproblem->communication);
}

static bool are_alike(const struct shape *a, const struct shape *b)
{
	return a->units != NULL && b->units != NULL && a->n == b->n;
}

/* All four, from those that the subproblem chooses between. A choice that one of them lacks is
 * none. */
static bool find_shapes(struct samples *samples, struct subproblem *subproblem, struct arena *arena,
	struct shapes *shapes, struct error *error)
{
	struct shape *made = ARENA_ARRAY(arena, struct shape, 4);
	bool offloads = subproblem->hosts > 0;
	for (int keeps = 0; keeps < (subproblem->units > 0 ? 2 : 1); keeps++)
		for (int host = 0; host < (offloads ? 2 : 1); host++)
			if (!find_shape(samples, subproblem, keeps, offloads && !host, arena,
				    &made[2 * keeps + host], error))
				return false;
	if (offloads && !(are_alike(&made[0], &made[1]) &&
				(subproblem->units == 0 || are_alike(&made[2], &made[3])))) {
		subproblem->hosts = 0;
		made[0] = made[1];
		made[2] = made[3];
	}
	if (subproblem->units > 0 && !are_alike(&made[0], &made[2])) {
		subproblem->units = 0;
		subproblem->knobs.reshards = false;
	}
	for (int i = 0; i < 4; i++)
		shapes->of[i / 2][i % 2] = &made[(subproblem->units > 0 ? i & 2 : 0) +
						 (subproblem->hosts > 0 ? i & 1 : 0)];
	return true;
}

static bool fill_shapes(struct samples *samples, struct subproblem *subproblem, struct error *error)
{
	struct arena scratch = {0};
	struct shapes shapes;
	bool ok = find_shapes(samples, subproblem, &scratch, &shapes, error);
	subproblem->sizes[MIX_UNITS] = (int)max_i64(subproblem->units, 1);
	subproblem->sizes[MIX_STAYS] = (int)max_i64(subproblem->hosts, 1);
	if (ok && shapes.of[0][0]->units != NULL) {
		fill_moved(subproblem, &shapes);
		fill_hosted(subproblem, &shapes);
		fill_rest(subproblem, &shapes);
	}
	arena_finish(&scratch);
	return ok;
}

static struct mix_load new_load(struct arena *arena, int n)
{
	return (struct mix_load){.compute = ARENA_ARRAY(arena, double, n),
		.issue = ARENA_ARRAY(arena, double, n),
		.before = ARENA_ARRAY(arena, double, n),
		.cover = arena_alloc(arena, (size_t)n, sizeof(double[SHARES])),
		.saved = ARENA_ARRAY(arena, int64_t, n)};
}

static void make_tables(struct subproblem *subproblem, struct arena *arena)
{
	for (int c = MIX_FULL; c <= MIX_SOME; c++)
		subproblem->loads[c] = new_load(arena, subproblem->sizes[c]);
	subproblem->moved = ARENA_ARRAY(arena, struct work, subproblem->units + 1);
	subproblem->kept = ARENA_ARRAY(arena, int64_t, subproblem->units + 1);
	subproblem->hosted = ARENA_ARRAY(arena, struct work, subproblem->hosts + 1);
	subproblem->hosted_kept = ARENA_ARRAY(arena, int64_t, subproblem->hosts + 1);
	subproblem->at_end = ARENA_ARRAY(arena, int64_t, subproblem->hosts + 1);
}

bool subproblem_build(struct samples *samples, const struct plan *plan,
	const struct mix_knobs *knobs, struct arena *arena, struct subproblem *subproblem,
	struct error *error)
{
	const struct question *question = samples->question;
	int layers = (int)question->model->architecture.layers;
	bool root;
	struct error mine = {0};
	int64_t units = plan_units(plan, question->model, &root);
	*subproblem = (struct subproblem){.plan = *plan,
		.knobs = *knobs,
		.blocks = knobs->full ? layers : 0,
		.units = knobs->reshards ? (int)units - root : 0,
		.hosts = knobs->offloads && units > 1 ? (int)units : 0};
	subproblem->sizes[MIX_FULL] = subproblem->blocks + 1;
	subproblem->sizes[MIX_SOME] = knobs->selective ? layers + 1 : 1;
	make_tables(subproblem, arena);
	return (fill_loads(samples, subproblem, &mine) &&
		       fill_shapes(samples, subproblem, &mine)) ||
	       error_set(error, mine.code, "%s", mine.message);
}
