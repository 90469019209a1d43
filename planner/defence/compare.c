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
	struct plan base; /* `mine` on the runtime of the chosen plan */
	struct comparison *comparison;
};

/* --- knobs ------------------------------------------------------------------------------------ */

/* Knobs that change together with another one. */
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
	const char *value = knob_typed(id, plan, arena);
	if (id == KNOB_STRATEGY && strategy_is_hybrid(plan->strategy))
		return arena_printf(arena, "%s/%lld", value, (long long)plan->mesh.shard);
	if (id == KNOB_MICRO_BATCH)
		return arena_printf(arena, "%s x %lld", value, (long long)plan->grad_accum);
	return value;
}

/* --- changes ---------------------------------------------------------------------------------- */

/* Predicts the changed plan. `with`: the note if it fits, which says what else changed; or "". */
static bool try_change(struct comparing *c, struct change *change, const struct plan *plan,
	const char *with, struct error *error)
{
	const struct question *question = c->evaluator.question;
	struct error mine = {0};
	if (plan_check(plan, question->model, question->topology, &mine) &&
		evaluator_run(&c->evaluator, plan, &change->prediction, &mine)) {
		change->built = true;
		change->note = change->prediction.fits == FITS_NO
				       ? excess_note(&change->prediction, c->arena)
				       : with;
		return true;
	}
	change->note = arena_strdup(c->arena, mine.message);
	return error_is_refusal(&mine, error);
}

/* Another wrap policy has other units, which a list by unit no longer fits. */
static struct plan with_units(const struct plan *plan, const struct plan *chosen)
{
	struct plan with = with_knob(KNOB_RESHARD_AFTER_FORWARD, plan, chosen);
	return with_knob(KNOB_CPU_OFFLOAD, &with, chosen);
}

/* Changes one knob alone; where that makes no plan, together with lists by unit, or the strategy.
 */
static bool try_knob(
	struct comparing *c, enum knob_id id, struct change *change, struct error *error)
{
	bool moved = c->base.runtime != c->mine->runtime;
	struct plan plan = with_knob(id, &c->base, c->chosen);
	if (!try_change(c, change, &plan, moved ? "with the runtime" : "", error))
		return false;
	if (!change->built && id == KNOB_WRAP) {
		plan = with_units(&plan, c->chosen);
		if (!try_change(c, change, &plan, "with the resharding", error))
			return false;
	}
	if (change->built || c->base.strategy == c->chosen->strategy)
		return true;
	plan = with_knob(KNOB_STRATEGY, &plan, c->chosen);
	return try_change(c, change, &plan, "with the strategy", error);
}

static bool add_change(struct comparing *c, enum knob_id id, struct error *error)
{
	struct comparison *comparison = c->comparison;
	struct change *change = &comparison->changes[comparison->n];
	const char *from = value_of(id, &c->base, c->arena);
	const char *to = value_of(id, c->chosen, c->arena);
	/* Another strategy brings its own resharding. A single micro-batch is always reduced. */
	if (strcmp(from, to) == 0 ||
		(id == KNOB_RESHARD_AFTER_FORWARD && c->base.strategy != c->chosen->strategy) ||
		(id == KNOB_SYNC_EACH_MICRO_BATCH && c->chosen->grad_accum == 1))
		return true;
	*change = (struct change){.knob = knob_table[id].field.name, .from = from, .to = to};
	comparison->n++;
	return try_knob(c, id, change, error);
}

/* Changes the runtime, and all knobs that only one of the two runtimes has, in one row. Where the
 * other runtime lacks the strategy, the strategy changes with it. */
static bool add_runtime(struct comparing *c, struct error *error)
{
	struct comparison *comparison = c->comparison;
	struct change *change = &comparison->changes[comparison->n];
	struct plan *base = &c->base;
	*base = *c->mine;
	if (base->runtime == c->chosen->runtime)
		return true;
	base->runtime = c->chosen->runtime;
	for (int id = KNOB_PREFETCH; id <= KNOB_LIMIT_ALL_GATHERS; id++)
		knob_take_honoured((enum knob_id)id, base);
	*change = (struct change){.knob = knob_table[KNOB_RUNTIME].field.name,
		.from = runtime_names[c->mine->runtime],
		.to = runtime_names[c->chosen->runtime]};
	comparison->n++;
	if (!try_change(c, change, base, "", error))
		return false;
	if (change->built)
		return true;
	*base = with_knob(KNOB_STRATEGY, base, c->chosen);
	return try_change(c, change, base, "with the strategy", error);
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
	struct comparison *comparison = c->comparison;
	comparison->changes = ARENA_ARRAY(c->arena, struct change, KNOB_COUNT + 1);
	if (!add_runtime(c, error))
		return false;
	int first = comparison->n;
	for (int id = 0; id < KNOB_COUNT; id++)
		if (knob_table[id].roles & KNOB_COMPARED && !add_change(c, (enum knob_id)id, error))
			return false;
	qsort(comparison->changes + first, (size_t)(comparison->n - first), sizeof(struct change),
		by_worth);
	return true;
}

/* --- the statement ---------------------------------------------------------------------------- */

/* The best plan with the runtime and strategy of `mine`. NULL: the chosen plan has that strategy,
 * or none fits. */
static const struct candidate *best_alike(const struct comparing *c, const struct answer *answer)
{
	if (c->mine->strategy == answer->chosen->plan.strategy)
		return NULL;
	for (int i = 0; i < answer->n_alternatives; i++) {
		const struct candidate *other = &answer->alternatives[i];
		if (other->plan.strategy == c->mine->strategy &&
			other->plan.runtime == c->mine->runtime && other->outcome == OUTCOME_SLOWER)
			return other;
	}
	return NULL;
}

/* Explains in `*why` what `mine` loses against another plan. */
static bool against(struct comparing *c, const struct candidate *best, struct exposure *exposure,
	const char **why, struct error *error)
{
	struct candidate *mine = &c->comparison->mine;
	struct contender other = {&mine->plan, &mine->prediction, exposure}, winner;
	struct exposure exposed;
	struct prediction again;
	if (!evaluator_run_closely(&c->evaluator, &best->plan, c->arena, &again, &exposed, error))
		return false;
	winner = (struct contender){&best->plan, &best->prediction, &exposed};
	*why = defend_slower(c->evaluator.question, &winner, &other, c->arena, &mine->briefly);
	return true;
}

static bool judge(struct comparing *c, const struct answer *answer, struct exposure *exposure,
	struct error *error)
{
	struct candidate *mine = &c->comparison->mine;
	const char *why;
	if (mine->prediction.fits == FITS_NO)
		mine->why_not = defend_too_large(&mine->prediction, false, c->arena);
	if (answer->chosen == NULL || mine->prediction.fits == FITS_NO) {
		c->comparison->statement = arena_printf(c->arena, "Your plan %s",
			mine->prediction.fits == FITS_NO ? mine->why_not : "fits");
		return true;
	}
	if (!against(c, answer->chosen, exposure, &mine->why_not, error))
		return false;
	c->comparison->statement =
		arena_printf(c->arena, "Against the best plan, yours is %s", mine->why_not);
	const struct candidate *alike = best_alike(c, answer);
	if (alike == NULL)
		return true;
	if (!against(c, alike, exposure, &why, error))
		return false;
	c->comparison->statement =
		arena_printf(c->arena, "Against the best %s plan, yours is %s. %s",
			strategy_names[c->mine->strategy], why, c->comparison->statement);
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
