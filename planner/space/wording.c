/* Restricts the space to plans that a configuration file can express. Every value is written by the
 * file's own rules; if it is read back as another value, that value takes its place. */
#include "planner/space/wording.h"

#include "planner/space/space.h"

static bool stands_in(const struct axis *axis, enum knob_id id, union knob_value value)
{
	for (int i = 0; i < axis->n; i++)
		if (knob_value_equal(id, axis->values[i], value))
			return true;
	return false;
}

static void narrow_axis(const struct question *question, const struct plan *plan, enum knob_id id,
	struct arena *arena, struct axis *axis)
{
	const struct axis all = *axis;
	axis->n = 0;
	for (int i = 0; i < all.n; i++) {
		struct plan with = *plan;
		knob_put(id, &with, all.values[i]);
		struct plan said = question_settle(question, &with, arena);
		union knob_value value = knob_get(id, &said);
		if (said.strategy == plan->strategy && !stands_in(axis, id, value))
			axis->values[axis->n++] = value;
	}
}

bool wording_narrow(const struct question *question, const struct plan *plan, struct arena *arena,
	struct axes *axes, struct question *strategy, struct error *error)
{
	if (question->wording == NULL)
		return true;
	const struct plan said = question_settle(question, plan, arena);
	if (said.strategy != plan->strategy)
		return error_set(error, EXIT_CODE_USAGE, "--for %s: it has no word for %s",
			question->wording->name, strategy_names[plan->strategy]);
	if (!question_is_said(question, plan, arena, error))
		return false;
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		if (axes->of[id].n > 0)
			narrow_axis(question, plan, id, arena, &axes->of[id]);
		else if (wording_may_change(id) && !knob_equal(id, plan, &said))
			question_take(strategy, id, &said);
	}
	return true;
}

bool wording_says(const struct question *question, const struct plan *plan, struct arena *arena)
{
	if (question->wording == NULL)
		return true;
	const struct plan said = question_settle(question, plan, arena);
	return knobs_alike_but(0, plan, &said) && plan->mesh.shard == said.mesh.shard &&
	       plan_divides_alike(plan, &said);
}
