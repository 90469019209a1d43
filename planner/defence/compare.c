/* The user's plan beside the chosen one: what it costs, why, and which knob to turn. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/defence/defence.h"

struct comparing {
	struct evaluator evaluator;
	struct arena *arena;
	const struct plan *mine, *chosen;
	struct comparison *comparison;
};

/* --- knobs ------------------------------------------------------------------------------------ */

static void take_strategy(struct plan *plan, const struct plan *chosen)
{
	plan->strategy = chosen->strategy;
	plan->mesh = chosen->mesh;
	plan->reshard_after_forward = chosen->reshard_after_forward;
	plan->runtime = chosen->runtime;
}

static void take_batch(struct plan *plan, const struct plan *chosen)
{
	plan->micro_batch = chosen->micro_batch;
	plan->grad_accum = chosen->grad_accum;
}

static void take_reshard(struct plan *plan, const struct plan *chosen)
{
	plan->reshard_after_forward = chosen->reshard_after_forward;
}

static void take_wrap(struct plan *plan, const struct plan *chosen)
{
	plan->wrap = chosen->wrap;
}

static void take_prefetch(struct plan *plan, const struct plan *chosen)
{
	plan->prefetch = chosen->prefetch;
}

static void take_forward_prefetch(struct plan *plan, const struct plan *chosen)
{
	plan->forward_prefetch = chosen->forward_prefetch;
}

static void take_limiter(struct plan *plan, const struct plan *chosen)
{
	plan->limit_all_gathers = chosen->limit_all_gathers;
}

static void take_checkpointing(struct plan *plan, const struct plan *chosen)
{
	plan->activation_checkpointing = chosen->activation_checkpointing;
}

static void take_offload(struct plan *plan, const struct plan *chosen)
{
	plan->cpu_offload = chosen->cpu_offload;
}

static void take_sync(struct plan *plan, const struct plan *chosen)
{
	plan->sync_each_micro_batch = chosen->sync_each_micro_batch;
}

static const struct knob {
	const char *name;
	void (*take)(struct plan *plan, const struct plan *chosen);
} knobs[] = {{"strategy", take_strategy}, {"reshard_after_forward", take_reshard},
	{"wrap", take_wrap}, {"activation_checkpointing", take_checkpointing},
	{"micro_batch", take_batch}, {"sync_each_micro_batch", take_sync},
	{"prefetch", take_prefetch}, {"forward_prefetch", take_forward_prefetch},
	{"limit_all_gathers", take_limiter}, {"cpu_offload", take_offload}};

static const char *value_of(const char *knob, const struct plan *plan, struct arena *arena)
{
	struct text text = {0};
	fields_print_one(fields_find(plan_fields, knob), plan, &text);
	if (strcmp(knob, "strategy") == 0 && strategy_is_hybrid(plan->strategy))
		text_printf(&text, "/%lld", (long long)plan->mesh.shard);
	if (strcmp(knob, "micro_batch") == 0)
		text_printf(&text, " x %lld", (long long)plan->grad_accum);
	const char *value = arena_strdup(arena, text_string(&text));
	text_finish(&text);
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
		char bytes[32];
		int64_t over = prediction_excess_bytes(&change->prediction);
		change->built = true;
		if (change->prediction.fits == FITS_NO)
			change->note = arena_printf(c->arena, "does not fit: over by %s",
				format_bytes(bytes, (double)over));
		return true;
	}
	change->note = arena_strdup(c->arena, mine.message);
	return mine.code == EXIT_CODE_USAGE || error_set(error, mine.code, "%s", mine.message);
}

static bool add_change(struct comparing *c, const struct knob *knob, struct error *error)
{
	struct comparison *comparison = c->comparison;
	struct plan plan = *c->mine;
	struct change *change = &comparison->changes[comparison->n];
	const char *from = value_of(knob->name, c->mine, c->arena);
	const char *to = value_of(knob->name, c->chosen, c->arena);
	/* With another strategy come its own resharding. */
	if (strcmp(from, to) == 0 ||
		(knob->take == take_reshard && c->mine->strategy != c->chosen->strategy))
		return true;
	knob->take(&plan, c->chosen);
	*change = (struct change){.knob = knob->name, .from = from, .to = to};
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
	c->comparison->changes = ARENA_ARRAY(c->arena, struct change, COUNT_OF(knobs));
	for (int i = 0; i < COUNT_OF(knobs); i++)
		if (!add_change(c, &knobs[i], error))
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
