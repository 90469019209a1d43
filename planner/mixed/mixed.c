/* The search over mixed plans: which subproblems there are, and in what order they are searched. */
#include "planner/mixed/mixed.h"
#include "planner/mixed/mix.h"

#include <stdlib.h>
#include <string.h>

/* Simulated blocks x micro-batches, over all subproblems, until what fits is taken to be monotone,
 * and until all is given up: what is left then shows in the gap. */
enum { EFFORT_FIRST = 12000, EFFORT_MAX = 30000, FIRST_ROUNDS = 4 };

/* Where more than LARGE_GAP would be left, each of the two goes on until here. */
enum { EFFORT_FIRST_LARGE_GAP = 40000, EFFORT_LARGE_GAP = 100000 };
#define LARGE_GAP 0.03

/* Where trying every mix would take no more than this (some seconds), nothing is given up. */
enum { EFFORT_WHOLE = 2000000 };

/* --- which subproblems ------------------------------------------------------------------------ */

static bool has_checkpointing(
	const struct question *question, const struct plan *plan, enum checkpointing kind)
{
	return question_is_open(question, KNOB_ACTIVATION_CHECKPOINTING) &&
	       knob_honoured(KNOB_ACTIVATION_CHECKPOINTING, plan->runtime, (int)kind);
}

static bool mixes_resharding(const struct search *search, const struct plan *plan)
{
	bool full = plan->strategy == STRATEGY_FULL_SHARD;
	bool hybrid = plan->strategy == STRATEGY_HYBRID_SHARD;
	return (full || hybrid) && runtime_of(plan->runtime)->reshards_per_unit &&
	       plan_reshard_group(plan) != 0 && plan->reshard_after_forward.n == 0 &&
	       question_is_open(search->question, KNOB_RESHARD_AFTER_FORWARD) &&
	       search->space.allowed[full ? STRATEGY_SHARD_GRAD_OP : STRATEGY_HYBRID_SHARD_ZERO2];
}

static bool mixes_offload(const struct search *search, const struct plan *plan)
{
	return offload_may_be_partial(search) && plan_offloads_any(plan) &&
	       plan->cpu_offload.n == 0;
}

bool mix_knobs(const struct search *search, const struct plan *plan, struct mix_knobs *knobs)
{
	const struct question *question = search->question;
	knobs->full = has_checkpointing(question, plan, CHECKPOINTING_FULL);
	knobs->selective =
		knobs->full && has_checkpointing(question, plan, CHECKPOINTING_SELECTIVE);
	knobs->reshards = mixes_resharding(search, plan);
	knobs->offloads = mixes_offload(search, plan);
	if (knobs->full && !plan_checkpoints(plan, CHECKPOINTING_NONE))
		return false; /* it is in the subproblem of the plan that checkpoints nothing */
	if (plan->activation_offload != ACTIVATIONS_STAY)
		return false; /* what a block's checkpointing saves is then not on the device */
	return knobs->full || knobs->reshards || knobs->offloads;
}

struct mixing {
	struct mix_search of;
	struct arena tables; /* of all subproblems */
	struct samples samples;
	int n, capacity;
	struct entry {
		struct subproblem *subproblem;
		struct mix_working *working; /* NULL: not searched */
		int place;                   /* in the space */
		int64_t bound;               /* the objective's, of the subproblem's fastest mix */
	} * entries;
};

/* Prefetching and the limiter move work in time, they add and remove none: mixes have the first of
 * their values. */
static bool differ_in_prefetch(const struct plan *a, const struct plan *b)
{
	return a->mesh.shard == b->mesh.shard && knobs_alike_but(knobs_of_role(KNOB_IN_TIME), a, b);
}

static int64_t fastest(const struct mixing *mixing, const struct subproblem *subproblem)
{
	int mix[MIX_CHOICES] = {[MIX_UNITS] = subproblem->sizes[MIX_UNITS] - 1,
		[MIX_STAYS] = subproblem->sizes[MIX_STAYS] - 1};
	struct bound bound = mix_bound(mixing->of.search->question->topology, subproblem, mix);
	return costs_time(&subproblem->plan, bound.time);
}

static void skip(struct mixing *mixing, int64_t bound)
{
	struct search *search = mixing->of.search;
	search->least_skipped = min_i64(search->least_skipped, bound);
}

/* Where no unit is left to reshard it is the other strategy's plan. */
static bool is_repeated(const struct subproblem *subproblem)
{
	return subproblem->knobs.reshards && subproblem->units == 0;
}

static bool add_subproblem(struct mixing *mixing, int place, struct error *error)
{
	struct search *search = mixing->of.search;
	const struct plan *plan = &search->space.plans[place];
	struct entry *last = mixing->n > 0 ? &mixing->entries[mixing->n - 1] : NULL;
	struct entry entry = {.place = place};
	struct mix_knobs knobs;
	/* Mixes recompute more and gather less: none is faster than the compute of this plan. */
	int64_t least = costs_time(plan, search->bounds.of[place].compute);
	if (!mix_knobs(search, plan, &knobs))
		return true;
	if (!search_goes_on(search, search->evaluator.evaluated + search->pruned, 0) ||
		!mix_is_wanted(&mixing->of, least)) {
		skip(mixing, least);
		return true;
	}
	if (last != NULL && differ_in_prefetch(&last->subproblem->plan, plan))
		return true;
	entry.subproblem = ARENA_NEW(&mixing->tables, struct subproblem);
	if (!subproblem_build(
		    &mixing->samples, plan, &knobs, &mixing->tables, entry.subproblem, error))
		return false;
	if (is_repeated(entry.subproblem))
		return true;
	entry.bound = fastest(mixing, entry.subproblem);
	mixing->entries = array_grow(
		mixing->entries, &mixing->capacity, mixing->n + 1, sizeof(*mixing->entries));
	mixing->entries[mixing->n++] = entry;
	return true;
}

static bool add_subproblems(struct mixing *mixing, struct error *error)
{
	int n = mixing->of.search->space.n;
	for (int i = 0; i < n; i++)
		if (!add_subproblem(mixing, i, error))
			return false;
	return true;
}

static int by_bound(const void *left, const void *right)
{
	const struct entry *a = left, *b = right;
	if (a->bound != b->bound)
		return a->bound < b->bound ? -1 : 1;
	return (a->place > b->place) - (a->place < b->place);
}

static void open_entries(struct mixing *mixing)
{
	for (int i = 0; i < mixing->n; i++) {
		struct entry *entry = &mixing->entries[i];
		entry->working = subproblem_open(
			&mixing->of, entry->subproblem, entry->bound, &mixing->tables);
	}
}

/* For the caller: what subproblems cost at least that are still open. */
static void note_least(const struct mixing *mixing)
{
	int64_t *least = &mixing->of.search->least_left;
	*least = INT64_MAX;
	for (int i = 0; i < mixing->n; i++)
		if (subproblem_is_open(mixing->entries[i].working))
			*least = min_i64(*least, mixing->entries[i].bound);
}

/* Every subproblem gets its turn, a short one first: what one subproblem finds closes others. */
static bool take_turns(struct mixing *mixing, int64_t effort, struct error *error)
{
	bool open = true;
	const struct search *search = mixing->of.search;
	for (int rounds = FIRST_ROUNDS; open && !search->stopped && mixing->of.effort < effort;
		rounds *= 2) {
		open = false;
		note_least(mixing);
		for (int i = 0; i < mixing->n; i++) {
			struct mix_working *working = mixing->entries[i].working;
			if (!subproblem_search(working, rounds, effort, error))
				return false;
			open = open || subproblem_is_open(working);
		}
	}
	return true;
}

static double whole_effort(const struct mixing *mixing)
{
	double whole = 0;
	for (int i = 0; i < mixing->n; i++) {
		const struct subproblem *subproblem = mixing->entries[i].subproblem;
		double layers = (double)mixing->of.search->question->model->architecture.layers;
		double mixes = 1;
		for (int c = 0; c < MIX_CHOICES; c++)
			mixes *= subproblem->sizes[c];
		whole += mixes * layers * (double)subproblem->plan.grad_accum;
	}
	return whole;
}

static bool leaves_large_gap(const struct mixing *mixing)
{
	const struct ranking *ranking = &mixing->of.search->ranking;
	const struct ranked *first = ranking_first(ranking);
	for (int i = 0; i < mixing->n && first != NULL; i++) {
		struct mix_working *working = mixing->entries[i].working;
		if (subproblem_is_open(working) &&
			(double)subproblem_bound(working) <
				(1 - LARGE_GAP) * (double)first->costs.of[ranking->objective])
			return true;
	}
	return false;
}

/* First for what is best, then for what was missed. */
static bool search_entries(struct mixing *mixing, struct error *error)
{
	open_entries(mixing);
	if (!take_turns(mixing, EFFORT_FIRST, error))
		return false;
	if (leaves_large_gap(mixing) && !take_turns(mixing, EFFORT_FIRST_LARGE_GAP, error))
		return false;
	for (int i = 0; i < mixing->n; i++)
		subproblem_doubt(mixing->entries[i].working);
	int64_t most = whole_effort(mixing) <= EFFORT_WHOLE ? INT64_MAX : EFFORT_MAX;
	if (!take_turns(mixing, most, error))
		return false;
	if (leaves_large_gap(mixing) && !take_turns(mixing, EFFORT_LARGE_GAP, error))
		return false;
	for (int i = 0; i < mixing->n; i++)
		skip(mixing, subproblem_bound(mixing->entries[i].working));
	return true;
}

static void finish(struct mixing *mixing)
{
	for (int i = 0; i < mixing->n; i++)
		if (mixing->entries[i].working != NULL)
			subproblem_close(mixing->entries[i].working);
	free(mixing->entries);
	arena_finish(&mixing->tables);
}

bool mix_search(struct search *search, struct arena *arena, struct error *error)
{
	struct mixing mixing = {.of = {.search = search, .arena = arena}};
	samples_init(&mixing.samples, search->question);
	bool ok = add_subproblems(&mixing, error);
	samples_finish(&mixing.samples);
	if (mixing.n > 0)
		qsort(mixing.entries, (size_t)mixing.n, sizeof(*mixing.entries), by_bound);
	ok = ok && search_entries(&mixing, error);
	finish(&mixing);
	return ok;
}
