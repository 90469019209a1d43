/* Every value goes through the file's own rules: one that comes out as another is that other one.
 */
#include "planner/space/wording.h"

static struct plan settled(
	const struct question *question, const struct plan *plan, struct arena *arena)
{
	struct plan said = *plan;
	question->wording->settle(
		question->wording->context, question->model, question->topology, arena, &said);
	return said;
}

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
		struct plan said = settled(question, &with, arena);
		union knob_value value = knob_get(id, &said);
		if (said.strategy == plan->strategy && !stands_in(axis, id, value))
			axis->values[axis->n++] = value;
	}
}

/* Batch arithmetic and the mesh are not the file's to change. */
static bool is_said_by_file(enum knob_id id)
{
	return id < KNOB_IN_MESH && id != KNOB_STRATEGY && id != KNOB_GLOBAL_BATCH &&
	       id != KNOB_MICRO_BATCH && id != KNOB_GRAD_ACCUM;
}

static bool refuse(const struct question *question, enum knob_id id, const struct plan *plan,
	const struct plan *said, struct arena *arena, struct error *error)
{
	return error_set(error, EXIT_CODE_USAGE,
		"--%s %s: %s cannot say that; use %s, or leave out --for", knob_option(id, arena),
		knob_typed(id, plan, arena), question->wording->name, knob_typed(id, said, arena));
}

bool wording_narrow(const struct question *question, const struct plan *plan, struct arena *arena,
	struct axes *axes, struct question *strategy, struct error *error)
{
	if (question->wording == NULL)
		return true;
	const struct plan said = settled(question, plan, arena);
	if (said.strategy != plan->strategy)
		return error_set(error, EXIT_CODE_USAGE, "--for %s: it has no word for %s",
			question->wording->name, strategy_names[plan->strategy]);
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		bool changes = is_said_by_file(id) && !knob_equal(id, plan, &said);
		if (axes->of[id].n > 0)
			narrow_axis(question, plan, id, arena, &axes->of[id]);
		else if (changes && question_gives(question, id))
			return refuse(question, id, plan, &said, arena, error);
		else if (changes)
			question_put(strategy, id, knob_get(id, &said));
	}
	return true;
}

bool wording_says(const struct question *question, const struct plan *plan, struct arena *arena)
{
	if (question->wording == NULL)
		return true;
	const struct plan said = settled(question, plan, arena);
	return knobs_alike_but(0, plan, &said) && plan->mesh.shard == said.mesh.shard;
}
