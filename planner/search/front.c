/* The Pareto front: plans that no other plan beats in every cost. */
#include "planner/search/turns.h"

#include <stdlib.h>

struct front {
	int entries; /* number of entries in the ranking from which it was made */
	int n;
	const struct ranked *of[RANKING_PARETO_MAX];
};

/* The least possible costs of a plan. On CPUs the device's memory is the host's. */
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
	const struct ranked *first = ranking_first(&search->ranking);
	if (search->known[plan].simulated || too_large(search, plan) ||
		(first != NULL && !first->tight && lacks_room(search, plan)))
		return false;
	if (front->entries != search->ranking.n) {
		front->n = ranking_pareto(&search->ranking, front->of, RANKING_PARETO_MAX);
		front->entries = search->ranking.n;
	}
	return !ranking_excludes(&search->ranking, front->of, front->n, plan, &least);
}

/* The step time in s from which on the plan is not on the front, whatever memory it needs; 0: there
 * is none. */
static double too_slow_for(const struct search *search, const struct front *front, int plan)
{
	const struct costs least = least_costs(search, plan);
	int64_t time = ranking_excludes_above(&search->ranking, front->of, front->n, &least);
	if (search->ranking.objective != COST_TIME || time == INT64_MAX)
		return 0;
	return costs_step_above(&search->space.plans[plan], time);
}

/* Raises a pipeline's bounds, where they do not exclude it yet, to those by its own schedule: the
 * simulation takes several times as long. */
static bool may_be_after_bounds(struct search *search, struct front *front, int plan)
{
	void (*const raise[])(struct search *, int) = {tighten, follow};
	for (int i = 0; i < COUNT_OF(raise); i++) {
		if (!may_be_on_front(search, front, plan))
			return false;
		if (search->space.plans[plan].mesh.pipeline > 1 && !search->known[plan].timed)
			raise[i](search, plan);
	}
	return may_be_on_front(search, front, plan);
}

static bool consider_for_front(
	struct search *search, struct front *front, int plan, struct error *error)
{
	if (!may_be_after_bounds(search, front, plan))
		return true;
	if (!search->known[plan].timed && !time_plan(search, &search->evaluator, plan, error))
		return false;
	take_time(search, plan);
	if (!may_be_on_front(search, front, plan))
		return true;
	double slow = too_slow_for(search, front, plan);
	bool ok = simulate_plan(search, plan, slow, error);
	search->pruned -= search->known[plan].simulated; /* it was counted as pruned before */
	return ok;
}

/* A newly simulated plan may replace the plan on the front because of which others were left out.
 * So all are considered again until no further plan is simulated. */
bool search_front(struct search *search, struct error *error)
{
	int n = search->space.n;
	struct ticket *tickets = tickets_of(search, search->ranking.objective);
	struct front front = {.entries = -1};
	int64_t before = -1;
	bool ok = true;
	while (ok && !search->stopped && search->evaluated > before) {
		before = search->evaluated;
		for (int i = 0; i < n && ok && search_goes_on(search, looked_at(search), 0); i++)
			ok = consider_for_front(search, &front, tickets[i].plan, error);
	}
	free(tickets);
	return ok;
}
