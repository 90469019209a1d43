/* Settles plans that have to be written in a configuration file, and tells which can be. */
#include "schedule/plan/question.h"

struct plan question_settle(
	const struct question *question, const struct plan *plan, struct arena *arena)
{
	const struct wording *wording = question->wording;
	struct plan said = *plan;
	if (wording != NULL)
		wording->settle(
			wording->context, question->model, question->topology, arena, &said);
	return said;
}

bool wording_may_change(enum knob_id id)
{
	return id < KNOB_IN_MESH && id != KNOB_STRATEGY && id != KNOB_GLOBAL_BATCH &&
	       id != KNOB_MICRO_BATCH && id != KNOB_GRAD_ACCUM;
}

bool question_is_said(const struct question *question, const struct plan *plan, struct arena *arena,
	struct error *error)
{
	const struct plan said = question_settle(question, plan, arena);
	for (int i = 0; i < KNOB_COUNT; i++) {
		enum knob_id id = (enum knob_id)i;
		if (wording_may_change(id) && question_gives(question, id) &&
			!knob_equal(id, plan, &said))
			return error_set(error, EXIT_CODE_USAGE,
				"--%s %s: %s cannot say that; use %s, or leave out --for",
				knob_option(id, arena), knob_typed(id, plan, arena),
				question->wording->name, knob_typed(id, &said, arena));
	}
	return true;
}
