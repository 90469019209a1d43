/* The face of planner/: searches the space of plans, then builds the answer. */
#include "planner/planner.h"

#include "planner/defence/defence.h"
#include "planner/levers/levers.h"
#include "planner/mixed/mixed.h"
#include "planner/search/search.h"

#include <math.h>

enum { CANDIDATES_MAX = 1 + STRATEGY_COUNT + 1 + RANKING_RUNNERS_UP };

/* The state while an answer is built. candidates[0] is the chosen plan, if there is one. */
struct making {
	const struct question *question; /* search->question may have CPU offload added */
	struct search *search;
	struct arena *arena;
	struct answer *answer;
	int n;
	struct candidate *candidates;
	struct exposure exposures[CANDIDATES_MAX];
	int plans[CANDIDATES_MAX]; /* index in the space; -1: impossible */
};

static struct contender contender_of(const struct making *making, int index)
{
	return (struct contender){&making->candidates[index].plan,
		&making->candidates[index].prediction, &making->exposures[index]};
}

/* --- candidates ------------------------------------------------------------------------------- */

static int find_candidate(const struct making *making, int plan)
{
	for (int i = 0; i < making->n; i++)
		if (making->plans[i] == plan)
			return i;
	return -1;
}

static bool add_candidate(
	struct making *making, int plan, enum outcome outcome, struct error *error)
{
	struct candidate *candidate = &making->candidates[making->n];
	if (find_candidate(making, plan) >= 0)
		return true;
	*candidate = (struct candidate){
		.plan = making->search->space.plans[plan], .outcome = outcome, .why_not = ""};
	making->plans[making->n] = plan;
	if (!search_look_closely(making->search, plan, making->arena, &candidate->prediction,
		    &making->exposures[making->n], error))
		return false;
	if (making->n++ > 0)
		return true;
	struct evaluator *evaluator = &making->search->evaluator;
	evaluator_interval(evaluator, &candidate->plan, making->arena, &candidate->prediction);
	if (!making->question->brief)
		candidate->prediction.schedule_digest =
			evaluator_digest(evaluator, &candidate->plan, making->arena);
	return true;
}

/* Adds the best plan of every strategy that fits, in the order of the ranking. */
static bool add_winners(struct making *making, struct error *error)
{
	const struct ranking *ranking = &making->search->ranking;
	for (int i = 0; i < ranking->n; i++) {
		const struct ranked *entry = &ranking->entries[i];
		if (entry == ranking_best(ranking, (int)entry->strategy) &&
			!add_candidate(making, entry->plan, OUTCOME_SLOWER, error))
			return false;
	}
	return true;
}

static int64_t miss_of(const struct search *search, int strategy)
{
	int plan = search->closest[strategy];
	return plan < 0 ? INT64_MAX : search->known[plan].costs.of[COST_MEMORY];
}

/* The strategy that exceeds memory least among those without a candidate; -1: none is left. */
static int next_too_large(const struct making *making)
{
	const struct search *search = making->search;
	int next = -1;
	for (int s = 0; s < STRATEGY_COUNT; s++)
		if (search->closest[s] >= 0 && find_candidate(making, search->closest[s]) < 0 &&
			(next < 0 || miss_of(search, s) < miss_of(search, next)))
			next = s;
	return next;
}

static bool add_too_large(struct making *making, struct error *error)
{
	for (int s = next_too_large(making); s >= 0; s = next_too_large(making))
		if (!add_candidate(making, making->search->closest[s], OUTCOME_DOES_NOT_FIT, error))
			return false;
	return true;
}

/* The error of the builder, from one plan of a strategy of which it refused all. */
static const char *refusal(struct making *making, int strategy)
{
	struct search *search = making->search;
	struct prediction prediction;
	struct error error = {0};
	evaluator_run(&search->evaluator, &search->space.plans[search->space.first[strategy]],
		&prediction, &error);
	return arena_strdup(making->arena, error.message);
}

static void add_impossible(struct making *making)
{
	const struct space *space = &making->search->space;
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		const char *why = space->impossible[s];
		bool unknown = why == NULL && (making->search->stopped || making->search->given_up);
		if (!space->allowed[s] || unknown || making->search->closest[s] >= 0 ||
			ranking_best(&making->search->ranking, s) != NULL)
			continue;
		struct candidate *candidate = &making->candidates[making->n];
		making->plans[making->n++] = -1;
		*candidate = (struct candidate){.plan = space->plans[0],
			.outcome = OUTCOME_IMPOSSIBLE,
			.why_not = why != NULL ? why : refusal(making, s)};
		candidate->plan.strategy = (enum strategy)s;
		if (making->candidates[0].outcome == OUTCOME_CHOSEN)
			candidate->plan.runtime = making->candidates[0].plan.runtime;
	}
}

static bool add_runners_up(struct making *making, struct error *error)
{
	const struct ranked *front[1 + RANKING_RUNNERS_UP];
	int n = ranking_front(&making->search->ranking, front);
	for (int i = 0; i < n; i++)
		if (!add_candidate(making, front[i]->plan, OUTCOME_SLOWER, error))
			return false;
	return true;
}

static bool add_candidates(struct making *making, struct error *error)
{
	const struct ranked *best = ranking_best(&making->search->ranking, STRATEGY_COUNT);
	making->candidates = ARENA_ARRAY(making->arena, struct candidate, CANDIDATES_MAX);
	if (best != NULL && !add_candidate(making, best->plan, OUTCOME_CHOSEN, error))
		return false;
	if (!add_winners(making, error) || !add_too_large(making, error))
		return false;
	add_impossible(making);
	return add_runners_up(making, error);
}

static void explain_candidates(struct making *making)
{
	struct contender chosen = contender_of(making, 0);
	bool divided = making->candidates[0].outcome == OUTCOME_CHOSEN && has_axes(chosen.plan);
	for (int i = 0; i < making->n; i++) {
		struct candidate *candidate = &making->candidates[i];
		struct contender other = contender_of(making, i);
		if (candidate->outcome == OUTCOME_SLOWER)
			candidate->why_not = defend_slower(making->search->question, &chosen,
				&other, making->arena, &candidate->briefly);
		if (candidate->outcome == OUTCOME_DOES_NOT_FIT)
			candidate->why_not = defend_too_large(&candidate->prediction,
				divided && !has_axes(other.plan), making->arena);
	}
}

/* --- options of a candidate ------------------------------------------------------------------- */

/* Does the value of the knob follow from other options, so that it need not be typed? A requested
 * batch determines the accumulation; else micro-batch and accumulation determine the batch.
 * Strategies that are not hybrid shard over all ranks. By default tensor ranks also divide the
 * sequence, context ranks use their runtime's method, and pipelines reduce gradients once a step.
 */
static bool follows(const struct question *question, const struct plan *plan, enum knob_id id)
{
	bool groups = strategy_is_hybrid(plan->strategy) || plan_has_zero_groups(plan);
	return id == KNOB_GLOBAL_BATCH || (id == KNOB_SHARD_GROUP && !groups) ||
	       (id == KNOB_SEQUENCE_PARALLEL &&
		       plan->sequence_parallel == (plan->mesh.tensor > 1)) ||
	       (id == KNOB_CONTEXT_METHOD &&
		       plan->context_method ==
			       plan_usual_context_method(plan, &question->model->architecture)) ||
	       (id == KNOB_SYNC_EACH_MICRO_BATCH && plan->mesh.pipeline > 1 &&
		       !plan->sync_each_micro_batch) ||
	       (id == KNOB_GRAD_ACCUM && question_gives(question, KNOB_GLOBAL_BATCH));
}

/* Must the knob be typed even if it has its default? The strategy must, and so must the sizes of
 * axes: without them there may be no plan to compare with. */
static bool is_named(const struct plan *plan, enum knob_id id)
{
	for (int i = 0; i < KNOBS_OF_AXES; i++)
		if (knobs_of_axes[i] == id && knob_get(id, plan).number > 1)
			return true;
	return id == KNOB_STRATEGY ||
	       (id == KNOB_SHARD_GROUP && strategy_is_hybrid(plan->strategy));
}

/* The options of all knobs in which the plan differs from the defaults. */
static const char *typed_of(
	const struct question *question, const struct plan *plan, struct arena *arena)
{
	struct plan usual;
	struct text text = {0};
	bool known = usual_plan(question, plan, arena, &usual);
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = knobs_in_help[i];
		if (question_gives(question, id) || follows(question, plan, id) ||
			(!is_named(plan, id) && known && knob_equal(id, &usual, plan)))
			continue;
		text_printf(&text, "%s--%s %s", text.length > 0 ? " " : "", knob_option(id, arena),
			knob_typed(id, plan, arena));
	}
	const char *typed = arena_strdup(arena, text_string(&text));
	text_finish(&text);
	return typed;
}

static void word_candidates(struct making *making)
{
	for (int i = 0; i < making->n; i++)
		if (making->plans[i] >= 0)
			making->candidates[i].typed = typed_of(making->search->question,
				&making->candidates[i].plan, making->arena);
}

/* --- the Pareto front ------------------------------------------------------------------------- */

/* Adds a plan to the front: a copy of its candidate if there is one, else it is simulated
 * closely. */
static bool add_to_front(struct making *making, int plan, struct error *error)
{
	struct search *search = making->search;
	struct answer *answer = making->answer;
	struct candidate *candidate = &answer->front[answer->n_front++];
	struct contender chosen = contender_of(making, 0);
	struct exposure exposure;
	struct contender other = {&candidate->plan, &candidate->prediction, &exposure};
	int known = find_candidate(making, plan);
	if (known >= 0) {
		*candidate = making->candidates[known];
		return true;
	}
	*candidate =
		(struct candidate){.plan = search->space.plans[plan], .outcome = OUTCOME_SLOWER};
	if (!search_look_closely(
		    search, plan, making->arena, &candidate->prediction, &exposure, error))
		return false;
	candidate->why_not = defend_slower(
		search->question, &chosen, &other, making->arena, &candidate->briefly);
	candidate->typed = typed_of(search->question, &candidate->plan, making->arena);
	return true;
}

static bool make_front(struct making *making, struct error *error)
{
	const struct search *search = making->search;
	const struct ranked *front[RANKING_PARETO_MAX];
	if (!search->question->pareto || making->answer->chosen == NULL)
		return true;
	int n = ranking_pareto(&search->ranking, front, RANKING_PARETO_MAX);
	making->answer->front = ARENA_ARRAY(making->arena, struct candidate, n);
	for (int i = 0; i < n; i++)
		if (!add_to_front(making, front[i]->plan, error))
			return false;
	return true;
}

/* --- options ---------------------------------------------------------------------------------- */

static struct plan_option *add_option(struct making *making, const struct plan *plan, int64_t cost)
{
	struct search *search = making->search;
	struct plan_option *option = &making->answer->options[making->answer->n_options++];
	int64_t chosen = search->known[making->plans[0]].costs.of[COST_TIME];
	*option = (struct plan_option){.plan = *plan,
		.gain = 1 - (double)cost / (double)chosen,
		.typed = typed_of(search->question, plan, making->arena)};
	return option;
}

static bool add_mix(struct making *making, const struct mix *mix, struct error *error)
{
	struct plan_option *option = add_option(making, &mix->plan, mix->cost);
	struct exposure exposure;
	return evaluator_run_closely(&making->search->evaluator, &option->plan, making->arena,
		&option->prediction, &exposure, error);
}

/* Adds the fastest plan as an option. It is within `simplicity` of the chosen plan, which is nearer
 * to the defaults of its framework. */
static bool add_fastest(struct making *making, struct error *error)
{
	struct search *search = making->search;
	const struct ranked *first = ranking_first(&search->ranking);
	int64_t cost = first->costs.of[COST_TIME];
	double chosen = (double)search->known[making->plans[0]].costs.of[COST_TIME];
	struct exposure exposure;
	if ((double)cost > chosen * (1 - MIX_LEAST_GAIN))
		return true;
	struct plan_option *option = add_option(making, &search->space.plans[first->plan], cost);
	return search_look_closely(
		search, first->plan, making->arena, &option->prediction, &exposure, error);
}

static void swap_options(struct plan_option *a, struct plan_option *b)
{
	struct plan_option other = *a;
	*a = *b;
	*b = other;
}

static bool make_options(struct making *making, struct error *error)
{
	struct search *search = making->search;
	const struct question *question = search->question;
	struct mix mixes[MIXES_MAX];
	int n = 0;
	/* Mixes treat all blocks as equal, which they are not if only some are trained. */
	bool may_mix =
		question->mixes && trainable_is_all(&question->model->architecture.trainable);
	if (question->objective != OBJECTIVE_TIME || making->answer->chosen == NULL ||
		search->stopped)
		return true;
	if (may_mix && !mixes_find(search, making->plans[0], making->arena, mixes, &n, error))
		return false;
	making->answer->options = ARENA_ARRAY(making->arena, struct plan_option, 1 + n);
	bool ok = true;
	for (int i = 0; ok && i < n; i++)
		ok = add_mix(making, &mixes[i], error);
	ok = ok && add_fastest(making, error);
	struct plan_option *options = making->answer->options;
	for (int i = making->answer->n_options - 1; i > 0 && options[i].gain > options[i - 1].gain;
		i--)
		swap_options(&options[i], &options[i - 1]);
	return ok;
}

/* --- the defence ------------------------------------------------------------------------------ */

/* The first of the ranking that is not the chosen plan, if it is within the window in which all
 * plans were simulated. */
static bool runner_up(struct making *making, struct candidate *candidate, struct exposure *exposure,
	bool *exists, struct error *error)
{
	const struct ranking *ranking = &making->search->ranking;
	int64_t first = ranking->entries[0].costs.of[ranking->objective];
	const struct ranked *entry = &ranking->entries[0];
	entry += entry->plan == making->plans[0];
	*exists = entry < ranking->entries + ranking->n &&
		  (double)entry->costs.of[ranking->objective] <= (double)first * ranking->window;
	if (!*exists)
		return true;
	candidate->plan = making->search->space.plans[entry->plan];
	return search_look_closely(making->search, entry->plan, making->arena,
		&candidate->prediction, exposure, error);
}

static bool goes_on(struct making *making)
{
	struct search *search = making->search;
	search->least_left = INT64_MAX;
	return search_goes_on(search, search->evaluated + search->pruned, 0);
}

static bool defend_chosen(struct making *making, struct defence *defence,
	const struct variants *variants, struct error *error)
{
	struct contender chosen = contender_of(making, 0), second, other;
	struct candidate next;
	struct exposure exposure;
	bool exists, has_other = making->n > 1 && making->candidates[1].outcome == OUTCOME_SLOWER &&
				 making->candidates[1].plan.strategy != chosen.plan->strategy;
	if (!runner_up(making, &next, &exposure, &exists, error))
		return false;
	second = (struct contender){&next.plan, &next.prediction, &exposure};
	if (has_other)
		other = contender_of(making, 1);
	defend_winner(defence, &chosen);
	defend_margin(defence, &chosen, exists ? &second : NULL, has_other ? &other : NULL);
	if (goes_on(making) && !making->question->brief)
		defend_knobs(defence, &chosen, variants);
	return true;
}

/* --- levers ----------------------------------------------------------------------------------- */

/* Of the levers that the question frees, only those that pay stay in the best plan. */
static bool let_go(struct making *making, struct error *error)
{
	struct search *search = making->search;
	const struct ranked *best = ranking_best(&search->ranking, STRATEGY_COUNT);
	return best == NULL || search->question->freed == 0 ||
	       levers_let_go(&search->evaluator, &search->ranking, best, NULL, NULL, NULL,
		       &search->space.plans[best->plan], error);
}

/* Finds levers that would make the chosen plan faster; without a chosen plan, ways to make one
 * fit. */
static bool pull_levers(struct making *making, const struct contender *centre,
	const struct variants *variants, struct error *error)
{
	const struct question *question = making->question;
	struct answer *answer = making->answer;
	if (!goes_on(making))
		return true;
	search_release(making->search);
	if (answer->chosen == NULL)
		return way_out_find(question, centre->plan, variants, making->arena, answer, error);
	if (!levers_find(question, answer->chosen, variants, making->arena, answer, error))
		return false;
	if (answer->free != NULL)
		answer->free->typed = arena_printf(making->arena, "%s%s",
			typed_of(question, &answer->free->plan, making->arena),
			answer->free->typed);
	return true;
}

/* The index of the candidate that the sensitivity table varies: the chosen plan, or the one that
 * exceeds memory least; -1: there is neither. */
static int centre_of(const struct making *making)
{
	return making->n > 0 && making->plans[0] >= 0 ? 0 : -1;
}

/* Where nothing fits, only variants that might fit are wanted. */
static enum variants_wanted wanted_of(const struct making *making)
{
	if (making->question->brief)
		return VARIANTS_LEVERS;
	return making->answer->chosen == NULL ? VARIANTS_OTHERS : VARIANTS_ALL;
}

static void add_sensitivities(
	struct making *making, const struct contender *centre, const struct variants *variants)
{
	struct answer *answer = making->answer;
	if (wanted_of(making) != VARIANTS_LEVERS)
		answer->n_sensitivities = variants_sensitivities(variants, centre->plan,
			centre->prediction, making->arena, &answer->sensitivities);
}

static bool defend(struct making *making, struct error *error)
{
	struct answer *answer = making->answer;
	struct defence *defence = ARENA_NEW(making->arena, struct defence);
	struct variants *variants = ARENA_NEW(making->arena, struct variants);
	int centre = centre_of(making);
	*defence = (struct defence){.arena = making->arena,
		.question = making->search->question,
		.search = making->search};
	if (centre >= 0) {
		struct contender contender = contender_of(making, centre);
		if (goes_on(making) && !variants_evaluate(making->search->question, contender.plan,
					       contender.prediction, wanted_of(making),
					       making->arena, variants, error))
			return false;
		add_sensitivities(making, &contender, variants);
		if (answer->chosen == NULL)
			defend_nothing(defence, &contender, variants);
		else if (!defend_chosen(making, defence, variants, error))
			return false;
		if (!pull_levers(making, &contender, variants, error))
			return false;
	}
	answer->n_reasons = defence->n;
	answer->reasons = defence->reasons;
	return true;
}

/* --- the proof -------------------------------------------------------------------------------- */

/* States the gap and the bound. Plans that were not simulated cost at least `least_skipped`. The
 * gap is taken from the first plan of the ranking, from which the chosen plan may differ by a close
 * call. Only a search that stopped early leaves a gap. */
static void prove(struct making *making)
{
	const struct search *search = making->search;
	const struct ranked *best = ranking_best(&search->ranking, STRATEGY_COUNT);
	struct answer *answer = making->answer;
	answer->pruned = search->pruned;
	if (best == NULL)
		return;
	int64_t first = ranking_first(&search->ranking)->costs.of[search->ranking.objective];
	int64_t least = min_i64(first, search->least_skipped);
	answer->gap = first > 0 ? (double)(first - least) / (double)first : 0;
	answer->bound = answer->chosen->prediction.step_time;
	if (search->ranking.objective == COST_TIME)
		answer->bound *=
			(double)least / (double)costs_time(&answer->chosen->plan, answer->bound);
}

static bool make_answer(struct making *making, struct error *error)
{
	struct answer *answer = making->answer;
	int64_t evaluated = making->search->evaluated;
	if (making->search->stopped && making->search->ranking.n == 0)
		return error_set(error, EXIT_CODE_INTERRUPTED,
			"interrupted before a plan that fits was found");
	if (!let_go(making, error) || !search_share_stages(making->search, making->arena, error) ||
		!add_candidates(making, error))
		return false;
	bool fits = making->n > 0 && making->candidates[0].outcome == OUTCOME_CHOSEN;
	answer->chosen = fits ? &making->candidates[0] : NULL;
	answer->n_alternatives = making->n - fits;
	answer->alternatives = making->candidates + fits;
	answer->evaluated = evaluated;
	answer->shares_stages = fits && making->search->unshared > 0;
	answer->tight = fits && !has_room(making->search->question, &answer->chosen->plan,
					&answer->chosen->prediction);
	if (fits) {
		answer->departures = making->search->space.departures[making->plans[0]];
		answer->headroom_bytes = headroom_bytes(making->search->question,
			&answer->chosen->plan, &answer->chosen->prediction);
		if (!making->question->headroom.given)
			answer->n_doubts = memory_doubts(making->question, &answer->chosen->plan,
				(double)prediction_needed_bytes(&answer->chosen->prediction),
				answer->doubts);
	}
	explain_candidates(making);
	word_candidates(making);
	prove(making);
	bool ok = make_front(making, error) && make_options(making, error) && defend(making, error);
	answer->interrupted = making->search->stopped;
	return ok;
}

bool planner_plan(const struct question *question, struct arena *arena, struct answer *answer,
	struct error *error)
{
	struct search search;
	struct making making = {
		.question = question, .search = &search, .arena = arena, .answer = answer};
	*answer = (struct answer){0};
	bool ok = search_run(question, arena, &search, error) && make_answer(&making, error);
	struct sampler *sampler = bounds_leave(&search.bounds);
	search_finish(&search);
	bool bounded = question->thresholds && question->objective == OBJECTIVE_TIME &&
		       answer->chosen != NULL && !answer->interrupted;
	ok = ok && (!bounded || thresholds_find(question, sampler, arena, answer, error));
	sampler_free(sampler);
	answer->interrupted = answer->interrupted || lent_stopped(question);
	if (ok)
		warnings_find(question, arena, answer);
	return ok;
}

bool planner_share_stages(const struct question *question, struct arena *arena, struct plan *plan,
	struct error *error)
{
	struct question open = *question;
	struct evaluator evaluator = {.question = &open};
	struct prediction usual;
	struct shared shared;
	question_open(&open, KNOB_LAYERS_PER_STAGE);
	if (!stages_are_open(&open, plan))
		return error_set(error, EXIT_CODE_USAGE,
			plan->mesh.pipeline == 1
				? "--layers-per-stage auto: there is one stage; add --pipeline N"
				: "--layers-per-stage auto: "
				  "%s cannot say which blocks a stage has; leave it out",
			runtime_names[plan->runtime]);
	bool ok = evaluator_run(&evaluator, plan, &usual, error);
	bool fits = ok && has_room(&open, plan, &usual);
	ok = ok && stages_share(&evaluator, plan, &usual, fits ? usual.step_time : INFINITY, arena,
			   &shared, error);
	if (ok && shared.exists)
		*plan = shared.plan;
	evaluator_finish(&evaluator);
	return ok;
}

bool planner_compare(const struct question *question, const struct plan *mine,
	const struct answer *answer, struct arena *arena, struct comparison *comparison,
	struct error *error)
{
	return compare_plan(question, mine, answer, arena, comparison, error);
}

bool planner_find(const struct question *question, enum find find, double target,
	struct arena *arena, struct finding *finding, struct error *error)
{
	return find_answer(question, find, target, arena, finding, error);
}
