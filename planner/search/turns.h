/* Private to search/: plans in the order of their bounds, and their turns. */
#ifndef PLANNER_SEARCH_TURNS_H
#define PLANNER_SEARCH_TURNS_H

#include "planner/search/search.h"

struct ticket {
	int64_t bound, time; /* the time bound breaks ties */
	int plan;
};

/* A bound as a cost: rounding is monotone, so it stays below the cost that it bounds. */
int64_t bound_cost(const struct search *search, int plan, enum cost_kind kind);
/* < 0: a is before b. */
int tickets_compare(const void *a, const void *b);
/* All plans in ascending order of their bounds. The caller frees it. */
struct ticket *tickets_of(const struct search *search, enum cost_kind kind);

/* Plans that were looked at so far. */
int64_t looked_at(const struct search *search);
bool overflows_host(const struct search *search, int plan);
bool too_large(const struct search *search, int plan);
bool is_needed(const struct search *search, const struct ticket *ticket);
/* The step time in s above which the plan is not needed, whatever its memory is; may be INFINITY.
 */
double too_slow(const struct search *search, const struct ticket *ticket);
/* Does the plan surely lack room, by all that is known of it? */
bool lacks_room(const struct search *search, int plan);
/* Plans that lack room matter only if none has room, and the cost of the allocator's retries takes
 * long to simulate. So such a plan lets all others go first, once. */
bool waits_to_the_end(struct search *search, int plan);
/* A plan that surely needs no more memory, for example one with a smaller micro-batch; -1: none is
 * near. */
int find_smaller(const struct search *search, int index);
/* Raises the bound of memory by the plan's own schedule, which tells more than the parts that it
 * shares with other plans. */
void tighten(struct search *search, int index);
/* Finds out whether the fullest stages of a pipeline have room, and what they need at least. */
void look_at_stages(struct search *search, int index);
/* Raises the bounds of a pipeline's time and traffic by its own schedule. */
void follow(struct search *search, int index);
/* Simulates the step time, which takes a tenth of the time that the memory takes, and decides if
 * the memory is needed. A plan that the builder refuses is ready. */
bool time_plan(struct search *search, struct evaluator *evaluator, int index, struct error *error);
/* Makes the simulated time the plan's bound, at its turn and not before: otherwise the order of
 * plans would depend on the number of cores. */
void take_time(struct search *search, int index);
/* Makes what was found out of its memory the plan's bound, at its turn too. */
void take_memory(struct search *search, int index);
/* A plan that is ready enters the ranking if it fits. */
void take_turn(struct search *search, int index);
/* Makes it ready, unless it takes longer than `slow` seconds (0: none) or, where there is such a
 * limit, does not fit; and takes its turn. */
bool simulate_plan(struct search *search, int index, double slow, struct error *error);
/* Simulates the ticket's plan, and as many of the `n` behind it as there are cores: only their step
 * times (`time`), or all that their turns need. */
bool make_ready(struct search *search, bool time, const struct ticket *ticket,
	const struct ticket *behind, int n, struct error *error);

/* Puts another plan, which fits, in place of one of the space and into the ranking. */
void search_put(struct search *search, int index, const struct plan *plan,
	const struct prediction *prediction, int departures);

/* between.c: is the user's batch open, so that a micro-batch need not be a power of two? */
bool search_opens_batch(const struct question *question);
/* Finds better micro-batches for the best plan of each strategy, where it is. */
bool search_between(struct search *search, struct arena *arena, struct error *error);
/* closest.c: for every strategy without a plan that fits, the plan that exceeds memory least. */
bool find_all_closest(struct search *search, struct error *error);
/* front.c: the Pareto front. */
bool search_front(struct search *search, struct error *error);

#endif
