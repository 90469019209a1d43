/* Pipelines whose blocks are shared out over stages differently than their framework does. */
#include "planner/search/search.h"

#include <math.h>
#include <stdlib.h>

#include "planner/mixed/mixed.h"
#include "planner/search/turns.h"

enum { SHARED_MOST = 4 }; /* pipelines that are tried */

/* Are the two plans so similar that only the better one is tried? */
static bool are_alike(const struct plan *a, const struct plan *b)
{
	return a->strategy == b->strategy && a->mesh.pipeline == b->mesh.pipeline &&
	       knob_equal(KNOB_PIPELINE_SCHEDULE, a, b) && knob_equal(KNOB_VIRTUAL_STAGES, a, b);
}

/* The step time that a plan with one more departure must stay below to be the best of its
 * strategy. */
static double wanted(const struct search *search, const struct plan *plan, double usual)
{
	const struct ranked *best = ranking_best(&search->ranking, (int)plan->strategy);
	double most = costs_step_above(plan, best->costs.of[COST_TIME]);
	return fmin(most, usual) * (1 - search->question->simplicity);
}

static bool share(
	struct search *search, const struct ranked *entry, struct arena *arena, struct error *error)
{
	const struct plan plan = search->space.plans[entry->plan];
	struct prediction usual;
	struct shared shared;
	const struct close_look *look = search->known[entry->plan].look;
	double step = costs_step_above(&plan, entry->costs.of[COST_TIME]);
	if (!stages_may_share(search->question, &plan, step, wanted(search, &plan, step), arena))
		return true;
	if (look != NULL)
		usual = look->prediction;
	else if (!evaluator_run_on(
			 &search->evaluator, search->question->topology, &plan, &usual, error))
		return false;
	usual = evaluator_kept(&usual, arena);
	if (!stages_share(&search->evaluator, &plan, &usual, wanted(search, &plan, usual.step_time),
		    arena, &shared, error))
		return false;
	if (!shared.exists)
		return true;
	search_put(search, entry->plan, &shared.plan, &shared.prediction, entry->departures + 1);
	if (ranking_best(&search->ranking, STRATEGY_COUNT)->plan == entry->plan)
		search->unshared = usual.step_time;
	return true;
}

bool search_share_stages(struct search *search, struct arena *arena, struct error *error)
{
	const struct question *question = search->question;
	struct ranked entries[SHARED_MOST];
	int n = 0;
	if (question->objective != OBJECTIVE_TIME || !question->mixes || search->stopped)
		return true;
	for (int i = 0; i < search->ranking.n && n < SHARED_MOST; i++) {
		const struct ranked *entry = &search->ranking.entries[i];
		const struct plan *plan = &search->space.plans[entry->plan];
		bool seen = entry->tight || !stages_are_open(question, plan);
		for (int j = 0; j < n; j++)
			seen = seen || are_alike(plan, &search->space.plans[entries[j].plan]);
		if (!seen)
			entries[n++] = *entry;
	}
	for (int i = 0; i < n; i++)
		if (!share(search, &entries[i], arena, error))
			return false;
	return true;
}
