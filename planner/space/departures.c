/* The knobs in which a plan is not as its framework would have it. */
#include "planner/space/departures.h"
#include "planner/space/space.h"
#include "schedule/resolve/resolve.h"

bool usual_of(const struct question *question, enum strategy strategy, struct arena *arena,
	struct usual *usual, struct error *error)
{
	struct question silent = *question;
	struct plan plan;
	question_put(&silent, KNOB_STRATEGY, (union knob_value){.choice = (int)strategy});
	int64_t group = axes_natural_group(question->topology, question_ranks_together(question));
	if (group > 0 && strategy_is_hybrid(strategy) &&
		!question_gives(question, KNOB_SHARD_GROUP))
		question_put(&silent, KNOB_SHARD_GROUP, (union knob_value){.number = group});
	usual->architecture = &question->model->architecture;
	if (!axes_resolve(&silent, arena, &usual->plan, error))
		return false;
	silent = *question;
	question_take(&silent, KNOB_RUNTIME, &usual->plan);
	question_open(&silent, KNOB_STRATEGY);
	usual->strategy = plan_resolve(&silent, arena, &plan, NULL) ? plan.strategy : strategy;
	return true;
}

bool usual_plan(const struct question *question, const struct plan *plan, struct arena *arena,
	struct plan *usual)
{
	struct question silent = *question;
	question_take(&silent, KNOB_STRATEGY, plan);
	if (strategy_is_hybrid(plan->strategy))
		question_take(&silent, KNOB_SHARD_GROUP, plan);
	if (plan_resolve(&silent, arena, usual, NULL))
		return true;
	for (int i = 0; i < KNOBS_OF_AXES; i++)
		question_take(&silent, knobs_of_axes[i], plan);
	return plan_resolve(&silent, arena, usual, NULL);
}

int departures_from(const struct usual *usual, const struct plan *plan)
{
	int n = plan->strategy != usual->strategy;
	for (int a = 0; a < n_axes; a++) {
		enum knob_id knob = axes_in_order[a];
		if (knob == KNOB_CONTEXT_METHOD)
			n += plan->context_method !=
			     plan_usual_context_method(plan, usual->architecture);
		else if (knob != KNOB_MICRO_BATCH && knob != KNOB_GRAD_ACCUM)
			n += !knob_equal(knob, &usual->plan, plan);
	}
	return n;
}
