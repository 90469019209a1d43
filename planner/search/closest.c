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
	bool whole; /* its bound is that of its shape, too */
};

static bool is_smaller(const struct small_first *a, const struct small_first *b)
{
	if (a->bound != b->bound)
		return a->bound < b->bound;
	return a->micro_batch != b->micro_batch ? a->micro_batch < b->micro_batch
						: a->plan < b->plan;
}

struct queue {
	int n;
	struct small_first *plans; /* malloc'ed */
};

static struct queue queue_of(const struct search *search, int first, int end)
{
	struct queue queue = {.n = end - first};
	queue.plans = array_grow(NULL, &(int){0}, queue.n + 1, sizeof(*queue.plans));
	for (int i = 0; i < queue.n; i++)
		queue.plans[i] = (struct small_first){.bound = search->bounds.of[first + i].memory,
			.micro_batch = search->space.plans[first + i].micro_batch,
			.plan = first + i};
	return queue;
}

static struct small_first *least_of(const struct queue *queue)
{
	struct small_first *least = &queue->plans[0];
	for (int i = 1; i < queue->n; i++)
		if (is_smaller(&queue->plans[i], least))
			least = &queue->plans[i];
	return least;
}

/* The next by its whole bound; -1: there is none. */
static int queue_next(struct queue *queue, struct search *search)
{
	while (queue->n > 0) {
		struct small_first *least = least_of(queue);
		int plan = least->plan;
		if (least->whole) {
			*least = queue->plans[--queue->n];
			return plan;
		}
		bounds_complete(&search->bounds, &search->space, plan);
		least->bound = search->bounds.of[plan].memory;
		least->whole = true;
	}
	return -1;
}

/* At most CLOSEST_TRIES are simulated: when their bounds are not tight, this is one of the plans
 * that miss by least, not surely the least. */
static bool find_closest(struct search *search, enum strategy strategy, struct error *error)
{
	int first = search->space.first[strategy], end = search->space.first[strategy + 1];
	int *closest = &search->closest[strategy], tries = 0, plan;
	struct queue queue = queue_of(search, first, end);
	bool ok = true;
	while (ok && tries < CLOSEST_TRIES && (plan = queue_next(&queue, search)) >= 0) {
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
	free(queue.plans);
	return ok;
}

bool find_all_closest(struct search *search, struct error *error)
{
	bool ok = true;
	for (int s = 0; s < STRATEGY_COUNT && ok; s++) {
		search->closest[s] = -1;
		if (search->question->wanted == WANTED_ALL && !search->given_up &&
			search_goes_on(search, looked_at(search), 0) && search->space.allowed[s] &&
			search->space.impossible[s] == NULL &&
			ranking_best(&search->ranking, s) == NULL)
			ok = find_closest(search, (enum strategy)s, error);
	}
	return ok;
}
