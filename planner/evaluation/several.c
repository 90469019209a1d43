/* Evaluators for work that the caller does on several cores. */
#include "planner/evaluation/evaluation.h"

#include <stdlib.h>

int lent_workers(const struct question *question)
{
	const struct lent *lent = question->lent;
	return lent != NULL && lent->each != NULL && lent->workers > 1 ? lent->workers : 1;
}

void lent_each(const struct question *question, int n,
	void (*piece)(void *data, int index, int worker), void *data)
{
	if (lent_workers(question) > 1 && n > 1) {
		question->lent->each(question->lent->context, n, piece, data);
		return;
	}
	for (int i = 0; i < n; i++)
		piece(data, i, 0);
}

struct question lent_quietly(const struct question *question, bool alone, struct lent *quiet)
{
	struct question beside = *question;
	if (question->lent == NULL)
		return beside;
	*quiet = *question->lent;
	quiet->go_on = NULL;
	quiet->each = alone ? NULL : quiet->each;
	beside.lent = quiet;
	return beside;
}

bool lent_stopped(const struct question *question)
{
	const struct lent *lent = question->lent;
	return lent != NULL && lent->stopped != NULL && lent->stopped(lent->context);
}

void evaluators_init(struct evaluators *evaluators, const struct question *question)
{
	*evaluators = (struct evaluators){.n = lent_workers(question)};
	evaluators->of = calloc((size_t)evaluators->n, sizeof(*evaluators->of));
	if (evaluators->of == NULL)
		base_out_of_memory((size_t)evaluators->n * sizeof(*evaluators->of));
	for (int i = 0; i < evaluators->n; i++)
		evaluators->of[i].question = question;
}

void evaluators_know(struct evaluators *evaluators, const struct divided_models *models)
{
	for (int i = 0; i < evaluators->n; i++)
		evaluators->of[i].known = models;
}

int64_t evaluators_evaluated(const struct evaluators *evaluators)
{
	int64_t evaluated = 0;
	for (int i = 0; i < evaluators->n; i++)
		evaluated += evaluators->of[i].evaluated;
	return evaluated;
}

void evaluators_finish(struct evaluators *evaluators)
{
	for (int i = 0; i < evaluators->n; i++)
		evaluator_finish(&evaluators->of[i]);
	free(evaluators->of);
}

/* --- the caller is told, and asked -------------------------------------------------------------
 */

static double gap_of(const struct search *search, int64_t first)
{
	int64_t least = min_i64(search->least_left, search->least_skipped);
	if (search->least_left < 0 || first <= 0)
		return -1;
	return least >= first ? 0 : (double)(first - least) / (double)first;
}

bool search_goes_on(struct search *search, int64_t plans, int64_t of)
{
	const struct lent *lent = search->question->lent;
	const struct ranked *best;
	struct looked looked = {.plans = plans, .of = of, .gap = -1};
	if (search->stopped || lent == NULL)
		return !search->stopped;
	if (lent->go_on == NULL) {
		search->stopped = lent_stopped(search->question);
		return !search->stopped;
	}
	best = ranking_first(&search->ranking);
	if (best != NULL) {
		looked.step_time = (double)best->costs.of[COST_TIME] * 1e-15 *
				   plan_tokens(&search->space.plans[best->plan]);
		looked.gap = gap_of(search, best->costs.of[search->ranking.objective]);
	}
	search->stopped = !lent->go_on(lent->context, &looked);
	return !search->stopped;
}
