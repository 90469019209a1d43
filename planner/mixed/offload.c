/* CPU offload where the devices alone do not suffice: a second search, then fewer units. */
#include "planner/mixed/mixed.h"

#include <string.h>

/* Some plan of the question's runtime can have it. */
static bool is_offered(const struct question *question, const char *value, struct arena *arena)
{
	struct question only = *question;
	struct space space;
	struct error error = {0};
	if (!choices_set(&only.choices, "cpu_offload", "cpu_offload", value, arena, &error) ||
		!space_build(&only, arena, &space, &error))
		return false;
	space_finish(&space);
	return true;
}

bool offload_question(const struct question *question, struct arena *arena, struct question *other)
{
	static const enum offload kinds[] = {OFFLOAD_OPTIMIZER, OFFLOAD_PARAMETERS};
	const char **values = ARENA_ARRAY(arena, const char *, COUNT_OF(kinds));
	int n = 0;
	if (!question_leaves_open(question, "cpu_offload") ||
		question->n_restrictions == QUESTION_RESTRICTIONS_MAX)
		return false;
	for (int i = 0; i < COUNT_OF(kinds); i++)
		if (is_offered(question, offload_names[kinds[i]], arena))
			values[n++] = offload_names[kinds[i]];
	*other = *question;
	other->restrictions[other->n_restrictions++] =
		(struct restriction){"cpu_offload", false, n, values};
	return n > 0;
}

/* --- fewer units ------------------------------------------------------------------------------ */

bool offload_may_be_partial(const struct search *search)
{
	const struct restriction *list = question_restriction(search->question, "cpu_offload");
	bool none = false;
	for (int i = 0; list != NULL && i < list->n; i++)
		none = none || strcmp(list->values[i], offload_names[OFFLOAD_NONE]) == 0;
	return search->offloads || (list != NULL && none != list->forbidden);
}

struct part {
	struct plan plan;
	struct prediction prediction;
	bool fits;
};

/* The last units are offloaded: backward reaches them first, so the host begins early, and forward
 * last, so their shards have time to come in. */
static bool try_part(struct search *search, const struct plan *plan, int64_t kept, int64_t units,
	struct arena *arena, struct part *part, struct error *error)
{
	struct error mine = {0};
	part->plan = *plan;
	part->plan.cpu_offload = arena_printf(arena, "%lldx%s+%lldx%s", (long long)kept,
		offload_names[OFFLOAD_NONE], (long long)(units - kept), plan->cpu_offload);
	part->fits = false;
	if (!evaluator_run(&search->evaluator, &part->plan, &part->prediction, &mine))
		return mine.code == EXIT_CODE_USAGE ||
		       error_set(error, mine.code, "%s", mine.message);
	part->fits = part->prediction.fits == FITS_YES;
	return true;
}

static bool keep_most(
	struct search *search, const struct plan *plan, struct arena *arena, struct error *error)
{
	bool root;
	int64_t units = plan_units(plan, search->question->model, &root), kept = 0, bad = units;
	struct part best = {.fits = false}, part;
	while (bad - kept > 1) {
		int64_t middle = kept + (bad - kept) / 2;
		if (!try_part(search, plan, middle, units, arena, &part, error))
			return false;
		if (part.fits) {
			kept = middle;
			best = part;
		} else {
			bad = middle;
		}
	}
	if (!best.fits)
		return true;
	ranking_add(&search->ranking,
		&(struct ranked){.plan = space_add(&search->space, &best.plan),
			.strategy = best.plan.strategy,
			.costs = costs_of(search->question, &best.plan, &best.prediction),
			.mixed = true});
	return true;
}

bool offload_fewer_units(struct search *search, struct arena *arena, struct error *error)
{
	bool ok = true;
	for (int s = 0; s < STRATEGY_COUNT && offload_may_be_partial(search) && ok; s++) {
		const struct ranked *best = ranking_best(&search->ranking, s);
		if (best == NULL)
			continue;
		const struct plan plan = search->space.plans[best->plan];
		if (plan_offloads_any(&plan) && runs_total(plan.cpu_offload) == 0)
			ok = keep_most(search, &plan, arena, error);
	}
	return ok;
}
