/* CPU offload where the devices alone do not suffice: a second search, then fewer units. */
#include "planner/mixed/mixed.h"
#include "schedule/resolve/resolve.h"

/* Some plan of the question's runtime can have it. */
static bool is_offered(const struct question *question, union knob_value value, struct arena *arena)
{
	struct question only = *question;
	struct space space;
	struct error error = {0};
	question_put(&only, KNOB_CPU_OFFLOAD, value);
	if (!space_build(&only, arena, &space, &error))
		return false;
	space_finish(&space);
	return true;
}

bool offload_question(const struct question *question, struct arena *arena, struct question *other)
{
	static const enum offload kinds[] = {OFFLOAD_OPTIMIZER, OFFLOAD_PARAMETERS};
	struct knob_list list = {0, ARENA_ARRAY(arena, union knob_value, COUNT_OF(kinds))};
	if (!question_is_open(question, KNOB_CPU_OFFLOAD))
		return false;
	for (int i = 0; i < COUNT_OF(kinds); i++) {
		union knob_value value = knob_value_of(KNOB_CPU_OFFLOAD, (int)kinds[i]);
		if (is_offered(question, value, arena))
			list.values[list.n++] = value;
	}
	*other = *question;
	other->only[KNOB_CPU_OFFLOAD] = list;
	return list.n > 0;
}

/* --- fewer units ------------------------------------------------------------------------------ */

static bool has_none(const struct knob_list *list)
{
	union knob_value none = knob_value_of(KNOB_CPU_OFFLOAD, OFFLOAD_NONE);
	for (int i = 0; i < list->n; i++)
		if (knob_value_equal(KNOB_CPU_OFFLOAD, list->values[i], none))
			return true;
	return false;
}

bool offload_may_be_partial(const struct search *search)
{
	const struct question *question = search->question;
	const struct knob_list *only = &question->only[KNOB_CPU_OFFLOAD];
	const struct knob_list *forbidden = &question->forbidden[KNOB_CPU_OFFLOAD];
	if (search->offloads)
		return true;
	return only->n > 0 ? has_none(only) : forbidden->n > 0 && !has_none(forbidden);
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
	const struct rows stays = rows_of_offload(OFFLOAD_NONE);
	part->plan.cpu_offload = rows_split(arena, &stays, kept, &plan->cpu_offload, units - kept);
	part->fits = false;
	if (!evaluator_run(&search->evaluator, &part->plan, &part->prediction, &mine))
		return error_is_refusal(&mine, error);
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
		if (plan_offloads_any(&plan) && plan.cpu_offload.n == 0)
			ok = keep_most(search, &plan, arena, error);
	}
	return ok;
}
