#include "planner/defence/carried.h"
#include "schedule/resolve/resolve.h"
#include "simulator/simulator.h"

void property_move(const struct property *property, const struct question *question, double value,
	struct lent *quiet, struct moved *moved)
{
	moved->question = lent_quietly(question, true, quiet);
	moved->topology = *question->topology;
	moved->question.topology = &moved->topology;
	moved->model = *question->model;
	moved->question.model = &moved->model;
	moved->question.pareto = false;
	moved->question.wanted = WANTED_RIVALS;
	moved->question.earlier = NULL;
	if (question->earlier != NULL && property->stays != STAYS_NOTHING) {
		moved->earlier = *question->earlier;
		moved->earlier.sends_alike = property->stays == STAYS_COST;
		if (property->stays != STAYS_SPACE)
			moved->earlier.space = NULL;
		moved->question.earlier = &moved->earlier;
	}
	property->apply(value, moved);
}

struct decision decision_of(const struct plan *plan)
{
	return (struct decision){
		CHOSEN, plan->strategy, strategy_is_hybrid(plan->strategy) ? plan->mesh.shard : 0};
}

bool decisions_same(const struct decision *a, const struct decision *b)
{
	return a->kind == b->kind &&
	       (a->kind != CHOSEN || (a->strategy == b->strategy && a->group == b->group));
}

/* The step time without the allocator's retries, and the bound of memory; of a pipeline the bounds
 * of both. False: there are none. */
static bool sketch(
	struct evaluator *evaluator, const struct plan *plan, double *time, int64_t *memory)
{
	struct error error = {0};
	if (plan->mesh.pipeline == 1)
		return evaluator_run_time(evaluator, plan, time, memory, &error);
	*time = evaluator_bound_time(evaluator, plan);
	*memory = evaluator_bound_memory(evaluator, plan);
	return *time > 0;
}

void carried_add(struct carried *carried, const struct question *question, const struct plan *plan,
	int departures, double step_time, int64_t needed)
{
	struct evaluator evaluator = {.question = question};
	double time;
	int64_t memory;
	if (carried->n < CARRIED_MAX && sketch(&evaluator, plan, &time, &memory))
		carried->of[carried->n++] = (struct carried_plan){
			*plan, departures, step_time / time, (double)needed / (double)memory};
	evaluator_finish(&evaluator);
}

/* Ranks a plan by its sketch, as much above it as it was where it was predicted. */
static bool rank(struct evaluator *evaluator, const struct property *property, double value,
	const struct carried_plan *from, int index, struct ranking *ranking)
{
	const struct question *question = evaluator->question;
	struct plan plan = from->plan;
	struct error error = {0};
	double time;
	int64_t memory, limit = device_limit(question->topology, question->memory_limit_bytes);
	property->carry(value, &plan);
	if (!plan_check(&plan, question->model, question->topology, &error))
		return true;
	if (!sketch(evaluator, &plan, &time, &memory))
		return false;
	memory = (int64_t)((double)memory * from->memory);
	ranking_add(
		ranking, &(struct ranked){.plan = index,
				 .strategy = plan.strategy,
				 .tight = surely_lacks_room(question, &plan, memory, limit),
				 .divided = has_axes(&plan),
				 .departures = from->departures,
				 .costs = {{[COST_TIME] = costs_time(&plan, time * from->time)}}});
	return true;
}

bool carried_choose(const struct carried *carried, const struct property *property,
	const struct question *question, double value, struct decision *decision)
{
	struct lent quiet;
	struct moved moved;
	struct ranking ranking;
	bool ok = property->carry != NULL && !lent_stopped(question);
	if (!ok)
		return false;
	property_move(property, question, value, &quiet, &moved);
	struct evaluator evaluator = {.question = &moved.question};
	ranking_init(&ranking, OBJECTIVE_TIME, question->simplicity);
	for (int i = 0; ok && i < carried->n; i++)
		ok = rank(&evaluator, property, value, &carried->of[i], i, &ranking);
	const struct ranked *best = ranking_best(&ranking, STRATEGY_COUNT);
	*decision = (struct decision){.kind = NOTHING};
	if (best != NULL && !best->tight)
		*decision = decision_of(&carried->of[best->plan].plan);
	ranking_finish(&ranking);
	evaluator_finish(&evaluator);
	return ok;
}
