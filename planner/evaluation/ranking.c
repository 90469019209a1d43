/* The order of candidates and what it says about those that were not simulated. */
#include "planner/evaluation/ranking.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum cost_kind objective_cost(enum objective objective)
{
	static const enum cost_kind costs[] = {[OBJECTIVE_TIME] = COST_TIME,
		[OBJECTIVE_MEMORY] = COST_MEMORY,
		[OBJECTIVE_NETWORK] = COST_NETWORK};
	return costs[objective];
}

int ranked_compare(enum cost_kind objective, const struct ranked *a, const struct ranked *b)
{
	int64_t first = a->costs.of[objective], second = b->costs.of[objective];
	if (first != second)
		return first < second ? -1 : 1;
	for (int c = 0; c < COST_COUNT; c++)
		if (a->costs.of[c] != b->costs.of[c])
			return a->costs.of[c] < b->costs.of[c] ? -1 : 1;
	return (a->plan > b->plan) - (a->plan < b->plan);
}

void ranking_init(struct ranking *ranking, enum objective objective, double simplicity)
{
	*ranking = (struct ranking){.objective = objective_cost(objective),
		.close = 1 + simplicity,
		.close_plain = 1 + 2 * simplicity,
		.window = RANKING_WINDOW};
}

void ranking_finish(struct ranking *ranking)
{
	free(ranking->entries);
	*ranking = (struct ranking){0};
}

/* Where `candidate` belongs: entries before it stay before it. */
static int position(const struct ranking *ranking, const struct ranked *candidate)
{
	int low = 0, high = ranking->n;
	while (low < high) {
		int middle = low + (high - low) / 2;
		if (ranked_compare(ranking->objective, &ranking->entries[middle], candidate) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void ranking_add(struct ranking *ranking, const struct ranked *candidate)
{
	ranking->entries = array_grow(
		ranking->entries, &ranking->capacity, ranking->n + 1, sizeof(*ranking->entries));
	int at = position(ranking, candidate);
	memmove(&ranking->entries[at + 1], &ranking->entries[at],
		(size_t)(ranking->n - at) * sizeof(*ranking->entries));
	ranking->entries[at] = *candidate;
	ranking->n++;
}

void ranking_change(struct ranking *ranking, const struct ranked *candidate)
{
	int n = 0;
	for (int i = 0; i < ranking->n; i++)
		if (ranking->entries[i].plan != candidate->plan)
			ranking->entries[n++] = ranking->entries[i];
	ranking->n = n;
	ranking_add(ranking, candidate);
}

/* --- winners ---------------------------------------------------------------------------------- */

static bool is_of(const struct ranked *entry, int strategy)
{
	return strategy == STRATEGY_COUNT || (int)entry->strategy == strategy;
}

static int64_t cost_of(const struct ranking *ranking, const struct ranked *entry)
{
	return entry->costs.of[ranking->objective];
}

static bool within(int64_t cost, int64_t reference, double factor)
{
	return (double)cost <= (double)reference * factor;
}

/* The first that fits with room; the first of all where none does. */
static const struct ranked *first_with_room(const struct ranking *ranking, int strategy)
{
	const struct ranked *first = NULL;
	for (int i = 0; i < ranking->n; i++) {
		const struct ranked *entry = &ranking->entries[i];
		if (!is_of(entry, strategy))
			continue;
		if (first == NULL)
			first = entry;
		if (!entry->tight)
			return entry;
	}
	return first;
}

/* The first, or the first that is not divided and nearly as good. */
static const struct ranked *first_plain(
	const struct ranking *ranking, int strategy, const struct ranked *first)
{
	for (int i = 0; i < ranking->n && first->divided; i++) {
		const struct ranked *entry = &ranking->entries[i];
		if (!within(cost_of(ranking, entry), cost_of(ranking, first), ranking->close_plain))
			break;
		if (is_of(entry, strategy) && entry->tight == first->tight && !entry->divided)
			return entry;
	}
	return first;
}

/* Of those that are as good as the first, the one with the fewest departures. */
static const struct ranked *simplest(
	const struct ranking *ranking, int strategy, const struct ranked *first)
{
	const struct ranked *best = first;
	for (int i = 0; i < ranking->n; i++) {
		const struct ranked *entry = &ranking->entries[i];
		if (!is_of(entry, strategy) || entry->tight != first->tight ||
			(entry->divided && !first->divided))
			continue;
		if (!within(cost_of(ranking, entry), cost_of(ranking, first), ranking->close))
			break;
		if (entry->departures < best->departures)
			best = entry;
	}
	return best;
}

const struct ranked *ranking_best(const struct ranking *ranking, int strategy)
{
	const struct ranked *first = first_with_room(ranking, strategy);
	return first != NULL ? simplest(ranking, strategy, first_plain(ranking, strategy, first))
			     : NULL;
}

const struct ranked *ranking_first(const struct ranking *ranking)
{
	return first_with_room(ranking, STRATEGY_COUNT);
}

bool ranking_may_be_first(const struct ranking *ranking, int64_t bound)
{
	return bound <= ranking_most_wanted(ranking);
}

int64_t ranking_most_wanted(const struct ranking *ranking)
{
	const struct ranked *first = ranking_first(ranking);
	if (first == NULL)
		return INT64_MAX;
	return first->tight ? INT64_MAX : cost_of(ranking, first);
}

/* Could a candidate whose objective costs at least that be the winner of one strategy, or of all
 * (STRATEGY_COUNT)? A winner that is tight gives way to any with room. */
static bool may_win(const struct ranking *ranking, int strategy, const struct ranked *candidate)
{
	const struct ranked *first = first_with_room(ranking, strategy);
	int64_t bound = cost_of(ranking, candidate);
	if (first == NULL || bound <= cost_of(ranking, first))
		return first == NULL || first->tight || !candidate->tight;
	if (candidate->tight != first->tight)
		return first->tight;
	const struct ranked *plain = first_plain(ranking, strategy, first);
	double most = plain->divided ? (double)cost_of(ranking, first) * ranking->close_plain
				     : (double)cost_of(ranking, plain);
	if (candidate->divided != plain->divided)
		return !candidate->divided && (double)bound <= most;
	return (!plain->divided && (double)bound <= most) ||
	       (within(bound, cost_of(ranking, plain), ranking->close) &&
		       candidate->departures < simplest(ranking, strategy, plain)->departures);
}

bool ranking_may_win(const struct ranking *ranking, const struct ranked *candidate)
{
	return may_win(ranking, STRATEGY_COUNT, candidate);
}

/* --- the front -------------------------------------------------------------------------------- */

static bool dominates(const struct ranked *a, const struct ranked *b, double fuzz)
{
	for (int c = 0; c < COST_COUNT; c++)
		if (!within(a->costs.of[c], b->costs.of[c], fuzz))
			return false;
	return true;
}

static bool is_dominated(
	const struct ranked *entry, const struct ranked *const *front, int n, double fuzz)
{
	for (int i = 0; i < n; i++)
		if (front[i] == entry || dominates(front[i], entry, fuzz))
			return true;
	return false;
}

static bool covers(const struct costs *a, const struct costs *b)
{
	for (int c = 0; c < COST_COUNT; c++)
		if (a->of[c] > b->of[c])
			return false;
	return true;
}

/* The most that a plan of the front costs in the objective. */
static double most_on_front(const struct ranking *ranking)
{
	const struct ranked *first = ranking_first(ranking);
	return first != NULL ? RANKING_PARETO_WINDOW * (double)cost_of(ranking, first) : INFINITY;
}

/* Surely: whatever `plan` costs from `bounds` on. */
static bool comes_before(const struct ranking *ranking, const struct ranked *entry, int plan,
	const struct costs *bounds)
{
	int64_t cost = cost_of(ranking, entry), least = bounds->of[ranking->objective];
	if (cost != least)
		return cost < least;
	return covers(&entry->costs, bounds) &&
	       (entry->plan < plan || !covers(bounds, &entry->costs));
}

bool ranking_excludes(const struct ranking *ranking, const struct ranked *const *front, int n,
	int plan, const struct costs *bounds)
{
	const struct ranked least = {.costs = *bounds};
	if ((double)cost_of(ranking, &least) > most_on_front(ranking))
		return true;
	for (int i = 0; i < n; i++)
		if (comes_before(ranking, front[i], plan, bounds) &&
			dominates(front[i], &least, RANKING_PARETO_FUZZ))
			return true;
	return false;
}

int64_t ranking_excludes_above(const struct ranking *ranking, const struct ranked *const *front,
	int n, const struct costs *bounds)
{
	struct ranked least = {.costs = *bounds};
	double most = most_on_front(ranking);
	least.costs.of[ranking->objective] = INT64_MAX;
	for (int i = 0; i < n; i++)
		if (dominates(front[i], &least, RANKING_PARETO_FUZZ))
			return cost_of(ranking, front[i]); /* they are in order */
	return most < (double)INT64_MAX ? (int64_t)most : INT64_MAX;
}

int ranking_pareto(const struct ranking *ranking, const struct ranked **front, int most)
{
	const struct ranked *first = ranking_first(ranking);
	int n = 0;
	for (int i = 0; i < ranking->n && n < most; i++) {
		const struct ranked *entry = &ranking->entries[i];
		if ((double)cost_of(ranking, entry) > most_on_front(ranking))
			break;
		if (entry->tight <= first->tight &&
			!is_dominated(entry, front, n, RANKING_PARETO_FUZZ))
			front[n++] = entry;
	}
	return n;
}

int ranking_front(const struct ranking *ranking, const struct ranked *front[1 + RANKING_RUNNERS_UP])
{
	int n = 0;
	if (ranking->n == 0)
		return 0;
	front[n++] = ranking_best(ranking, STRATEGY_COUNT);
	int64_t first = cost_of(ranking, ranking_first(ranking));
	for (int i = 0; i < ranking->n && n < 1 + RANKING_RUNNERS_UP; i++) {
		const struct ranked *entry = &ranking->entries[i];
		if (!within(cost_of(ranking, entry), first, ranking->window))
			break;
		if (entry->tight <= front[0]->tight && !is_dominated(entry, front, n, RANKING_FUZZ))
			front[n++] = entry;
	}
	return n;
}

static bool may_enter_front(const struct ranking *ranking, const struct ranked *candidate)
{
	const struct ranked *front[1 + RANKING_RUNNERS_UP];
	int n = ranking_front(ranking, front);
	int64_t bound = cost_of(ranking, candidate);
	if (n == 0 || candidate->tight > front[0]->tight)
		return n == 0;
	if (n == 1 + RANKING_RUNNERS_UP)
		return bound <= cost_of(ranking, front[n - 1]);
	return within(bound, cost_of(ranking, ranking_first(ranking)), ranking->window);
}

bool ranking_is_rival(const struct ranking *ranking, int64_t cost)
{
	const struct ranked *first = ranking_first(ranking);
	return first == NULL || within(cost, cost_of(ranking, first), RANKING_FUZZ);
}

/* How many times the first may the best of a strategy cost that is wanted? 0: it is not. */
static double reach_of(const struct ranking *ranking)
{
	if (ranking->reach > 0)
		return ranking->reach;
	return ranking->wanted == WANTED_RIVALS ? RANKING_FUZZ : 0;
}

/* A plan without room is no rival of one that has it. */
static bool wants_winners(const struct ranking *ranking, const struct ranked *candidate)
{
	const struct ranked *first = ranking_first(ranking);
	double reach = reach_of(ranking);
	bool is_near = first == NULL ||
		       (candidate->tight <= first->tight &&
			       within(cost_of(ranking, candidate), cost_of(ranking, first), reach));
	return ranking->wanted == WANTED_ALL || (reach > 0 && is_near);
}

bool ranking_needs(const struct ranking *ranking, const struct ranked *candidate)
{
	return may_win(ranking, STRATEGY_COUNT, candidate) ||
	       (wants_winners(ranking, candidate) &&
		       may_win(ranking, (int)candidate->strategy, candidate)) ||
	       (ranking->wanted == WANTED_ALL && may_enter_front(ranking, candidate));
}
