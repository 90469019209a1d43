/* Enumeration: the plans that the axes make. */
#include "planner/space/space.h"

#include <stdlib.h>
#include <string.h>

struct enumeration {
	const struct question *question;
	struct arena *arena;
	struct space *space;
	struct choices choices;
	struct axes axes;
	/* By restriction: which of its values are in a plan, and why the others are not. */
	uint64_t used[QUESTION_RESTRICTIONS_MAX];
	struct error unused[QUESTION_RESTRICTIONS_MAX];
};

/* --- listed values ---------------------------------------------------------------------------- */

/* The user's list that axis `axis` takes its values from; -1 when there is none. */
static int list_of(const struct enumeration *e, int axis)
{
	for (int i = 0; i < e->question->n_restrictions; i++)
		if (!e->question->restrictions[i].forbidden &&
			strcmp(e->question->restrictions[i].knob, axis_names[axis]) == 0)
			return i;
	return -1;
}

static void note_value(
	struct enumeration *e, int axis, const char *value, bool any, const struct error *error)
{
	int list = list_of(e, axis);
	if (list < 0)
		return;
	const struct restriction *restriction = &e->question->restrictions[list];
	for (int i = 0; i < restriction->n && i < SPACE_VALUES_MAX; i++)
		if (any && strcmp(restriction->values[i], value) == 0)
			e->used[list] |= UINT64_C(1) << i;
	if (!any && e->unused[list].message[0] == '\0')
		e->unused[list] = *error;
}

/* A value that no plan has was asked for in vain. */
static bool all_used(const struct enumeration *e, struct error *error)
{
	for (int i = 0; i < e->question->n_restrictions; i++) {
		const struct restriction *restriction = &e->question->restrictions[i];
		for (int v = 0; !restriction->forbidden && v < restriction->n; v++)
			if (axis_find(restriction->knob) < AXIS_COUNT && !(e->used[i] >> v & 1))
				return error_set(error, EXIT_CODE_USAGE,
					"%s %s: no plan of this question can have it%s%s",
					restriction->knob, restriction->values[v],
					e->unused[i].message[0] != '\0' ? ": " : "",
					e->unused[i].message);
	}
	return true;
}

/* --- points ----------------------------------------------------------------------------------- */

/* With a single micro-batch there is one synchronisation, whatever the knob says. */
static bool repeats(const struct enumeration *e, const struct plan *plan)
{
	return e->axes.of[AXIS_SYNC].n > 1 && plan->grad_accum == 1 && !plan->sync_each_micro_batch;
}

static bool add_point(struct enumeration *e, const struct choices *choices, struct error *error)
{
	struct space *space = e->space;
	struct plan plan;
	if (!plan_resolve(
		    choices, e->question->model, e->question->topology, e->arena, &plan, error))
		return false;
	if (repeats(e, &plan))
		return true;
	space->n = space_add(space, &plan) + 1;
	return true;
}

/* Walks the product of the axes from `axis` on; false with the first error when no point came out.
 */
static bool add_points(
	struct enumeration *e, int axis, const struct choices *choices, struct error *error)
{
	if (axis == AXIS_COUNT)
		return add_point(e, choices, error);
	const struct axis *values = &e->axes.of[axis];
	if (values->n == 0)
		return add_points(e, axis + 1, choices, error);
	bool any = false;
	for (int i = 0; i < values->n; i++) {
		struct choices with = *choices;
		struct error mine = {0};
		bool some = choices_set(&with, axis_names[axis], axis_names[axis],
				    values->values[i], e->arena, &mine) &&
			    add_points(e, axis + 1, &with, &mine);
		note_value(e, axis, values->values[i], some, &mine);
		if (!some)
			error_set(error, mine.code, "%s", mine.message);
		any = any || some;
	}
	return any;
}

/* --- strategies ------------------------------------------------------------------------------- */

/* The plan of the strategy with everything open at its default; it tells the runtime, whose knobs
 * the axes are. */
static bool strategy_plan(
	struct enumeration *e, enum strategy strategy, struct plan *plan, struct error *error)
{
	const char *group = axes_first_group(e->question, strategy, e->arena);
	e->choices = e->question->choices;
	if (!choices_set(
		    &e->choices, "strategy", "strategy", strategy_names[strategy], e->arena, error))
		return false;
	struct choices choices = e->choices;
	if (group != NULL &&
		!choices_set(&choices, "shard_group", "shard_group", group, e->arena, error))
		return false;
	return plan_resolve(
		&choices, e->question->model, e->question->topology, e->arena, plan, error);
}

static bool add_strategy(
	struct enumeration *e, enum strategy strategy, bool by_name, struct error *error)
{
	struct plan plan;
	if (!strategy_plan(e, strategy, &plan, error))
		return false;
	if (plan.strategy != strategy)
		return error_set(error, EXIT_CODE_USAGE,
			"--strategy %s: %s runs it as %s here; use %s", strategy_names[strategy],
			runtime_names[plan.runtime], strategy_names[plan.strategy],
			strategy_names[plan.strategy]);
	if (!axes_fill(e->question, &plan, by_name, e->arena, &e->axes))
		return error_set(error, EXIT_CODE_USAGE,
			"%lld ranks have no shard group that is smaller: it is %s",
			(long long)topology_devices(e->question->topology),
			strategy == STRATEGY_HYBRID_SHARD ? "FULL_SHARD" : "SHARD_GRAD_OP");
	e->space->same_batch = e->space->same_batch && e->axes.same_batch;
	return add_points(e, 0, &e->choices, error);
}

/* What is looked at without being named: all that the runtime has, but the stages of ZeRO only in
 * their own runtimes. */
static unsigned usual_strategies(const struct question *question)
{
	const struct choices *choices = &question->choices;
	bool given = choices_given(choices, "runtime");
	if (given && runtime_of(choices->plan.runtime)->zero != NULL)
		return runtime_of(choices->plan.runtime)->strategies;
	return (1u << STRATEGY_ZERO_1) - 1;
}

static unsigned allowed_strategies(const struct question *question)
{
	unsigned all =
		question->strategies != 0 ? (1u << STRATEGY_COUNT) - 1 : usual_strategies(question);
	unsigned allowed = question->strategies != 0 ? question->strategies & all : all;
	if (choices_given(&question->choices, "strategy"))
		allowed = 1u << question->choices.plan.strategy;
	return allowed;
}

bool space_build(const struct question *question, struct arena *arena, struct space *space,
	struct error *error)
{
	struct enumeration e = {.question = question, .arena = arena, .space = space};
	unsigned allowed = allowed_strategies(question);
	bool by_name = question->strategies != 0 || choices_given(&question->choices, "strategy");
	struct error first = {0};
	*space = (struct space){.same_batch = true};
	for (int s = 0; s < STRATEGY_COUNT; s++) {
		struct error mine = {0};
		space->first[s] = space->n;
		space->allowed[s] = allowed >> s & 1;
		if (!space->allowed[s] || add_strategy(&e, (enum strategy)s, by_name, &mine))
			continue;
		space->impossible[s] = arena_strdup(arena, mine.message);
		if (first.message[0] == '\0')
			first = mine;
	}
	space->first[STRATEGY_COUNT] = space->n;
	if (space->n == 0)
		return error_set(error, first.code, "%s", first.message);
	if (all_used(&e, error))
		return true;
	space_finish(space);
	return false;
}

int space_add(struct space *space, const struct plan *plan)
{
	space->plans =
		array_grow(space->plans, &space->capacity, space->n_all + 1, sizeof(*space->plans));
	space->plans[space->n_all] = *plan;
	return space->n_all++;
}

void space_finish(struct space *space)
{
	free(space->plans);
	*space = (struct space){0};
}
