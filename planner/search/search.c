/* Best-first search: plans are simulated in the order of their bounds until no bound is low enough
 * to change the answer. docs/planner.md says why that equals simulating all of them. */
#include "planner/search/search.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "planner/mixed/mixed.h"
#include "planner/search/turns.h"
#include "simulator/simulator.h"

/* The effort, in blocks x micro-batches simulated after the first plan that fits, after which the
 * search gives up; that takes some seconds. The plans that are left then show in the gap, and
 * strategies that were not reached are not listed. */
enum { EFFORT_MAX = 50000 };

/* The order in which plans have their turns: all by their first bounds (`tickets`), merged with
 * those that wait again by a higher bound or by their step time (`again`); then those that wait to
 * the end (`last`). */
struct queue {
	int n, next;
	struct ticket *tickets; /* malloc'ed, as are the others */
	int first_again, n_again, capacity;
	struct ticket *again;
	int first_last, n_last, last_capacity;
	struct ticket *last;
};

static bool next_is_again(const struct queue *queue)
{
	if (queue->first_again == queue->n_again || queue->next == queue->n)
		return queue->next == queue->n;
	return tickets_compare(&queue->again[queue->first_again], &queue->tickets[queue->next]) < 0;
}

/* Inserts a ticket among those that wait again. It is never below one that was already taken
 * out. */
static void queue_again(struct queue *queue, const struct ticket *ticket)
{
	int low = queue->first_again, high = queue->n_again++;
	queue->again =
		array_grow(queue->again, &queue->capacity, queue->n_again, sizeof(*queue->again));
	while (low < high) {
		int middle = low + (high - low) / 2;
		if (tickets_compare(ticket, &queue->again[middle]) < 0)
			high = middle;
		else
			low = middle + 1;
	}
	memmove(&queue->again[low + 1], &queue->again[low],
		(size_t)(queue->n_again - 1 - low) * sizeof(*queue->again));
	queue->again[low] = *ticket;
}

static void queue_last(struct queue *queue, const struct ticket *ticket)
{
	queue->last = array_grow(
		queue->last, &queue->last_capacity, queue->n_last + 1, sizeof(*queue->last));
	queue->last[queue->n_last++] = *ticket;
}

/* Takes out the next ticket. False: there is none. */
static bool queue_next(struct queue *queue, struct ticket *ticket)
{
	if (queue->next < queue->n || queue->first_again < queue->n_again)
		*ticket = next_is_again(queue) ? queue->again[queue->first_again++]
					       : queue->tickets[queue->next++];
	else if (queue->first_last < queue->n_last)
		*ticket = queue->last[queue->first_last++];
	else
		return false;
	return true;
}

/* Notes the bound of a plan that is not simulated. A plan that lacks room does not count, because
 * it is no better however fast it is. */
static void leave_out(struct search *search, const struct ticket *ticket)
{
	if (!lacks_room(search, ticket->plan))
		search->least_skipped = min_i64(search->least_skipped, ticket->bound);
}

static void drop(struct search *search, const struct ticket *ticket)
{
	leave_out(search, ticket);
	search->pruned++;
}

/* Has a plan with room been found? A plan without room is worse than any plan with it. */
static bool has_found_room(const struct search *search)
{
	const struct ranked *first = ranking_first(&search->ranking);
	return first != NULL && !first->tight;
}

/* --- best first ------------------------------------------------------------------------------- */

/* Simulates the ticket's plan, and those behind it that are free to be simulated at the same
 * time. */
static bool make_next_ready(struct search *search, bool time, const struct ticket *ticket,
	const struct queue *queue, struct error *error)
{
	bool again = search->known[ticket->plan].followed || !time;
	const struct ticket *behind =
		again ? &queue->again[queue->first_again] : &queue->tickets[queue->next];
	int n = again ? queue->n_again - queue->first_again : queue->n - queue->next;
	return make_ready(search, time, ticket, behind, n, error);
}

/* Finds out the step time of a plan that had its turn by its bound. */
static bool consider_time(struct search *search, const struct ticket *ticket,
	const struct queue *queue, struct error *error)
{
	int plan = ticket->plan;
	if (!search->known[plan].timed && !make_next_ready(search, true, ticket, queue, error))
		return false;
	take_time(search, plan);
	/* The simulation of a pipeline's time has found out everything. Taking its turn now may
	 * already settle a search that only has to beat something. */
	if (search->known[plan].ready)
		take_turn(search, plan);
	return true;
}

/* Raises a bound of the plan. Until a plan with room is found, no bound of time rules out anything,
 * so that of memory comes first. */
static bool raise_bound(struct search *search, const struct ticket *ticket,
	const struct queue *queue, struct error *error)
{
	int plan = ticket->plan;
	const struct known *known = &search->known[plan];
	bool pipeline = search->space.plans[plan].mesh.pipeline > 1;
	if (pipeline && !known->followed && (known->tightened || has_found_room(search))) {
		follow(search, plan);
	} else if (pipeline && !known->tightened) {
		tighten(search, plan);
	} else {
		if (pipeline) { /* free memory for the simulation */
			evaluator_release(&search->evaluator);
			bounds_release(&search->bounds);
		}
		return consider_time(search, ticket, queue, error);
	}
	return true;
}

/* Does the plan whose bound was raised stay at its turn? What any plan costs rules out more than
 * bounds of many do, if a plan that is nearly as good as the best will do. */
static bool goes_ahead(const struct search *search, const struct ticket *ticket)
{
	const struct question *question = search->question;
	return question->beat > 0 && question->effort > 0 && !search->known[ticket->plan].taken &&
	       !too_large(search, ticket->plan) && is_needed(search, ticket);
}

static bool consider_bound(struct search *search, const struct ticket *ticket, struct queue *queue,
	struct error *error)
{
	struct ticket now = *ticket;
	do {
		if (!raise_bound(search, &now, queue, error))
			return false;
		now.bound = now.time = bound_cost(search, now.plan, COST_TIME);
	} while (goes_ahead(search, &now));
	if (!search->known[now.plan].simulated)
		queue_again(queue, &now);
	return true;
}

/* The load alone did not rule out the plan, so it waits again by its complete bound. */
static void complete(struct search *search, int plan, struct queue *queue)
{
	bounds_complete(&search->bounds, &search->space, plan);
	queue_again(queue, &(struct ticket){bound_cost(search, plan, search->ranking.objective),
				   bound_cost(search, plan, COST_TIME), plan});
}

/* Where any plan with room will do, one whose tightened bound leaves as much of the device has its
 * turn, although others may need less. */
#define AMPLE 0.75

static bool is_ample(const struct search *search, int plan)
{
	return search->question->wanted == WANTED_ANY && search->known[plan].tightened &&
	       (double)search->bounds.of[plan].memory < AMPLE * (double)search->limit;
}

/* Tightens the bound of memory. Does the plan have to wait again, for those that need less? */
static bool rises(struct search *search, const struct ticket *ticket)
{
	if (search->question->wanted == WANTED_ANY && search->known[ticket->plan].tightened)
		look_at_stages(search, ticket->plan);
	tighten(search, ticket->plan);
	take_memory(search, ticket->plan);
	return search->ranking.objective == COST_MEMORY && !too_large(search, ticket->plan) &&
	       !is_ample(search, ticket->plan) &&
	       bound_cost(search, ticket->plan, COST_MEMORY) > ticket->bound;
}

static bool consider(struct search *search, const struct ticket *ticket, struct queue *queue,
	struct error *error)
{
	int plan = ticket->plan;
	const struct known *known = &search->known[plan];
	bool large = too_large(search, plan);
	if (!large && !is_needed(search, ticket)) {
		drop(search, ticket);
		return true;
	}
	if (!large && !search->bounds.of[plan].whole) {
		complete(search, plan, queue);
		return true;
	}
	if (!large && waits_to_the_end(search, plan)) {
		queue_last(queue, ticket);
		return true;
	}
	if (!large && !known->taken && search->ranking.objective == COST_TIME)
		return consider_bound(search, ticket, queue, error);
	if (!large && rises(search, ticket)) {
		int64_t cost = bound_cost(search, plan, COST_MEMORY);
		queue_again(queue, &(struct ticket){cost, ticket->time, plan});
		return true;
	}
	bool memory_first = known->taken || search->question->wanted == WANTED_ANY;
	if (!too_large(search, plan) && memory_first && !known->ready && !known->is_last &&
		!make_next_ready(search, false, ticket, queue, error))
		return false;
	take_memory(search, plan);
	if (too_large(search, plan)) {
		search->pruned++;
		return true;
	}
	if (waits_to_the_end(search, plan)) {
		queue_last(queue, ticket);
		return true;
	}
	if (!simulate_plan(search, plan, too_slow(search, ticket), error))
		return false;
	if (!known->simulated)
		drop(search, ticket);
	return true;
}

/* May the search go on? All plans that are left cost at least the ticket's bound. */
static bool goes_on(struct search *search, const struct ticket *ticket)
{
	int64_t most = search->question->effort > 0 ? search->question->effort : EFFORT_MAX;
	/* Plans without room come last. One of them that fits is as good as all. */
	bool last = search->known[ticket->plan].is_last;
	bool any = search->question->wanted == WANTED_ANY;
	bool enough = any && (last ? search->ranking.n > 0 : has_found_room(search));
	search->given_up = enough || search->effort > most;
	search->least_left = last ? INT64_MAX : ticket->bound;
	return !search->given_up && search_goes_on(search, looked_at(search), search->space.n);
}

static bool search_plans(struct search *search, struct error *error)
{
	struct queue queue = {
		.n = search->space.n, .tickets = tickets_of(search, search->ranking.objective)};
	bool ok = true;
	search->least_skipped = INT64_MAX;
	struct ticket ticket;
	while (ok && queue_next(&queue, &ticket)) {
		if (!goes_on(search, &ticket)) {
			leave_out(search, &ticket);
			break;
		}
		ok = consider(search, &ticket, &queue, error);
	}
	search->least_left = -1;
	free(queue.tickets);
	free(queue.again);
	free(queue.last);
	return ok;
}

/* --- the whole -------------------------------------------------------------------------------- */

/* The peak of the plan that exceeds memory least; INT64_MAX: no plan could be made. */
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
	*search = (struct search){.question = question,
		.limit = device_limit(question->topology, question->memory_limit_bytes),
		.offloads = offloads};
	search->evaluator.question = question;
	evaluators_init(&search->workers, question);
	ranking_init(&search->ranking, question->objective, question->simplicity);
	search->ranking.wanted = question->wanted;
	search->ranking.reach = search_opens_batch(question) ? RANKING_REACH : 0;
	if (question->freed != 0)
		search->ranking.window = RANKING_FUZZ; /* levers give many near ties */
	if (!space_build(question, arena, &search->space, error))
		return false;
	bounds_build(question, &search->space, &search->bounds);
	bool by_bounds = question->objective != OBJECTIVE_TIME && question->wanted != WANTED_ANY;
	if (by_bounds || question->pareto)
		bounds_complete_all(&search->bounds, &search->space);
	search->evaluator.known = bounds_models(&search->bounds);
	evaluators_know(&search->workers, search->evaluator.known);
	search->known = calloc((size_t)search->space.n, sizeof(*search->known));
	if (search->known == NULL)
		base_out_of_memory((size_t)search->space.n * sizeof(*search->known));
	return search_plans(search, error);
}

/* Better micro-batches, and what stands beside the winner. */
static bool search_rest(const struct question *question, struct arena *arena, struct search *search,
	struct error *error)
{
	return search_between(search, arena, error) && find_all_closest(search, error) &&
	       (!question->pareto || search_front(search, error));
}

/* Where nothing fits with room, searches again with ranks that share sequences. */
static bool search_divided(const struct question *question, struct arena *arena,
	struct search *search, struct error *error)
{
	struct question *other = ARENA_NEW(arena, struct question);
	if (has_found_room(search) || search->stopped || question->beat > 0 ||
		!space_divide(question, other))
		return true;
	search_finish(search);
	return search_once(other, false, arena, search, error);
}

bool search_run(const struct question *question, struct arena *arena, struct search *search,
	struct error *error)
{
	struct question *other = ARENA_NEW(arena, struct question);
	struct search second;
	if (!search_once(question, false, arena, search, error) ||
		!search_divided(question, arena, search, error) ||
		!search_rest(question, arena, search, error))
		return false;
	if (search->ranking.n > 0 || search->stopped || !question->mixes ||
		!offload_question(question, arena, other))
		return true;
	bool ok = search_once(other, true, arena, &second, error);
	bool fits = ok && second.ranking.n > 0;
	ok = ok && (!fits || search_rest(question, arena, &second, error));
	search->stopped = second.stopped;
	if (fits)
		second.least_without = least_peak(search);
	search_finish(fits ? search : &second);
	if (fits)
		*search = second;
	return ok;
}

void search_release(struct search *search)
{
	evaluator_release(&search->evaluator);
	bounds_release(&search->bounds);
	for (int i = 0; i < search->workers.n; i++)
		evaluator_release(&search->workers.of[i]);
#ifdef __GLIBC__
	malloc_trim(0); /* also returns free memory in the middle of the heap */
#endif
}

static void forget_looks(struct search *search)
{
	for (int i = 0; search->known != NULL && i < search->space.n; i++) {
		struct close_look *look = search->known[i].look;
		if (look != NULL)
			arena_finish(&look->arena);
		free(look);
	}
}

void search_finish(struct search *search)
{
	forget_looks(search);
	free(search->known);
	ranking_finish(&search->ranking);
	evaluator_finish(&search->evaluator);
	evaluators_finish(&search->workers);
	bounds_finish(&search->bounds);
	space_finish(&search->space);
}
