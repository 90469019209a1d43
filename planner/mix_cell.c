/* One cell of mixed plans: the integer programme proposes, the simulator decides, and what it says
 * cuts a part of the cell away. */
#include "planner/mix.h"

#include <math.h>

/* Simulated blocks x micro-batches, over all cells: what is left then shows in the gap. */
enum { EFFORT_MAX = 10000 };

struct working {
	struct mix_search *mixing;
	const struct mix_cell *cell;
	struct programme programme;
};

struct verdict_on {
	bool fits;
	struct plan plan;
	struct prediction prediction;
};

/* Towards less time and more memory. */
static const int better[MIX_CHOICES] = {[MIX_FULL] = -1, [MIX_SOME] = -1, [MIX_UNITS] = 1};

bool mix_is_wanted(const struct mix_search *mixing, int64_t bound)
{
	return ranking_may_be_first(&mixing->search->ranking, bound);
}

static bool is_wanted(const struct working *w, const int *mix)
{
	double bound = programme_objective(&w->programme, mix) * (1 - 1e-9);
	return mix_is_wanted(w->mixing, costs_time(&w->cell->plan, bound));
}

/* --- cuts ----------------------------------------------------------------------------------------
 */

/* It does not fit: nor does what needs as much or more. */
static void cut_better(struct working *w, const int *mix)
{
	programme_cut(&w->programme,
		&(struct programme_cut){{0, 0, mix[MIX_UNITS]},
			{mix[MIX_FULL], mix[MIX_SOME], w->programme.sizes[MIX_UNITS] - 1}});
}

/* It fits: what recomputes and gathers as much or more is needless. */
static void cut_worse(struct working *w, const int *mix)
{
	const int *sizes = w->programme.sizes;
	programme_cut(
		&w->programme, &(struct programme_cut){{mix[MIX_FULL], mix[MIX_SOME], 0},
				       {sizes[MIX_FULL] - 1, sizes[MIX_SOME] - 1, mix[MIX_UNITS]}});
}

/* --- simulating ----------------------------------------------------------------------------------
 */

/* With many micro-batches most of a simulation is repetition: two show what surely does not fit. */
static bool surely_too_large(
	struct working *w, const struct plan *plan, bool *large, struct error *error)
{
	struct search *search = w->mixing->search;
	struct bound bound = {0};
	*large = false;
	if (plan->grad_accum <= 2)
		return true;
	w->mixing->effort += 2 * search->question->model->architecture.layers;
	if (!bounds_tighten(search->question, plan, &search->evaluator.scratch, &bound, error))
		return false;
	*large = bound.memory > search->limit;
	return true;
}

static bool simulate_mix(
	struct working *w, const int *mix, struct verdict_on *verdict, struct error *error)
{
	struct search *search = w->mixing->search;
	struct error mine = {0};
	bool large;
	verdict->plan = mix_plan(w->cell, mix, w->mixing->arena);
	verdict->fits = false;
	if (!surely_too_large(w, &verdict->plan, &large, error))
		return false;
	if (!large) {
		w->mixing->effort +=
			search->question->model->architecture.layers * w->cell->plan.grad_accum;
		if (evaluator_judge(
			    &search->evaluator, &verdict->plan, &verdict->prediction, &mine))
			verdict->fits = verdict->prediction.fits == FITS_YES;
		else if (mine.code != EXIT_CODE_USAGE)
			return error_set(error, mine.code, "%s", mine.message);
	}
	if (!verdict->fits)
		cut_better(w, mix);
	return true;
}

/* --- moving along one choice ---------------------------------------------------------------------
 */

/* From `mix`, that fits, to the last that fits before `bad`. */
static bool bisect(struct working *w, int *mix, int choice, int bad, struct verdict_on *best,
	struct error *error)
{
	while (bad - mix[choice] > 1 || mix[choice] - bad > 1) {
		int good = mix[choice];
		struct verdict_on verdict;
		mix[choice] = good + (bad - good) / 2;
		if (!simulate_mix(w, mix, &verdict, error))
			return false;
		if (verdict.fits) {
			*best = verdict;
		} else {
			bad = mix[choice];
			mix[choice] = good;
		}
	}
	return true;
}

/* Is there no such mix, or is it known not to fit? (What is cut as needless is never a neighbour of
 * a mix that is not.) */
static bool is_out(const struct working *w, const int *mix, int choice)
{
	return mix[choice] < 0 || mix[choice] >= w->programme.sizes[choice] ||
	       programme_is_cut(&w->programme, mix) ||
	       programme_bytes(&w->programme, mix) > w->programme.capacity;
}

/* From `mix`, that fits, as far towards the better as it fits: one, two, four, ... at a time. */
static bool advance(
	struct working *w, int *mix, int choice, struct verdict_on *best, struct error *error)
{
	for (int step = better[choice];; step *= 2) {
		int good = mix[choice];
		struct verdict_on verdict;
		mix[choice] = good + step;
		while (mix[choice] != good && is_out(w, mix, choice))
			mix[choice] -= better[choice];
		if (mix[choice] == good)
			return true;
		int tried = mix[choice];
		if (!simulate_mix(w, mix, &verdict, error))
			return false;
		if (verdict.fits) {
			*best = verdict;
			continue;
		}
		mix[choice] = good;
		return bisect(w, mix, choice, tried, best, error);
	}
}

static int last_of(const struct working *w, const int *mix, int choice)
{
	if (choice == MIX_FULL && w->programme.ordered)
		return mix[MIX_SOME];
	return w->programme.sizes[choice] - 1;
}

/* From `mix`, that does not fit, to the first that does with more blocks checkpointed, while such
 * mixes are wanted. */
static bool retreat(struct working *w, int *mix, int choice, bool *found, struct verdict_on *best,
	struct error *error)
{
	int last = last_of(w, mix, choice);
	*found = false;
	for (int step = 1; mix[choice] < last; step *= 2) {
		int bad = mix[choice];
		mix[choice] = bad + step < last ? bad + step : last;
		while (mix[choice] > bad && !is_wanted(w, mix))
			mix[choice]--;
		if (mix[choice] == bad || programme_is_cut(&w->programme, mix))
			return true;
		if (!simulate_mix(w, mix, best, error))
			return false;
		*found = best->fits;
		if (*found)
			return bisect(w, mix, choice, bad, best, error);
	}
	return true;
}

/* --- proposals -----------------------------------------------------------------------------------
 */

static bool is_uniform(const struct working *w, const int *mix)
{
	int blocks = w->cell->blocks;
	bool alike = mix[MIX_FULL] == blocks ||
		     (mix[MIX_FULL] == 0 && (mix[MIX_SOME] == 0 || mix[MIX_SOME] == blocks));
	return mix[MIX_UNITS] == 0 && alike;
}

/* Uniform plans are in the ranking already. */
static void add_mix(struct working *w, const int *mix, const struct verdict_on *verdict)
{
	struct search *search = w->mixing->search;
	if (is_uniform(w, mix))
		return;
	int index = space_add(&search->space, &verdict->plan);
	ranking_add(&search->ranking,
		&(struct ranked){.plan = index,
			.strategy = verdict->plan.strategy,
			.tight = verdict->prediction.fits == FITS_TIGHT,
			.costs = costs_of(search->question, &verdict->plan, &verdict->prediction),
			.mixed = true});
}

/* `mix` fits. */
static bool take(struct working *w, int *mix, struct verdict_on *verdict, struct error *error)
{
	for (int choice = 0; choice < MIX_CHOICES; choice++)
		if (!advance(w, mix, choice, verdict, error))
			return false;
	add_mix(w, mix, verdict);
	cut_worse(w, mix);
	return true;
}

/* `mix` does not fit: with no unit kept, then with more blocks checkpointed. */
static bool look_around(struct working *w, int *mix, struct error *error)
{
	struct verdict_on verdict = {.fits = false};
	bool found = true;
	int units = mix[MIX_UNITS];
	mix[MIX_UNITS] = 0;
	if (units > 0 && (!is_wanted(w, mix) || !simulate_mix(w, mix, &verdict, error)))
		return error->message[0] == '\0';
	if (verdict.fits) {
		if (!bisect(w, mix, MIX_UNITS, units, &verdict, error))
			return false;
	} else {
		bool some = w->programme.ordered && mix[MIX_SOME] < w->cell->blocks;
		if (!retreat(w, mix, some ? MIX_SOME : MIX_FULL, &found, &verdict, error))
			return false;
	}
	return !found || take(w, mix, &verdict, error);
}

static bool try_mix(struct working *w, int *mix, struct error *error)
{
	struct verdict_on verdict;
	if (!simulate_mix(w, mix, &verdict, error))
		return false;
	return verdict.fits ? take(w, mix, &verdict, error) : look_around(w, mix, error);
}

/* GLPK, where it is built in, has the last word on what a cell can reach at all. Its time grows
 * with the cuts (by some hundred times), so what they leave is solved by branch and bound. */
static void confirm(const struct working *w, struct solution *solution)
{
	struct solution other;
	if (programme_solve_glpk(&w->programme, &other) && other.feasible)
		solution->bound = fmin(solution->bound, other.bound);
}

static bool search_cell(struct working *w, struct error *error)
{
	struct search *search = w->mixing->search;
	struct solution solution;
	for (int round = 0;; round++) {
		programme_solve_bounding(&w->programme, &solution);
		if (!solution.feasible)
			return true;
		if (round == 0 && is_wanted(w, solution.choice))
			confirm(w, &solution);
		int64_t bound = costs_time(&w->cell->plan, solution.bound);
		bool spent = w->mixing->effort >= EFFORT_MAX;
		if (!mix_is_wanted(w->mixing, bound) || spent) {
			search->least_skipped = min_i64(search->least_skipped, bound);
			return true;
		}
		if (!try_mix(w, solution.choice, error))
			return false;
	}
}

bool mix_cell_search(struct mix_search *mixing, const struct mix_cell *cell, struct error *error)
{
	struct search *search = mixing->search;
	struct working w = {.mixing = mixing, .cell = cell};
	struct arena scratch = {0};
	mix_programme(search->question->topology, cell, search->limit, &scratch, &w.programme);
	bool ok = search_cell(&w, error);
	programme_finish(&w.programme);
	arena_finish(&scratch);
	return ok;
}
