/* Private to search/: plans in the order of their bounds, and what happens when they have their
 * turn. */
#ifndef PLANNER_SEARCH_TURNS_H
#define PLANNER_SEARCH_TURNS_H

#include "planner/search/search.h"

struct ticket {
	int64_t bound, time; /* the time bound breaks ties */
	int plan;
};

/* A bound as a cost: rounding is monotone, so it stays below the cost that it bounds. */
int64_t bound_cost(const struct search *search, int plan, enum cost_kind kind);
/* < 0: a before b. */
int tickets_compare(const void *a, const void *b);
/* All plans in ascending order of their bounds. The caller frees it. */
struct ticket *tickets_of(const struct search *search, enum cost_kind kind);

/* Plans that were looked at so far. */
int64_t looked_at(const struct search *search);
bool too_large(const struct search *search, int plan);
bool is_needed(const struct search *search, const struct ticket *ticket);
/* For sure, as far as is known. */
bool lacks_room(const struct search *search, int plan);
/* What lacks room counts only where nothing has any, and what the allocator's retries cost takes
 * long to find out: it lets all others go first, once. */
bool waits_to_the_end(struct search *search, int plan);
/* A plan that surely needs no more: of a smaller micro-batch, say; -1: none is near. */
int find_smaller(const struct search *search, int index);
/* A plan's own schedule tells more of its memory than what it shares with others. */
void tighten(struct search *search, int index);
/* A pipeline: its bound of time is its own from now on. */
void follow(struct search *search, int index);
/* The step time is known for a tenth of what the memory takes, and says whether that is asked for.
 * A plan that the builder refuses is ready. */
bool time_plan(struct search *search, struct evaluator *evaluator, int index, struct error *error);
/* From its turn on that is its bound: before, the order of plans would depend on how many cores
 * there are. */
void take_time(struct search *search, int index);
/* A plan that is ready enters the ranking if it fits. */
void take_turn(struct search *search, int index);
/* Makes it ready, unless it takes longer than `slow` seconds (0: none), and takes its turn. */
bool simulate_plan(struct search *search, int index, double slow, struct error *error);
/* The ticket's plan, and as many of the `n` behind it as there are cores: their step times, or all
 * that their turns will ask for. */
bool make_ready(struct search *search, bool time, const struct ticket *ticket,
	const struct ticket *behind, int n, struct error *error);

/* closest.c: of every strategy without a plan that fits, the one that misses by least. */
bool find_all_closest(struct search *search, struct error *error);
/* front.c: the Pareto front. */
bool search_front(struct search *search, struct error *error);

#endif
