/* One subproblem of mixed plans: the integer programme proposes, the simulator decides, and what it
 * says cuts a part of the subproblem away.
 *
 * A mix that needs too many bytes takes all that keep more with it. One that has the bytes and
 * still does not fit, for the holes that the allocator leaves, says less: a larger mix may leave
 * fewer. So a subproblem is searched twice: first as if it took them along, which finds what is
 * good soon, then again with only that mix away, which proves that none was missed. */
#include "planner/mixed/mix.h"

#include <math.h>

struct mix_working {
	struct mix_search *mixing;
	const struct subproblem *subproblem;
	struct arena tables;
	struct programme programme;
	bool open;  /* something in it may still be wanted */
	bool exact; /* the second time */
	bool confirmed;
	int64_t bound; /* the objective's, of what is left */
	bool doubts;   /* there are cuts beyond what is sure: the first time */
};

/* Nodes of branch and bound that take as long as a block of a micro-batch, about. */
enum { EFFORT_NODES = 1500 };

/* Most micro-batches of a step repeat the one before: a simulation passes over them. */
enum { SIMULATED_MICRO_BATCHES = 4 };

struct verdict_on {
	bool fits;
	bool in_bytes; /* what it surely needs would: its place and time decide */
	bool host_overflows;
	struct plan plan;
	struct prediction prediction;
};

/* Towards less time and more memory. */
static const int better[MIX_CHOICES] = {
	[MIX_FULL] = -1, [MIX_SOME] = -1, [MIX_UNITS] = 1, [MIX_STAYS] = 1};

bool mix_is_wanted(const struct mix_search *mixing, int64_t bound)
{
	return ranking_may_be_first(&mixing->search->ranking, bound);
}

static bool is_wanted(const struct mix_working *w, const int *mix)
{
	double bound = programme_objective(&w->programme, mix) * (1 - 1e-9);
	return mix_is_wanted(w->mixing, costs_time(&w->subproblem->plan, bound));
}

/* --- cuts ------------------------------------------------------------------------------------- */

static int last_of(const struct mix_working *w, int choice)
{
	return w->programme.sizes[choice] - 1;
}

/* Everything from `mix` on towards the better (1) or the worse (-1). */
static struct programme_cut cut_from(const struct mix_working *w, const int *mix, int towards)
{
	struct programme_cut cut = {.doubtful = false};
	for (int c = 0; c < MIX_CHOICES; c++) {
		bool up = better[c] * towards > 0;
		cut.low[c] = up ? mix[c] : 0;
		cut.high[c] = up ? last_of(w, c) : mix[c];
		cut.seen[c] = mix[c];
	}
	return cut;
}

/* It does not fit: nor does what needs as much or more; if it has the bytes, that is not sure. */
static void cut_better(struct mix_working *w, const int *mix, bool in_bytes)
{
	struct programme_cut cut = cut_from(w, mix, 1);
	cut.doubtful = in_bytes;
	programme_cut(&w->programme, &cut);
	w->doubts = w->doubts || in_bytes;
	if (w->exact)
		programme_shrink_doubtful(&w->programme);
}

/* It fits: what recomputes, gathers and copies as much or more is needless. */
static void cut_worse(struct mix_working *w, const int *mix)
{
	struct programme_cut cut = cut_from(w, mix, -1);
	programme_cut(&w->programme, &cut);
}

/* The host has no room for it: nor for as many units or more, whatever is checkpointed and kept. */
static void cut_host(struct mix_working *w, const int *mix)
{
	struct programme_cut cut = {.doubtful = false};
	for (int c = 0; c < MIX_CHOICES; c++)
		cut.high[c] = c == MIX_STAYS ? mix[c] : last_of(w, c);
	programme_cut(&w->programme, &cut);
}

/* --- simulating ------------------------------------------------------------------------------- */

static bool judge_mix(struct mix_working *w, struct verdict_on *outcome, struct error *error)
{
	struct search *search = w->mixing->search;
	struct error mine = {0};
	w->mixing->effort += search->question->model->architecture.layers *
			     min_i64(w->subproblem->plan.grad_accum, SIMULATED_MICRO_BATCHES);
	if (evaluator_judge(&search->evaluator, &outcome->plan, &outcome->prediction, &mine)) {
		outcome->fits = outcome->prediction.fits == FITS_YES;
		outcome->in_bytes = true;
		outcome->host_overflows = prediction_overflows_host(&outcome->prediction);
		return true;
	}
	return error_is_refusal(&mine, error);
}

/* Most of what does not fit shows in the plan's own schedule, for a third of a simulation. */
static bool simulate_mix(
	struct mix_working *w, const int *mix, struct verdict_on *outcome, struct error *error)
{
	struct search *search = w->mixing->search;
	w->mixing->effort += search->question->model->architecture.layers *
			     min_i64(w->subproblem->plan.grad_accum, 2) / 3;
	outcome->plan = mix_plan(w->subproblem, mix, w->mixing->arena);
	outcome->fits = outcome->in_bytes = outcome->host_overflows = false;
	bool large = bounds_with_room(search->question, &outcome->plan,
			     &search->evaluator.scratch) > search->limit;
	if (!large && !judge_mix(w, outcome, error))
		return false;
	if (outcome->host_overflows)
		cut_host(w, mix);
	else if (!outcome->fits)
		cut_better(w, mix, outcome->in_bytes);
	return true;
}

/* --- moving along one choice ------------------------------------------------------------------ */

/* From `mix`, that fits, to the last that fits before `bad`. */
static bool bisect(struct mix_working *w, int *mix, int choice, int bad, struct verdict_on *best,
	struct error *error)
{
	while (bad - mix[choice] > 1 || mix[choice] - bad > 1) {
		int good = mix[choice];
		struct verdict_on outcome;
		mix[choice] = good + (bad - good) / 2;
		if (!simulate_mix(w, mix, &outcome, error))
			return false;
		if (outcome.fits) {
			*best = outcome;
		} else {
			bad = mix[choice];
			mix[choice] = good;
		}
	}
	return true;
}

/* Is there no such mix, or is it known not to fit? (What is cut as needless is never a neighbour of
 * a mix that is not.) */
static bool is_out(const struct mix_working *w, const int *mix, int choice)
{
	return mix[choice] < 0 || mix[choice] > last_of(w, choice) ||
	       programme_is_cut(&w->programme, mix) || !programme_has_room(&w->programme, mix);
}

/* From `mix`, that fits, as far towards the better as it fits: one, two, four, ... at a time. */
static bool advance(
	struct mix_working *w, int *mix, int choice, struct verdict_on *best, struct error *error)
{
	for (int step = better[choice];; step *= 2) {
		int good = mix[choice];
		struct verdict_on outcome;
		mix[choice] = good + step;
		while (mix[choice] != good && is_out(w, mix, choice))
			mix[choice] -= better[choice];
		if (mix[choice] == good)
			return true;
		int tried = mix[choice];
		if (!simulate_mix(w, mix, &outcome, error))
			return false;
		if (outcome.fits) {
			*best = outcome;
			continue;
		}
		mix[choice] = good;
		return bisect(w, mix, choice, tried, best, error);
	}
}

/* The one that needs the least memory. */
static int leanest_of(const struct mix_working *w, const int *mix, int choice)
{
	if (better[choice] > 0)
		return 0;
	return choice == MIX_FULL && w->programme.ordered ? mix[MIX_SOME] : last_of(w, choice);
}

/* From `mix`, that does not fit, to the first that does further towards less memory, while such
 * mixes are wanted: one, two, four, ... at a time. */
static bool retreat(struct mix_working *w, int *mix, int choice, bool *found,
	struct verdict_on *best, struct error *error)
{
	int last = leanest_of(w, mix, choice), worse = -better[choice];
	*found = false;
	for (int step = 1; mix[choice] != last; step *= 2) {
		int bad = mix[choice], left = (last - bad) * worse;
		mix[choice] = bad + worse * (step < left ? step : left);
		while (mix[choice] != bad && !is_wanted(w, mix))
			mix[choice] -= worse;
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

/* --- proposals -------------------------------------------------------------------------------- */

static bool is_uniform(const struct mix_working *w, const int *mix)
{
	int blocks = w->subproblem->blocks;
	bool alike = mix[MIX_FULL] == blocks ||
		     (mix[MIX_FULL] == 0 && (mix[MIX_SOME] == 0 || mix[MIX_SOME] == blocks));
	return mix[MIX_UNITS] == 0 && mix[MIX_STAYS] == 0 && alike;
}

/* Uniform plans are in the ranking already. */
static void add_mix(struct mix_working *w, const int *mix, const struct verdict_on *outcome)
{
	struct search *search = w->mixing->search;
	if (is_uniform(w, mix))
		return;
	int index = space_add(&search->space, &outcome->plan);
	ranking_add(&search->ranking,
		&(struct ranked){.plan = index,
			.strategy = outcome->plan.strategy,
			.tight = outcome->prediction.fits == FITS_TIGHT,
			.costs = costs_of(search->question, &outcome->plan, &outcome->prediction),
			.mixed = true});
}

/* `mix` fits. */
static bool take(struct mix_working *w, int *mix, struct verdict_on *outcome, struct error *error)
{
	for (int choice = 0; choice < MIX_CHOICES; choice++)
		if (!advance(w, mix, choice, outcome, error))
			return false;
	add_mix(w, mix, outcome);
	cut_worse(w, mix);
	return true;
}

/* `mix` does not fit with no unit kept: with more blocks checkpointed, then with all of them and
 * fewer units on the device. */
static bool find_leaner(struct mix_working *w, int *mix, bool *found, struct verdict_on *outcome,
	struct error *error)
{
	bool some = w->programme.ordered && mix[MIX_SOME] < w->subproblem->blocks;
	*found = false;
	if (some && !retreat(w, mix, MIX_SOME, found, outcome, error))
		return false;
	if (!*found && !retreat(w, mix, MIX_FULL, found, outcome, error))
		return false;
	if (*found || mix[MIX_STAYS] == 0)
		return true;
	mix[MIX_FULL] = last_of(w, MIX_FULL);
	mix[MIX_SOME] = last_of(w, MIX_SOME);
	return retreat(w, mix, MIX_STAYS, found, outcome, error);
}

/* `mix` does not fit: with no unit kept, then leaner. What fits may be below a mix that was taken
 * before; it is needless then, however little memory it takes. */
static bool look_around(struct mix_working *w, int *mix, struct error *error)
{
	struct verdict_on outcome = {.fits = false};
	bool found = true;
	int units = mix[MIX_UNITS];
	mix[MIX_UNITS] = 0;
	if (units > 0 && (!is_wanted(w, mix) || !simulate_mix(w, mix, &outcome, error)))
		return error->message[0] == '\0';
	if (outcome.fits) {
		if (!bisect(w, mix, MIX_UNITS, units, &outcome, error))
			return false;
	} else if (!find_leaner(w, mix, &found, &outcome, error)) {
		return false;
	}
	return !found || programme_is_surely_cut(&w->programme, mix) ||
	       take(w, mix, &outcome, error);
}

static bool try_mix(struct mix_working *w, int *mix, struct error *error)
{
	struct verdict_on outcome;
	if (!simulate_mix(w, mix, &outcome, error))
		return false;
	if (outcome.fits)
		return take(w, mix, &outcome, error);
	return w->exact || look_around(w, mix, error);
}

/* GLPK, where it is built in, has the last word on what a subproblem can reach at all. Its time
 * grows with the cuts (by some hundred times), so what they leave is solved by branch and bound. */
static void confirm(const struct mix_working *w, struct solution *solution)
{
	struct solution other;
	if (programme_solve_glpk(&w->programme, &other) && other.feasible)
		solution->bound = fmin(solution->bound, other.bound);
}

/* What is slower than the fastest so far is not looked for. */
static void solve_wanted(struct mix_working *w, struct solution *solution)
{
	int64_t most = ranking_most_wanted(&w->mixing->search->ranking);
	w->programme.cutoff =
		most < INT64_MAX ? costs_step_above(&w->subproblem->plan, most) * (1 + 1e-8) : 0;
	programme_solve_bounding(&w->programme, solution);
	w->mixing->effort += solution->nodes / EFFORT_NODES;
}

/* One proposal, or none: the subproblem is closed when nothing in it is wanted any more. */
static bool search_once(struct mix_working *w, struct error *error)
{
	struct solution solution;
	solve_wanted(w, &solution);
	if (solution.feasible && !w->confirmed && is_wanted(w, solution.choice))
		confirm(w, &solution);
	w->confirmed = true;
	w->bound = solution.feasible ? costs_time(&w->subproblem->plan, solution.bound) : INT64_MAX;
	w->open = solution.feasible && mix_is_wanted(w->mixing, w->bound);
	return !w->open || try_mix(w, solution.choice, error);
}

struct mix_working *subproblem_open(struct mix_search *mixing, const struct subproblem *subproblem,
	int64_t bound, struct arena *arena)
{
	struct mix_working *w = ARENA_NEW(arena, struct mix_working);
	struct search *search = mixing->search;
	*w = (struct mix_working){
		.mixing = mixing, .subproblem = subproblem, .open = true, .bound = bound};
	mix_programme(
		search->question->topology, subproblem, search->limit, &w->tables, &w->programme);
	return w;
}

bool subproblem_search(struct mix_working *w, int rounds, int64_t effort, struct error *error)
{
	struct search *search = w->mixing->search;
	for (int i = 0; i < rounds && w->open && w->mixing->effort < effort &&
			search_goes_on(search, search->evaluator.evaluated + search->pruned, 0);
		i++)
		if (!search_once(w, error))
			return false;
	return true;
}

void subproblem_doubt(struct mix_working *w)
{
	w->exact = true;
	w->open = w->open || w->doubts;
	programme_shrink_doubtful(&w->programme);
}

bool subproblem_is_open(const struct mix_working *w)
{
	return w->open;
}

int64_t subproblem_bound(struct mix_working *w)
{
	struct solution solution;
	if (!w->open)
		return w->bound;
	solve_wanted(w, &solution);
	return solution.feasible ? costs_time(&w->subproblem->plan, solution.bound) : INT64_MAX;
}

void subproblem_close(struct mix_working *w)
{
	programme_finish(&w->programme);
	arena_finish(&w->tables);
}
