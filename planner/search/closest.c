/* Strategies of which nothing fits: the plan that misses by least. */
#include "planner/search/turns.h"

#include <stdlib.h>

enum { CLOSEST_TRIES = 4 };

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
	bounds_complete(&search->bounds, &search->space, first, end);
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

bool find_all_closest(struct search *search, struct error *error)
{
	bool ok = true;
	for (int s = 0; s < STRATEGY_COUNT && ok; s++) {
		search->closest[s] = -1;
		if (!search->question->winners_only && !search->given_up &&
			search_goes_on(search, looked_at(search), 0) && search->space.allowed[s] &&
			search->space.impossible[s] == NULL &&
			ranking_best(&search->ranking, s) == NULL)
			ok = find_closest(search, (enum strategy)s, error);
	}
	return ok;
}
