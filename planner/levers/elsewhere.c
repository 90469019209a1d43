/* A search with another framework, of which only a clearly faster plan is reported. */
#include "planner/levers/beside.h"

/* A smaller gain is within the doubt of two predictions that have little in common. */
#define CLEARLY 0.10

/* The effort of the search in blocks x micro-batches: enough for the first plan that fits and a few
 * more. */
enum { EFFORT = 400 };

/* Frameworks for large models, which divide them in other ways than PyTorch's own FSDP and DDP. */
static const enum runtime_kind others[] = {RUNTIME_MEGATRON};

/* Is another framework worth a search? It is if the user has not chosen a runtime, and if the
 * machine is one on which frameworks divide a model differently. */
static bool is_asked(const struct question *question, const struct candidate *chosen)
{
	return question->wanted == WANTED_ALL && question->wording == NULL &&
	       question_leaves(question, KNOB_RUNTIME) &&
	       runtime_of(chosen->plan.runtime)->zero == NULL &&
	       (question->topology->nodes > 1 || has_axes(&chosen->plan));
}

/* The same question for another runtime. Context ranks are not added if the chosen plan has
 * none. */
static struct question ask(const struct question *question, const struct plan *chosen,
	enum runtime_kind runtime, int64_t beat)
{
	struct question other = *question;
	other.given &= ~(question->kept & knobs_of_role(KNOB_LEVER));
	question_put(&other, KNOB_RUNTIME, (union knob_value){.choice = runtime});
	if (chosen->mesh.context == 1)
		question_take(&other, KNOB_CONTEXT, chosen);
	other.effort = EFFORT;
	other.wanted = WANTED_BEST;
	other.mixes = other.pareto = other.thresholds = false;
	other.beat = beat;
	return other;
}

/* `*beat`: the cost of a token in the best plan so far; lowered if a better plan is found. The
 * search stops early, so an even better plan may exist. */
static bool try_runtime(const struct question *question, const struct plan *chosen,
	enum runtime_kind runtime, struct arena *arena, int64_t *beat, struct lever *lever,
	struct error *error)
{
	const struct question other = ask(question, chosen, runtime, *beat);
	struct arena scratch = {0};
	struct search search;
	struct error mine = {0};
	bool ok = search_run(&other, &scratch, &search, &mine);
	const struct ranked *best =
		ok && !search.stopped ? ranking_best(&search.ranking, STRATEGY_COUNT) : NULL;
	if (best != NULL && !best->tight && best->costs.of[COST_TIME] <= *beat) {
		const struct plan *plan = &search.space.plans[best->plan];
		*beat = best->costs.of[COST_TIME];
		*lever = (struct lever){.id = KNOB_RUNTIME,
			.typed = lever_typed(KNOB_RUNTIME, plan, arena),
			.step_time = 1e-15 * (double)*beat * plan_tokens(plan),
			.global_batch = plan->global_batch,
			.peak_memory_bytes = best->costs.of[COST_MEMORY]};
	}
	search_finish(&search);
	arena_finish(&scratch);
	return ok || error_is_refusal(&mine, error);
}

bool elsewhere_find(const struct question *question, const struct candidate *chosen,
	struct arena *arena, struct lever **found, struct error *error)
{
	struct lever *lever = ARENA_NEW(arena, struct lever);
	int64_t now = costs_time(&chosen->plan, chosen->prediction.step_time);
	int64_t beat = (int64_t)((1 - CLEARLY) * (double)now);
	*lever = (struct lever){.id = KNOB_COUNT};
	if (is_asked(question, chosen))
		for (int i = 0; i < COUNT_OF(others); i++)
			if (!try_runtime(
				    question, &chosen->plan, others[i], arena, &beat, lever, error))
				return false;
	lever->gain = 1 - (double)beat / (double)now;
	*found = lever->id == KNOB_RUNTIME ? lever : NULL;
	return true;
}
