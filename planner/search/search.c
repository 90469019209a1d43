/* Best first: plans are simulated in the order of their bounds until no bound is low enough to
 * change the answer. docs/planner.md says why that equals simulating all of them. */
#include "planner/search/search.h"

#include "planner/mixed/mixed.h"

#include <stdlib.h>

enum { CLOSEST_TRIES = 8 };

struct ticket {
	int64_t bound, time; /* the time bound breaks ties */
	int plan;
};

static int by_bound(const void *left, const void *right)
{
	const struct ticket *a = left, *b = right;
	if (a->bound != b->bound)
		return a->bound < b->bound ? -1 : 1;
	if (a->time != b->time)
		return a->time < b->time ? -1 : 1;
	return (a->plan > b->plan) - (a->plan < b->plan);
}

/* A bound as a cost: rounding is monotone, so it stays below the cost that it bounds. */
static int64_t bound_cost(const struct search *search, int plan, enum cost_kind kind)
{
	const struct bound *bound = &search->bounds.of[plan];
	if (kind == COST_MEMORY)
		return bound->memory;
	if (kind == COST_NETWORK)
		return costs_network(&search->space.plans[plan], bound->network);
	return costs_time(&search->space.plans[plan], bound->time);
}

/* Plans [first, end) in ascending order of their bounds. The caller frees it. */
static struct ticket *queue(const struct search *search, int first, int end, enum cost_kind kind)
{
	struct ticket *tickets = array_grow(NULL, &(int){0}, end - first, sizeof(*tickets));
	for (int i = first; i < end; i++)
		tickets[i - first] = (struct ticket){
			bound_cost(search, i, kind), bound_cost(search, i, COST_TIME), i};
	qsort(tickets, (size_t)(end - first), sizeof(*tickets), by_bound);
	return tickets;
}

/* --- simulating ------------------------------------------------------------------------------- */

/* A plan that the builder refuses is no plan; any other error ends the search. What takes longer
 * than `slow` seconds (0: none) is not looked at any further: its time is known from then on. */
static bool simulate_plan(struct search *search, int index, double slow, struct error *error)
{
	const struct plan *plan = &search->space.plans[index];
	struct known *known = &search->known[index];
	struct bound *bound = &search->bounds.of[index];
	struct prediction prediction;
	struct error mine = {0};
	if (!evaluator_run_unless_slow(&search->evaluator, plan, slow, &prediction, &mine)) {
		known->simulated = known->refused = true;
		return error_is_refusal(&mine, error);
	}
	bound->time = prediction.step_time;
	if (slow > 0 && prediction.step_time > slow)
		return true;
	known->simulated = true;
	search->limit = prediction.memory_limit_bytes;
	known->fits = prediction.fits;
	known->costs = costs_of(search->question, plan, &prediction);
	if (known->fits == FITS_NO)
		return true;
	ranking_add(&search->ranking, &(struct ranked){.plan = index,
					      .strategy = plan->strategy,
					      .tight = known->fits == FITS_TIGHT,
					      .costs = known->costs});
	return true;
}

static bool too_large(const struct search *search, int plan)
{
	return search->bounds.of[plan].memory > search->limit;
}

static bool is_needed(const struct search *search, const struct ticket *ticket)
{
	return ranking_needs(
		&search->ranking, search->space.plans[ticket->plan].strategy, ticket->bound);
}

/* A plan's own schedule tells more than what it shares with others. */
static void tighten(struct search *search, int index)
{
	const struct plan *plan = &search->space.plans[index], small = bounds_small(plan);
	const struct schedule *schedule;
	if (search->known[index].tightened)
		return;
	search->known[index].tightened = true;
	schedule = evaluator_emit(&search->evaluator, &small);
	bounds_tighten(schedule, &search->evaluator.scratch, &search->bounds.of[index]);
}

static bool consider(struct search *search, const struct ticket *ticket, struct error *error)
{
	int plan = ticket->plan;
	bool large = too_large(search, plan);
	if (!large && !is_needed(search, ticket)) {
		search->least_skipped = min_i64(search->least_skipped, ticket->bound);
		search->pruned++;
		return true;
	}
	if (!large)
		tighten(search, plan);
	if (!too_large(search, plan))
		return simulate_plan(search, plan, 0, error);
	search->pruned++;
	return true;
}

static bool search_plans(struct search *search, struct error *error)
{
	struct ticket *tickets = queue(search, 0, search->space.n, search->ranking.objective);
	bool ok = true;
	search->least_skipped = INT64_MAX;
	for (int i = 0; i < search->space.n && ok; i++) {
		search->least_left = tickets[i].bound;
		if (!search_goes_on(search, i, search->space.n)) {
			search->least_skipped = min_i64(search->least_skipped, tickets[i].bound);
			break;
		}
		ok = consider(search, &tickets[i], error);
	}
	search->least_left = -1;
	free(tickets);
	return ok;
}

/* --- strategies that do not fit --------------------------------------------------------------- */

static bool closer(const struct search *search, int a, int b)
{
	const struct costs *first = &search->known[a].costs, *second;
	if (b < 0)
		return true;
	second = &search->known[b].costs;
	for (int i = 0; i < 2; i++) {
		enum cost_kind kind = i == 0 ? COST_MEMORY : COST_TIME;
		if (first->of[kind] != second->of[kind])
			return first->of[kind] < second->of[kind];
	}
	return a < b;
}

/* Could the plan still be closer than `closest`? Looks at its own schedule when the first bound
 * does not say. */
static bool may_be_closer(struct search *search, int plan, int closest)
{
	const struct bound *bound = &search->bounds.of[plan];
	int64_t least = closest < 0 ? INT64_MAX : search->known[closest].costs.of[COST_MEMORY];
	if (bound->memory <= least && closest >= 0 && !search->known[plan].simulated)
		tighten(search, plan);
	return bound->memory <= least;
}

/* The peak of what surely lives is often the optimizer's, the same for any micro-batch; what a
 * smaller one saves shows only in the simulation. */
struct small_first {
	int64_t bound, micro_batch;
	int plan;
};

static int compare_small_first(const void *a, const void *b)
{
	const struct small_first *x = a, *y = b;
	if (x->bound != y->bound)
		return x->bound < y->bound ? -1 : 1;
	if (x->micro_batch != y->micro_batch)
		return x->micro_batch < y->micro_batch ? -1 : 1;
	return (x->plan > y->plan) - (x->plan < y->plan);
}

static struct small_first *queue_small_first(const struct search *search, int first, int end)
{
	int capacity = 0;
	struct small_first *plans = array_grow(NULL, &capacity, end - first + 1, sizeof(*plans));
	for (int i = 0; i < end - first; i++)
		plans[i] = (struct small_first){search->bounds.of[first + i].memory,
			search->space.plans[first + i].micro_batch, first + i};
	qsort(plans, (size_t)(end - first), sizeof(*plans), compare_small_first);
	return plans;
}

/* At most CLOSEST_TRIES are simulated: when their bounds are not tight, this is one of the plans
 * that miss by least, not surely the least. */
static bool find_closest(struct search *search, enum strategy strategy, struct error *error)
{
	int first = search->space.first[strategy], end = search->space.first[strategy + 1];
	int *closest = &search->closest[strategy], tries = 0;
	struct small_first *plans = queue_small_first(search, first, end);
	bool ok = true;
	for (int i = 0; i < end - first && ok && tries < CLOSEST_TRIES; i++) {
		int plan = plans[i].plan;
		struct known *known = &search->known[plan];
		if (!may_be_closer(search, plan, *closest))
			continue;
		if (!known->simulated) {
			search->pruned--; /* now it is simulated after all */
			tries++;
			ok = simulate_plan(search, plan, 0, error);
		}
		if (ok && !known->refused && closer(search, plan, *closest))
			*closest = plan;
	}
	free(plans);
	return ok;
}

static int64_t looked_at(const struct search *search)
{
	return search->evaluator.evaluated + search->pruned;
}

static bool find_all_closest(struct search *search, struct error *error)
{
	bool ok = true;
	for (int s = 0; s < STRATEGY_COUNT && ok; s++) {
		search->closest[s] = -1;
		if (search_goes_on(search, looked_at(search), 0) && search->space.allowed[s] &&
			search->space.impossible[s] == NULL &&
			ranking_best(&search->ranking, s) == NULL)
			ok = find_closest(search, (enum strategy)s, error);
	}
	return ok;
}

/* --- the Pareto front ------------------------------------------------------------------------- */

struct front {
	int entries; /* of the ranking that it is of */
	int n;
	const struct ranked *of[RANKING_PARETO_MAX];
};

/* On CPUs the device's memory is the host's. */
static struct costs least_costs(const struct search *search, int plan)
{
	const struct topology *topology = search->question->topology;
	struct costs costs = {{0}};
	for (int c = 0; c <= COST_NETWORK; c++)
		costs.of[c] = bound_cost(search, plan, (enum cost_kind)c);
	if (topology->device.kind != DEVICE_GPU)
		costs.of[COST_HOST] = topology->devices_per_node * costs.of[COST_MEMORY];
	return costs;
}

static bool may_be_on_front(const struct search *search, struct front *front, int plan)
{
	const struct costs least = least_costs(search, plan);
	if (search->known[plan].simulated || too_large(search, plan))
		return false;
	if (front->entries != search->ranking.n) {
		front->n = ranking_pareto(&search->ranking, front->of, RANKING_PARETO_MAX);
		front->entries = search->ranking.n;
	}
	return !ranking_excludes(&search->ranking, front->of, front->n, plan, &least);
}

/* Seconds of a step from which on the plan is not on the front, whatever memory it needs; 0: none.
 */
static double too_slow(const struct search *search, const struct front *front, int plan)
{
	const struct costs least = least_costs(search, plan);
	int64_t time = ranking_excludes_above(&search->ranking, front->of, front->n, &least);
	if (search->ranking.objective != COST_TIME || time == INT64_MAX)
		return 0;
	return costs_step_above(&search->space.plans[plan], time);
}

static bool consider_for_front(
	struct search *search, struct front *front, int plan, struct error *error)
{
	if (!may_be_on_front(search, front, plan))
		return true;
	tighten(search, plan);
	if (!may_be_on_front(search, front, plan))
		return true;
	double slow = too_slow(search, front, plan);
	bool ok = simulate_plan(search, plan, slow, error);
	search->pruned -= search->known[plan].simulated; /* it is now after all */
	return ok;
}

/* What is simulated may take the place of the plan for which others were left out: they are looked
 * at again until nothing more is simulated. */
static bool search_front(struct search *search, struct error *error)
{
	int n = search->space.n;
	struct ticket *tickets = queue(search, 0, n, search->ranking.objective);
	struct front front = {.entries = -1};
	int64_t before = -1;
	bool ok = true;
	while (ok && !search->stopped && search->evaluator.evaluated > before) {
		before = search->evaluator.evaluated;
		for (int i = 0; i < n && ok && search_goes_on(search, looked_at(search), 0); i++)
			ok = consider_for_front(search, &front, tickets[i].plan, error);
	}
	free(tickets);
	return ok;
}

/* --- the whole -------------------------------------------------------------------------------- */

/* Of the plans that miss by least; INT64_MAX when none was made. */
static int64_t least_peak(const struct search *search)
{
	int64_t least = INT64_MAX;
	for (int s = 0; s < STRATEGY_COUNT; s++)
		if (search->closest[s] >= 0)
			least = min_i64(
				least, search->known[search->closest[s]].costs.of[COST_MEMORY]);
	return least;
}

static bool search_once(const struct question *question, bool offloads, struct arena *arena,
	struct search *search, struct error *error)
{
	*search = (struct search){.question = question, .limit = INT64_MAX, .offloads = offloads};
	search->evaluator.question = question;
	ranking_init(&search->ranking, question->objective);
	if (!space_build(question, arena, &search->space, error) ||
		!bounds_build(question, &search->space, &search->bounds, error))
		return false;
	search->known = calloc((size_t)search->space.n, sizeof(*search->known));
	if (search->known == NULL)
		base_out_of_memory((size_t)search->space.n * sizeof(*search->known));
	bool ok = search_plans(search, error);
	search->least_uniform = search->least_skipped;
	/* Blocks of which one is trained and another is not are no kinds to mix. */
	bool mixes = question->mixes && trainable_is_all(&question->model->architecture.trainable);
	if (mixes)
		ok = ok && mix_search(search, arena, error);
	if (mixes && !search->stopped)
		ok = ok && offload_fewer_units(search, arena, error);
	ok = ok && find_all_closest(search, error);
	return ok && (!question->pareto || search_front(search, error));
}

bool search_run(const struct question *question, struct arena *arena, struct search *search,
	struct error *error)
{
	struct question *other = ARENA_NEW(arena, struct question);
	struct search second;
	if (!search_once(question, false, arena, search, error))
		return false;
	if (search->ranking.n > 0 || search->stopped || !question->mixes ||
		!offload_question(question, arena, other))
		return true;
	bool ok = search_once(other, true, arena, &second, error);
	bool fits = ok && second.ranking.n > 0;
	search->stopped = second.stopped;
	if (fits)
		second.least_without = least_peak(search);
	search_finish(fits ? search : &second);
	if (fits)
		*search = second;
	return ok;
}

void search_finish(struct search *search)
{
	free(search->known);
	ranking_finish(&search->ranking);
	evaluator_finish(&search->evaluator);
	bounds_finish(&search->bounds);
	space_finish(&search->space);
}
