/* The user's plan beside the chosen one: what it costs, why, and which knob to turn. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/defence/defence.h"
#include "schedule/resolve/resolve.h"

struct comparing {
	struct evaluator evaluator;
	struct arena *arena;
	const struct plan *mine, *chosen;
	struct comparison *comparison;
};

/* --- knobs ------------------------------------------------------------------------------------ */

/* With some knobs come others. */
static uint64_t comes_with(enum knob_id id)
{
	if (id == KNOB_STRATEGY)
		return KNOB_BIT(KNOB_RESHARD_AFTER_FORWARD) | KNOB_BIT(KNOB_RUNTIME);
	return id == KNOB_MICRO_BATCH ? KNOB_BIT(KNOB_GRAD_ACCUM) : 0;
}

static struct plan with_knob(enum knob_id id, const struct plan *plan, const struct plan *chosen)
{
	uint64_t taken = KNOB_BIT(id) | comes_with(id);
	struct plan with = *plan;
	for (int k = 0; k < KNOB_IN_MESH; k++)
		if (taken & KNOB_BIT(k))
			knob_put((enum knob_id)k, &with, knob_get((enum knob_id)k, chosen));
	if (id == KNOB_STRATEGY)
		with.mesh = chosen->mesh;
	return with;
}

static const char *value_of(enum knob_id id, const struct plan *plan, struct arena *arena)
{
	const char *value = knob_text(id, plan, arena);
	if (id == KNOB_STRATEGY && strategy_is_hybrid(plan->strategy))
		return arena_printf(arena, "%s/%lld", value, (long long)plan->mesh.shard);
	if (id == KNOB_MICRO_BATCH)
		return arena_printf(arena, "%s x %lld", value, (long long)plan->grad_accum);
	return value;
}

/* --- changes ---------------------------------------------------------------------------------- */

static bool try_change(
	struct comparing *c, struct change *change, const struct plan *plan, struct error *error)
{
	const struct question *question = c->evaluator.question;
	struct error mine = {0};
	change->note = "";
	if (plan_check(plan, question->model, question->topology, &mine) &&
		evaluator_run(&c->evaluator, plan, &change->prediction, &mine)) {
		change->built = true;
		if (change->prediction.fits == FITS_NO)
			change->note = excess_note(&change->prediction, c->arena);
		return true;
	}
	change->note = arena_strdup(c->arena, mine.message);
	return error_is_refusal(&mine, error);
}

static bool add_change(struct comparing *c, enum knob_id id, struct error *error)
{
	struct comparison *comparison = c->comparison;
	struct plan plan = with_knob(id, c->mine, c->chosen);
	struct change *change = &comparison->changes[comparison->n];
	const char *from = value_of(id, c->mine, c->arena);
	const char *to = value_of(id, c->chosen, c->arena);
	/* With another strategy come its own resharding. */
	if (strcmp(from, to) == 0 ||
		(id == KNOB_RESHARD_AFTER_FORWARD && c->mine->strategy != c->chosen->strategy))
		return true;
	*change = (struct change){.knob = knob_table[id].field.name, .from = from, .to = to};
	comparison->n++;
	return try_change(c, change, &plan, error);
}

static double worth(const struct change *change)
{
	return change->built && change->prediction.fits != FITS_NO ? change->prediction.step_time
								   : INFINITY;
}

static int by_worth(const void *left, const void *right)
{
	double a = worth(left), b = worth(right);
	if (a != b)
		return a < b ? -1 : 1;
	return strcmp(((const struct change *)left)->knob, ((const struct change *)right)->knob);
}

static bool find_changes(struct comparing *c, struct error *error)
{
	c->comparison->changes = ARENA_ARRAY(c->arena, struct change, KNOB_COUNT);
	for (int id = 0; id < KNOB_COUNT; id++)
		if (knob_table[id].roles & KNOB_COMPARED && !add_change(c, (enum knob_id)id, error))
			return false;
	qsort(c->comparison->changes, (size_t)c->comparison->n, sizeof(struct change), by_worth);
	return true;
}

/* --- the statement ---------------------------------------------------------------------------- */

static bool judge(struct comparing *c, const struct answer *answer, struct exposure *exposure,
	struct error *error)
{
	const struct question *question = c->evaluator.question;
	struct candidate *mine = &c->comparison->mine;
	struct contender other = {&mine->plan, &mine->prediction, exposure}, chosen;
	struct exposure best;
	struct prediction again;
	if (mine->prediction.fits == FITS_NO)
		mine->why_not = defend_too_large(&mine->prediction, c->arena);
	if (answer->chosen == NULL || mine->prediction.fits == FITS_NO) {
		c->comparison->statement = arena_printf(c->arena, "Your plan %s",
			mine->prediction.fits == FITS_NO ? mine->why_not : "fits");
		return true;
	}
	if (!evaluator_run_closely(
		    &c->evaluator, &answer->chosen->plan, c->arena, &again, &best, error))
		return false;
	chosen = (struct contender){&answer->chosen->plan, &answer->chosen->prediction, &best};
	mine->why_not = defend_slower(question, &chosen, &other, c->arena);
	c->comparison->statement =
		arena_printf(c->arena, "Against the best plan, yours is %s", mine->why_not);
	return true;
}

bool compare_plan(const struct question *question, const struct plan *mine,
	const struct answer *answer, struct arena *arena, struct comparison *comparison,
	struct error *error)
{
	struct comparing c = {.evaluator = {.question = question},
		.arena = arena,
		.mine = mine,
		.comparison = comparison};
	struct exposure exposure;
	*comparison = (struct comparison){
		.mine = {.plan = *mine, .outcome = OUTCOME_SLOWER, .why_not = ""}};
	bool ok = plan_check(mine, question->model, question->topology, error) &&
		  evaluator_run_closely(&c.evaluator, mine, arena, &comparison->mine.prediction,
			  &exposure, error);
	if (ok && comparison->mine.prediction.fits == FITS_NO)
		comparison->mine.outcome = OUTCOME_DOES_NOT_FIT;
	ok = ok && judge(&c, answer, &exposure, error);
	if (ok && answer->chosen != NULL) {
		c.chosen = &answer->chosen->plan;
		ok = find_changes(&c, error);
	}
	evaluator_finish(&c.evaluator);
	return ok;
}
