/* Searches of what a lever beside the chosen plan does not show: with another framework, and with
 * rows that reach experts in another way, which wants another mix of ranks. Only a clearly faster
 * plan is reported. */
#include "planner/levers/beside.h"
#include "schedule/resolve/resolve.h"

/* A smaller gain is within the doubt of two predictions that have little in common. */
#define CLEARLY 0.10

/* The effort of a search in blocks x micro-batches: enough for the first plan that fits and a few
 * more. */
enum { EFFORT = 400 };

/* --- what is asked ---------------------------------------------------------------------------- */

/* Changes the question. False: it is not worth a search. */
typedef bool ask(
	const struct question *question, const struct candidate *chosen, struct question *other);

/* Megatron-LM divides large models in other ways than PyTorch's own FSDP and DDP. It is asked if
 * the user has not chosen a runtime, and if the machine is one on which that matters. Context ranks
 * are not added if the chosen plan has none. */
static bool ask_runtime(
	const struct question *question, const struct candidate *chosen, struct question *other)
{
	question_put(other, KNOB_RUNTIME, (union knob_value){.choice = RUNTIME_MEGATRON});
	if (chosen->plan.mesh.context == 1)
		question_take(other, KNOB_CONTEXT, &chosen->plan);
	return question_leaves(question, KNOB_RUNTIME) &&
	       runtime_of(chosen->plan.runtime)->zero == NULL &&
	       (question->topology->nodes > 1 || has_axes(&chosen->plan));
}

/* Sets the knob to the value, if the question leaves it open and the runtime has it. */
static bool set(const struct question *question, const struct plan *chosen, enum knob_id id,
	int value, struct question *other)
{
	if (!question_leaves(question, id) || !knob_honoured(id, chosen->runtime, value))
		return false;
	question_put(other, id, knob_value_of(id, value));
	return true;
}

/* Rows beside compute, through DeepEP where the machine has it. They let experts reach over more
 * ranks, whose memory makes it needless to compute blocks again, which they cannot be had with. */
static bool ask_rows(
	const struct question *question, const struct candidate *chosen, struct question *other)
{
	const struct plan *plan = &chosen->plan;
	struct plan deepep = *plan;
	struct error error = {0};
	if (plan->mesh.expert == 1 || plan->expert_overlap ||
		!set(question, plan, KNOB_EXPERT_OVERLAP, true, other))
		return false;
	deepep.expert_dispatch = DISPATCH_DEEPEP;
	deepep.expert_tensor = 1;
	if (plan_check(&deepep, question->model, question->topology, &error))
		set(question, plan, KNOB_EXPERT_DISPATCH, DISPATCH_DEEPEP, other);
	set(question, plan, KNOB_CONTEXT_METHOD, (int)plan->context_method, other);
	return true;
}

static const struct {
	ask *ask;
	enum knob_id knobs[2]; /* that it changes */
} ways[] = {{ask_runtime, {KNOB_RUNTIME, KNOB_COUNT}},
	{ask_rows, {KNOB_EXPERT_OVERLAP, KNOB_EXPERT_DISPATCH}}};

/* --- the search ------------------------------------------------------------------------------- */

/* What has to be typed for it. */
static const char *typed_of(
	const struct question *other, int way, const struct plan *plan, struct arena *arena)
{
	const char *typed = lever_typed(ways[way].knobs[0], plan, arena);
	enum knob_id second = ways[way].knobs[1];
	if (second == KNOB_COUNT || knob_get(second, &other->asked).choice == 0)
		return typed;
	return arena_printf(arena, "%s %s", typed, lever_typed(second, plan, arena));
}

/* `*beat`: the cost of a token in the best plan so far; lowered if a better plan is found. The
 * search stops early, so an even better plan may exist. */
static bool try_way(struct question *other, int way, struct arena *arena, int64_t *beat,
	struct lever *lever, struct error *error)
{
	struct arena scratch = {0};
	struct search search;
	struct error mine = {0};
	other->effort = EFFORT;
	other->wanted = WANTED_BEST;
	other->mixes = other->pareto = other->thresholds = false;
	other->beat = *beat;
	bool ok = search_run(other, &scratch, &search, &mine);
	const struct ranked *best =
		ok && !search.stopped ? ranking_best(&search.ranking, STRATEGY_COUNT) : NULL;
	if (best != NULL && !best->tight && best->costs.of[COST_TIME] <= *beat) {
		const struct plan *plan = &search.space.plans[best->plan];
		*beat = best->costs.of[COST_TIME];
		*lever = (struct lever){.id = ways[way].knobs[0],
			.typed = typed_of(other, way, plan, arena),
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
	bool asks = question->wanted == WANTED_ALL && question->wording == NULL;
	*lever = (struct lever){.id = KNOB_COUNT};
	for (int way = 0; way < COUNT_OF(ways) && asks; way++) {
		struct question other = *question;
		other.given &= ~(question->kept & knobs_of_role(KNOB_LEVER));
		if (ways[way].ask(question, chosen, &other) &&
			!try_way(&other, way, arena, &beat, lever, error))
			return false;
	}
	lever->gain = 1 - (double)beat / (double)now;
	*found = lever->id != KNOB_COUNT ? lever : NULL;
	return true;
}
