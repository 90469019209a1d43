/* The search over mixed plans: per cell an integer programme proposes, the simulator decides, and
 * what it says cuts a part of the cell away. */
#include "planner/mix.h"

#include <stdlib.h>
#include <string.h>

/* Simulated blocks x micro-batches, over all cells: what is left then shows in the gap. */
enum { EFFORT_MAX = 20000 };

/* --- which cells ---------------------------------------------------------------------------------
 */

static bool is_open(const struct question *question, const char *knob)
{
	if (choices_given(&question->choices, knob))
		return false;
	for (int i = 0; i < question->n_restrictions; i++)
		if (strcmp(question->restrictions[i].knob, knob) == 0)
			return false;
	return true;
}

static bool mixes_checkpointing(const struct question *question, const struct plan *plan)
{
	unsigned both = 1u << CHECKPOINTING_NONE | 1u << CHECKPOINTING_FULL;
	return is_open(question, "activation_checkpointing") &&
	       (runtime_of(plan->runtime)->checkpointings & both) == both;
}

static bool mixes_resharding(const struct search *search, const struct plan *plan)
{
	bool full = plan->strategy == STRATEGY_FULL_SHARD;
	bool hybrid = plan->strategy == STRATEGY_HYBRID_SHARD;
	return (full || hybrid) && runtime_of(plan->runtime)->reshards_per_unit &&
	       strcmp(plan->reshard_after_forward, "true") == 0 &&
	       is_open(search->question, "reshard_after_forward") &&
	       search->space.allowed[full ? STRATEGY_SHARD_GRAD_OP : STRATEGY_HYBRID_SHARD_ZERO2];
}

bool mix_knobs(
	const struct search *search, const struct plan *plan, bool *checkpoints, bool *reshards)
{
	const char *none = checkpointing_names[CHECKPOINTING_NONE];
	*checkpoints = mixes_checkpointing(search->question, plan);
	*reshards = mixes_resharding(search, plan);
	return strcmp(plan->activation_checkpointing, none) == 0 && (*checkpoints || *reshards);
}

struct mixing {
	struct search *search;
	struct arena *arena; /* of the answer */
	struct arena tables; /* of all cells */
	struct mix_probes probes;
	int64_t effort;
	int n, capacity;
	struct entry {
		struct mix_cell *cell;
		const struct plan *plan;
		int64_t bound; /* the objective's, of the cell's fastest mix */
	} * entries;
};

/* Prefetching and the limiter move work in time, they add and remove none: mixes have the first of
 * their values. */
static bool differ_in_prefetch(const struct plan *a, const struct plan *b)
{
	static const char *const moved[] = {
		"prefetch", "forward_prefetch", "limit_all_gathers", NULL};
	if (a->mesh.shard != b->mesh.shard)
		return false;
	for (int i = 0; i < n_plan_fields; i++) {
		const struct field one[] = {plan_fields[i], FIELD_END};
		bool ignored = false;
		for (int j = 0; moved[j] != NULL; j++)
			ignored = ignored || strcmp(plan_fields[i].name, moved[j]) == 0;
		if (!ignored && !fields_equal(one, a, b))
			return false;
	}
	return true;
}

static int64_t fastest(const struct mixing *mixing, const struct mix_cell *cell)
{
	const struct topology *topology = mixing->search->question->topology;
	struct bound bound = mix_bound(topology, cell, 0, cell->units > 0 ? cell->units - 1 : 0);
	return costs_time(&cell->plan, bound.time);
}

static bool is_wanted(const struct mixing *mixing, int64_t bound)
{
	return ranking_may_win(&mixing->search->ranking, STRATEGY_COUNT, bound);
}

static bool add_cell(struct mixing *mixing, const struct plan *plan, struct error *error)
{
	struct entry *last = mixing->n > 0 ? &mixing->entries[mixing->n - 1] : NULL;
	struct entry entry = {.plan = plan};
	bool checkpoints, reshards;
	/* Mixes recompute more and gather less: none is faster than the compute of this plan. */
	const struct bound *bound = &mixing->search->bounds.of[plan - mixing->search->space.plans];
	int64_t least = costs_time(plan, bound->compute);
	if (!mix_knobs(mixing->search, plan, &checkpoints, &reshards))
		return true;
	if (!is_wanted(mixing, least)) {
		mixing->search->least_skipped = min_i64(mixing->search->least_skipped, least);
		return true;
	}
	if (last != NULL && differ_in_prefetch(last->plan, plan))
		return true;
	entry.cell = ARENA_NEW(&mixing->tables, struct mix_cell);
	if (!mix_cell_build(&mixing->probes, plan, checkpoints, reshards, &mixing->tables,
		    entry.cell, error))
		return false;
	entry.bound = fastest(mixing, entry.cell);
	mixing->entries = array_grow(
		mixing->entries, &mixing->capacity, mixing->n + 1, sizeof(*mixing->entries));
	mixing->entries[mixing->n++] = entry;
	return true;
}

static bool add_cells(struct mixing *mixing, struct error *error)
{
	const struct space *space = &mixing->search->space;
	for (int i = 0; i < space->n; i++)
		if (!add_cell(mixing, &space->plans[i], error))
			return false;
	return true;
}

static int by_bound(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	if (a->bound != b->bound)
		return a->bound < b->bound ? -1 : 1;
	return (a->plan > b->plan) - (a->plan < b->plan);
}

/* --- one cell ------------------------------------------------------------------------------------
 */

struct working {
	struct mixing *mixing;
	struct mix_cell cell; /* with the entry's own plan */
	struct programme programme;
	int *failing; /* by K: the least M that is known not to fit; or sizes[1] */
	struct outcome_of {
		bool fits;
		int blocks, units;
		struct plan plan;
		struct prediction prediction;
	} last; /* that fitted */
};

/* More is needed with fewer blocks checkpointed and more units kept. */
static void cut_larger(struct working *w, int blocks, int units)
{
	programme_cut(&w->programme,
		&(struct programme_cut){{0, units}, {blocks, w->programme.sizes[1] - 1}});
	for (int k = 0; k <= blocks; k++)
		w->failing[k] = (int)min_i64(w->failing[k], units);
}

/* Without a simulation: a mix that needs less does not fit, or what surely lives is too much. */
static bool cannot_fit(const struct working *w, int blocks, int units)
{
	int choice[PROGRAMME_GROUPS_MAX] = {blocks, units};
	return units >= w->failing[blocks] ||
	       programme_bytes(&w->programme, choice) > w->programme.capacity;
}

static bool simulate_mix(
	struct working *w, int blocks, int units, struct outcome_of *outcome, struct error *error)
{
	struct mixing *mixing = w->mixing;
	struct search *search = mixing->search;
	struct error mine = {0};
	outcome->fits = false;
	if (cannot_fit(w, blocks, units))
		return true;
	if (w->last.fits && w->last.blocks == blocks && w->last.units == units) {
		*outcome = w->last;
		return true;
	}
	outcome->blocks = blocks;
	outcome->units = units;
	outcome->plan = mix_plan(&w->cell, blocks, units, mixing->arena);
	mixing->effort += search->question->model->architecture.layers * w->cell.plan.grad_accum;
	if (!evaluator_judge(&search->evaluator, &outcome->plan, &outcome->prediction, &mine))
		return mine.code == EXIT_CODE_USAGE ||
		       error_set(error, mine.code, "%s", mine.message);
	outcome->fits = outcome->prediction.fits == FITS_YES;
	if (outcome->fits)
		w->last = *outcome;
	return true;
}

static void cut_smaller(struct working *w, int blocks, int units)
{
	programme_cut(&w->programme,
		&(struct programme_cut){{blocks, 0}, {w->programme.sizes[0] - 1, units}});
}

/* From a mix that fits to the fewest blocks, then the most units, that still do. */
static bool fewest_blocks(
	struct working *w, int *blocks, int units, struct outcome_of *best, struct error *error)
{
	int low = -1;
	while (*blocks - low > 1) {
		int middle = low + (*blocks - low) / 2;
		struct outcome_of outcome;
		if (!simulate_mix(w, middle, units, &outcome, error))
			return false;
		if (outcome.fits) {
			*blocks = middle;
			*best = outcome;
		} else {
			low = middle;
			cut_larger(w, middle, units);
		}
	}
	return true;
}

static bool most_units(
	struct working *w, int blocks, int *units, struct outcome_of *best, struct error *error)
{
	int high = w->programme.sizes[1];
	while (high - *units > 1) {
		int middle = *units + (high - *units) / 2;
		struct outcome_of outcome;
		if (!simulate_mix(w, blocks, middle, &outcome, error))
			return false;
		if (outcome.fits) {
			*units = middle;
			*best = outcome;
		} else {
			high = middle;
			cut_larger(w, blocks, middle);
		}
	}
	return true;
}

/* Uniform plans are in the ranking already. */
static void add_mix(struct working *w, int blocks, int units, const struct outcome_of *outcome)
{
	struct search *search = w->mixing->search;
	if (units == 0 && (blocks == 0 || blocks == w->cell.blocks))
		return;
	int index = space_add(&search->space, &outcome->plan);
	ranking_add(&search->ranking,
		&(struct ranked){.plan = index,
			.strategy = outcome->plan.strategy,
			.tight = outcome->prediction.fits == FITS_TIGHT,
			.costs = costs_of(search->question, &outcome->plan, &outcome->prediction)});
}

/* The programme would come back with one unit less each time. Cuts what does not fit with that many
 * blocks; what does fit waits for its turn. */
static bool cut_units(struct working *w, int blocks, int units, struct error *error)
{
	struct outcome_of outcome = {.fits = false};
	int most = 0;
	if (!simulate_mix(w, blocks, 0, &outcome, error))
		return false;
	if (!outcome.fits)
		cut_larger(w, blocks, 0);
	while (outcome.fits && units - most > 1) {
		int middle = most + (units - most) / 2;
		struct outcome_of between;
		if (!simulate_mix(w, blocks, middle, &between, error))
			return false;
		if (between.fits)
			most = middle;
		else
			cut_larger(w, blocks, units = middle);
	}
	return true;
}

static bool try_mix(struct working *w, int blocks, int units, struct error *error)
{
	struct outcome_of outcome;
	if (!simulate_mix(w, blocks, units, &outcome, error))
		return false;
	if (!outcome.fits) {
		bool again = w->failing[blocks] < w->programme.sizes[1];
		cut_larger(w, blocks, units);
		return !again || units == 0 || cut_units(w, blocks, units, error);
	}
	if (!fewest_blocks(w, &blocks, units, &outcome, error) ||
		!most_units(w, blocks, &units, &outcome, error))
		return false;
	add_mix(w, blocks, units, &outcome);
	cut_smaller(w, blocks, units);
	return true;
}

static bool search_cell(struct working *w, struct error *error)
{
	struct search *search = w->mixing->search;
	struct solution solution;
	for (programme_solve(&w->programme, &solution); solution.feasible;
		programme_solve(&w->programme, &solution)) {
		int64_t bound = costs_time(&w->cell.plan, solution.bound);
		bool spent = w->mixing->effort >= EFFORT_MAX;
		if (!is_wanted(w->mixing, bound) || spent) {
			search->least_skipped = min_i64(search->least_skipped, bound);
			return true;
		}
		if (!try_mix(w, solution.choice[0], solution.choice[1], error))
			return false;
	}
	return true;
}

static bool search_entry(struct mixing *mixing, const struct entry *entry, struct error *error)
{
	struct search *search = mixing->search;
	struct working w = {.mixing = mixing, .cell = *entry->cell};
	struct arena scratch = {0};
	w.cell.plan = *entry->plan;
	if (!is_wanted(mixing, entry->bound)) {
		search->least_skipped = min_i64(search->least_skipped, entry->bound);
		return true;
	}
	mix_programme(search->question->topology, &w.cell, search->limit, &scratch, &w.programme);
	w.failing = ARENA_ARRAY(&scratch, int, w.programme.sizes[0]);
	for (int k = 0; k < w.programme.sizes[0]; k++)
		w.failing[k] = w.programme.sizes[1];
	bool ok = search_cell(&w, error);
	programme_finish(&w.programme);
	arena_finish(&scratch);
	return ok;
}

bool mix_search(struct search *search, struct arena *arena, struct error *error)
{
	struct mixing mixing = {.search = search, .arena = arena};
	mix_probes_init(&mixing.probes, search->question);
	bool ok = add_cells(&mixing, error);
	mix_probes_finish(&mixing.probes);
	if (ok && mixing.n > 0)
		qsort(mixing.entries, (size_t)mixing.n, sizeof(*mixing.entries), by_bound);
	/* Mixes are appended to the plans, which may move them: entries keep copies. */
	struct plan *copies = ARENA_ARRAY(&mixing.tables, struct plan, mixing.n);
	for (int i = 0; i < mixing.n; i++) {
		copies[i] = *mixing.entries[i].plan;
		mixing.entries[i].plan = &copies[i];
	}
	for (int i = 0; i < mixing.n && ok; i++)
		ok = search_entry(&mixing, &mixing.entries[i], error);
	free(mixing.entries);
	arena_finish(&mixing.tables);
	return ok;
}
