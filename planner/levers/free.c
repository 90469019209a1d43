/* The levers of a plan: which of them it needs, how much each gains, and the best plan with all. */
#include "planner/levers/beside.h"
#include "schedule/resolve/resolve.h"

#include <math.h>
#include <stdlib.h>

static bool is_open(const struct question *question, enum knob_id id)
{
	return knob_table[id].roles & KNOB_LEVER && question_leaves(question, id);
}

const char *lever_typed(enum knob_id id, const struct plan *plan, struct arena *arena)
{
	return arena_printf(arena, "--%s %s", knob_option(id, arena), knob_typed(id, plan, arena));
}

/* --- levers that a plan can do without -------------------------------------------------------- */

/* The difference of two bounds differs from that of the simulated steps by less than this share. */
#define DOUBT 0.1

struct departure {
	enum knob_id id;
	struct plan without;
	int64_t cost; /* of the objective; INT64_MAX: the plan does not work without it */
};

struct letting_go {
	struct evaluator *evaluator;
	enum cost_kind objective;
	int64_t cost, most; /* of the best plan; allowed without its levers */
	bool has_room;      /* of the best plan; a plan without levers must have the same */
	double bound;       /* bound of a pipeline's step in s; 0: no pipeline, or not needed */
	const struct candidate *known; /* has a prediction; or NULL */
	struct candidate *shown;       /* becomes the plan without levers; NULL: it is not shown */
	struct arena *arena;           /* for its strings */
	struct error *error;
};

static bool is_known(const struct candidate *known, const struct plan *plan)
{
	if (known == NULL || known->plan.mesh.replicate != plan->mesh.replicate ||
		known->plan.mesh.shard != plan->mesh.shard)
		return false; /* an empty `known` has no ranks, and ends here too */
	for (int i = 0; i < KNOB_COUNT; i++)
		if (!knob_equal((enum knob_id)i, &known->plan, plan))
			return false;
	return true;
}

/* Predicts step time and memory. */
static bool predict(struct letting_go *l, const struct plan *plan, struct prediction *prediction,
	struct error *error)
{
	const struct topology *topology = l->evaluator->question->topology;
	if (l->objective == COST_NETWORK)
		return evaluator_run(l->evaluator, plan, prediction, error);
	if (!is_known(l->known, plan))
		return evaluator_run_on(l->evaluator, topology, plan, prediction, error);
	*prediction = l->known->prediction;
	return true;
}

/* Predicts everything that is shown of a plan. */
static bool predict_closely(struct letting_go *l, const struct plan *plan,
	struct prediction *prediction, struct error *error)
{
	struct exposure exposure;
	if (is_known(l->known, plan))
		return predict(l, plan, prediction, error);
	if (!evaluator_run_closely(l->evaluator, plan, l->arena, prediction, &exposure, error))
		return false;
	*l->shown = (struct candidate){.plan = *plan, .prediction = *prediction};
	return true;
}

static bool cost_without(
	struct letting_go *l, const struct plan *plan, bool closely, int64_t *cost, bool *room)
{
	const struct question *question = l->evaluator->question;
	struct prediction prediction;
	struct error mine = {0};
	*cost = INT64_MAX;
	*room = false;
	if (!plan_check(plan, question->model, question->topology, &mine) ||
		!(closely ? predict_closely : predict)(l, plan, &prediction, &mine))
		return error_is_refusal(&mine, l->error);
	if (prediction.fits == FITS_NO)
		return true;
	*room = has_room(question, plan, &prediction);
	*cost = costs_of(question, plan, &prediction).of[l->objective];
	return true;
}

/* Puts one knob back to its default. */
static void let_go(enum knob_id id, const struct plan *usual, struct plan *plan)
{
	if (id == KNOB_WRAP)
		plan->wrap = wrap_of_kind(WRAP_BLOCK);
	else
		knob_put(id, plan, knob_get(id, usual));
}

static bool is_departure(const struct question *question, enum knob_id id, const struct plan *usual,
	const struct plan *plan)
{
	return question->freed & KNOB_BIT(id) && is_open(question, id) && space_pulls(id, plan) &&
	       (id == KNOB_WRAP || !knob_equal(id, plan, usual));
}

static int by_cost(const void *a, const void *b)
{
	const struct departure *x = a, *y = b;
	return x->cost != y->cost ? (x->cost < y->cost ? -1 : 1) : (int)x->id - (int)y->id;
}

/* Does a plan cost too much, judged by how much its bound exceeds that of the best plan? Simulating
 * a pipeline takes long. */
static bool costs_too_much(const struct letting_go *l, const struct plan *plan)
{
	struct error error = {0};
	const struct question *question = l->evaluator->question;
	if (l->bound <= 0 || !plan_check(plan, question->model, question->topology, &error))
		return false;
	double more = evaluator_bound_time(l->evaluator, plan) - l->bound;
	return (double)costs_time(plan, fmax(0, more)) * (1 - DOUBT) > (double)(l->most - l->cost);
}

/* Tries to drop all levers of a pipeline at once. If that costs too much, the caller drops them one
 * by one. */
static bool let_all_go(
	struct letting_go *l, const struct plan *usual, struct plan *plan, bool *gone)
{
	const struct question *question = l->evaluator->question;
	struct plan without = *plan;
	int64_t cost;
	bool room;
	*gone = false;
	if (l->bound <= 0)
		return true;
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		struct plan alone = *plan;
		if (!is_departure(question, id, usual, plan))
			continue;
		let_go(id, usual, &alone);
		if (!costs_too_much(l, &alone))
			let_go(id, usual, &without);
	}
	if (!cost_without(l, &without, l->shown != NULL, &cost, &room))
		return false;
	*gone = cost <= l->most && room == l->has_room;
	if (*gone)
		*plan = without;
	return true;
}

static bool find_departures(struct letting_go *l, const struct plan *plan, const struct plan *usual,
	struct departure departures[KNOB_COUNT], int *n)
{
	const struct question *question = l->evaluator->question;
	*n = 0;
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		struct departure *departure = &departures[*n];
		bool room;
		if (!is_departure(question, id, usual, plan))
			continue;
		*departure = (struct departure){.id = id, .without = *plan};
		let_go(id, usual, &departure->without);
		if (costs_too_much(l, &departure->without))
			continue;
		if (!cost_without(l, &departure->without, false, &departure->cost, &room))
			return false;
		if (departure->cost <= l->most && room == l->has_room)
			(*n)++;
	}
	qsort(departures, (size_t)*n, sizeof(*departures), by_cost);
	return true;
}

bool levers_let_go(struct evaluator *evaluator, const struct ranking *ranking,
	const struct ranked *best, const struct candidate *known, struct candidate *shown,
	struct arena *arena, struct plan *plan, struct error *error)
{
	const struct question *question = evaluator->question;
	struct letting_go l = {.evaluator = evaluator,
		.objective = ranking->objective,
		.cost = best->costs.of[ranking->objective],
		.most = (int64_t)((double)best->costs.of[ranking->objective] *
				  (1 + question->simplicity)),
		.has_room = !best->tight,
		.known = known,
		.shown = shown,
		.arena = arena,
		.error = error};
	struct departure departures[KNOB_COUNT];
	struct arena mine = {0};
	struct plan usual;
	int64_t cost;
	int n = 0;
	bool ok = true, room, gone;
	if (question->freed != 0 && usual_plan(question, plan, &mine, &usual)) {
		if (plan->mesh.pipeline > 1 && l.objective == COST_TIME)
			l.bound = evaluator_bound_time(evaluator, plan);
		ok = let_all_go(&l, &usual, plan, &gone);
		if (ok && !gone)
			ok = find_departures(&l, plan, &usual, departures, &n);
	}
	if (n > 0)
		*plan = departures[0].without;
	for (int i = 1; i < n && ok; i++) {
		struct plan without = *plan;
		let_go(departures[i].id, &usual, &without);
		ok = cost_without(&l, &without, false, &cost, &room);
		if (ok && cost <= l.most && room == l.has_room)
			*plan = without;
	}
	arena_finish(&mine);
	return ok;
}

/* --- the gain of each lever ------------------------------------------------------------------- */

static int by_gain(const void *a, const void *b)
{
	const struct lever *x = a, *y = b;
	if (x->gain != y->gain)
		return x->gain > y->gain ? -1 : 1;
	return (x->peak_memory_bytes > y->peak_memory_bytes) -
	       (x->peak_memory_bytes < y->peak_memory_bytes);
}

static bool is_worth_a_row(const struct lever *lever, const struct prediction *chosen)
{
	double saved = (double)(prediction_wanted_bytes(chosen) - lever->peak_memory_bytes);
	return lever->gain >= WORTH_TIME ||
	       (lever->gain > -WORTH_TIME &&
		       saved >= WORTH_MEMORY * (double)chosen->memory_limit_bytes);
}

/* Adds a lever, or replaces its row if this value gains more. */
static void take_best(struct answer *answer, const struct lever *lever)
{
	int i = 0;
	while (i < answer->n_levers && answer->levers[i].id != lever->id)
		i++;
	if (i == answer->n_levers)
		answer->levers[answer->n_levers++] = *lever;
	else if (by_gain(lever, &answer->levers[i]) < 0)
		answer->levers[i] = *lever;
}

/* Can the configuration that the plan has to be said in (`--for`) say this knob's value too? */
static bool can_be_said(const struct question *question, enum knob_id id, const struct plan *plan,
	struct arena *arena)
{
	const struct plan said = question_settle(question, plan, arena);
	return !wording_may_change(id) || knob_equal(id, plan, &said);
}

static void list_knobs(const struct question *question, const struct candidate *chosen,
	const struct variants *variants, struct arena *arena, struct answer *answer)
{
	for (int i = 0; i < variants->n; i++) {
		const struct variant *variant = &variants->items[i];
		struct lever lever = {.gain = 1 - variant->step_time / chosen->prediction.step_time,
			.id = variant->id,
			.step_time = variant->step_time,
			.peak_memory_bytes = variant->prediction.peak_memory_bytes};
		if (!variant->built || variant->id == KNOB_COUNT ||
			!is_open(question, variant->id) ||
			!space_pulls(variant->id, &variant->plan) ||
			!can_be_said(question, variant->id, &variant->plan, arena) ||
			!has_room(question, &variant->plan, &variant->prediction) ||
			!is_worth_a_row(&lever, &chosen->prediction))
			continue;
		lever.typed = lever_typed(variant->id, &variant->plan, arena);
		take_best(answer, &lever);
	}
}

/* Drops the lever of attention where a newer PyTorch calls its kernel without being asked. */
static void drop_attention_of_newer(struct answer *answer, const struct plan *chosen)
{
	bool named = libraries_named(&chosen->libraries), newer = false;
	int n = 0;
	for (int i = 0; i < answer->n_levers; i++)
		newer = newer || (!named && answer->levers[i].id == KNOB_LIBRARIES);
	for (int i = 0; i < answer->n_levers; i++)
		if (!newer || answer->levers[i].id != KNOB_ATTENTION)
			answer->levers[n++] = answer->levers[i];
	answer->n_levers = n;
}

static bool list_levers(const struct question *question, const struct candidate *chosen,
	const struct variants *variants, struct arena *arena, struct answer *answer,
	struct error *error)
{
	struct lever beside[BESIDE_MOST];
	int n;
	answer->levers = ARENA_ARRAY(arena, struct lever, variants->n + BESIDE_MOST);
	list_knobs(question, chosen, variants, arena, answer);
	if (!beside_find(question, chosen, arena, beside, &n, error))
		return false;
	for (int i = 0; i < n; i++)
		if (is_worth_a_row(&beside[i], &chosen->prediction))
			take_best(answer, &beside[i]);
	drop_attention_of_newer(answer, &chosen->plan);
	qsort(answer->levers, (size_t)answer->n_levers, sizeof(*answer->levers), by_gain);
	return true;
}

/* --- all levers together ---------------------------------------------------------------------- */

/* The question with all levers free. Knobs of communication and the order of passes stay, and in a
 * pipeline all ranks that divide the model, because levers gain about as much with other values.
 * Checkpointing, offload and the batch are open, because levers free memory for them. Of the levers
 * that may make a step slower only activation offload is searched, where memory is short; the
 * others gain little. */
static struct question free_question(const struct question *question, const struct plan *chosen)
{
	static const enum knob_id stay[] = {KNOB_STRATEGY, KNOB_SHARD_GROUP,
		KNOB_RESHARD_AFTER_FORWARD, KNOB_WRAP, KNOB_PREFETCH, KNOB_FORWARD_PREFETCH,
		KNOB_LIMIT_ALL_GATHERS},
				  of_axes[] = {KNOB_PIPELINE, KNOB_PIPELINE_SCHEDULE,
					  KNOB_VIRTUAL_STAGES, KNOB_TENSOR, KNOB_CONTEXT,
					  KNOB_EXPERT, KNOB_EXPERT_TENSOR};
	struct question all = *question;
	bool short_of_memory =
		!plan_checkpoints(chosen, CHECKPOINTING_NONE) || plan_offloads_any(chosen);
	for (int i = 0; i < KNOB_COUNT; i++)
		if (is_open(question, (enum knob_id)i) &&
			(knob_table[i].roles & KNOB_NEVER_WORSE ||
				(i == KNOB_ACTIVATION_OFFLOAD && short_of_memory)))
			all.freed |= KNOB_BIT(i);
	all.given &= ~all.freed; /* what was only kept */
	all.freed_by_name = 0;
	all.pareto = false;
	all.wanted = WANTED_BEST;
	for (int i = 0; i < COUNT_OF(stay); i++)
		if (stay[i] != KNOB_SHARD_GROUP || strategy_is_hybrid(chosen->strategy))
			question_take(&all, stay[i], chosen);
	for (int i = 0; i < COUNT_OF(of_axes) && chosen->mesh.pipeline > 1; i++)
		question_take(&all, of_axes[i], chosen);
	return all;
}

static bool search_free(const struct question *question, const struct candidate *chosen,
	struct arena *arena, struct plan_option *option, struct error *error)
{
	struct search search;
	struct candidate shown = {0};
	struct exposure exposure;
	struct error mine = {0};
	/* The prediction of the chosen plan holds only for the question's own model and
	 * libraries. */
	const struct candidate *known = option->typed[0] == '\0' ? chosen : NULL;
	bool ok = search_run(question, arena, &search, &mine) &&
		  search_share_stages(&search, arena, &mine);
	const struct ranked *best =
		ok && !search.stopped ? ranking_best(&search.ranking, STRATEGY_COUNT) : NULL;
	if (best != NULL) {
		option->plan = search.space.plans[best->plan];
		ok = levers_let_go(&search.evaluator, &search.ranking, best, known, &shown, arena,
			&option->plan, &mine);
		option->prediction = chosen->prediction;
		if (ok && is_known(&shown, &option->plan))
			option->prediction = shown.prediction;
		else if (ok && !is_known(known, &option->plan))
			ok = evaluator_run_closely(&search.evaluator, &option->plan, arena,
				&option->prediction, &exposure, &mine);
		option->gain =
			1 - option->prediction.step_time / plan_tokens(&option->plan) /
				    (chosen->prediction.step_time / plan_tokens(&chosen->plan));
	}
	search_finish(&search);
	return ok || error_is_refusal(&mine, error);
}

/* Finds the best plan with all levers free, if it gains more than the best single lever. */
static bool find_free(const struct question *question, const struct candidate *chosen,
	struct arena *arena, struct answer *answer, struct error *error)
{
	struct question all = free_question(question, &chosen->plan);
	struct plan_option *option = ARENA_NEW(arena, struct plan_option);
	if (answer->n_levers == 0 || all.freed == question->freed)
		return true;
	*option = (struct plan_option){.typed = beside_pull(answer, arena, &all)};
	double gain = fmax(0, answer->levers[0].gain);
	all.beat = costs_time(&chosen->plan, (1 - gain) * chosen->prediction.step_time);
	if (!search_free(&all, chosen, arena, option, error))
		return false;
	/* The search leaves CPU offload out where the chosen plan has it, so its plan may be
	 * slower. */
	answer->free = option->gain > fmax(0, answer->levers[0].gain) ? option : NULL;
	return true;
}

bool levers_find(const struct question *question, const struct candidate *chosen,
	const struct variants *variants, struct arena *arena, struct answer *answer,
	struct error *error)
{
	struct lent quiet;
	const struct question beside = lent_quietly(question, false, &quiet);
	if (question->objective != OBJECTIVE_TIME || question->topology->device.kind != DEVICE_GPU)
		return true;
	return list_levers(question, chosen, variants, arena, answer, error) &&
	       find_free(&beside, chosen, arena, answer, error) &&
	       elsewhere_find(&beside, chosen, arena, &answer->elsewhere, error);
}
