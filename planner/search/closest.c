/* Strategies of which nothing fits: the plan that misses by least. */
#include "planner/search/turns.h"

#include <stdlib.h>

/* Of pipelines so many are looked at stage by stage, from the least bound on. */
enum { CLOSEST_TRIES = 4, PIPELINES_MOST = 48 };

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

/* What has to be closer than `most` bytes: its own schedule tells whether it may be. */
static bool may_be_closer(struct search *search, int plan, int64_t most)
{
	if (most < INT64_MAX && !search->known[plan].simulated)
		tighten(search, plan);
	return search->bounds.of[plan].memory <= most;
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
	int n, completed;          /* pipelines whose bound is whole, */
	int64_t least;             /* and the least of these bounds */
	struct small_first *plans; /* malloc'ed */
};

static struct queue queue_of(const struct search *search, int first, int end)
{
	struct queue queue = {.n = end - first, .least = INT64_MAX};
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

/* Raises a plan's bound. A pipeline whose bound was whole before gets what its fullest stages hold,
 * or one of them that holds more than others need. */
static void complete(struct search *search, struct queue *queue, struct small_first *least)
{
	int index = least->plan;
	const struct plan *plan = &search->space.plans[index];
	int64_t *bound = &search->bounds.of[index].memory, held;
	bool pipeline = plan->mesh.pipeline > 1, again = search->bounds.of[index].whole;
	bounds_complete(&search->bounds, &search->space, index);
	if (pipeline && again) {
		evaluator_stages_overflow(&search->evaluator, plan, queue->least, &held);
		*bound = max_i64(*bound, held);
		queue->least = min_i64(queue->least, *bound);
		queue->completed++;
	}
	least->bound = *bound;
	least->whole = again || !pipeline;
}

/* A smaller plan shows that it is not its turn yet. */
static bool is_raised(struct search *search, struct small_first *least)
{
	int smaller = find_smaller(search, least->plan);
	int64_t bound = smaller >= 0 ? search->bounds.of[smaller].memory : 0;
	if (bound <= least->bound)
		return false;
	least->bound = search->bounds.of[least->plan].memory = bound;
	return true;
}

/* The next by its whole bound; -1: there is none of at most so many bytes. */
static int queue_next(struct queue *queue, struct search *search, int64_t most)
{
	while (queue->n > 0) {
		struct small_first *least = least_of(queue);
		if (least->bound > most)
			break;
		int plan = least->plan;
		bool pipeline = search->space.plans[plan].mesh.pipeline > 1;
		if (least->whole || (pipeline && queue->completed == PIPELINES_MOST)) {
			bool whole = least->whole;
			*least = queue->plans[--queue->n];
			if (whole)
				return plan;
			continue;
		}
		if (is_raised(search, least))
			continue;
		complete(search, queue, least);
	}
	return -1;
}

/* What is known to overflow a device by what it has in use, or to overflow the host, is no try. */
static int tries_of(const struct search *search, int plan)
{
	if (search->known[plan].overflows || overflows_host(search, plan))
		return 0;
	return search->space.plans[plan].mesh.pipeline > 1 ? 2 : 1;
}

/* At most CLOSEST_TRIES are simulated, of pipelines, which take longer and whose bounds are closer,
 * half as many: when their bounds are not tight, this is one of the plans
 * that miss by least, not surely the least. */
static bool find_closest(struct search *search, enum strategy strategy, struct error *error)
{
	int first = search->space.first[strategy], end = search->space.first[strategy + 1];
	int *closest = &search->closest[strategy], tries = 0, plan;
	struct queue queue = queue_of(search, first, end);
	int64_t most = INT64_MAX;
	bool ok = true;
	while (ok && tries < CLOSEST_TRIES && (plan = queue_next(&queue, search, most)) >= 0) {
		struct known *known = &search->known[plan];
		if (!may_be_closer(search, plan, most))
			continue;
		if (!known->simulated) {
			search->pruned--; /* now it is simulated after all */
			tries += tries_of(search, plan);
			ok = simulate_plan(search, plan, 0, error);
		}
		if (ok && !known->refused && closer(search, plan, *closest))
			*closest = plan;
		if (*closest >= 0)
			most = search->known[*closest].costs.of[COST_MEMORY];
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
