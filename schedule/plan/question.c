/* Fills a question, knob by knob. */
#include "schedule/plan/question.h"

#include <string.h>

const char *const objective_names[] = {"time", "memory", "network", NULL};

bool question_gives(const struct question *question, enum knob_id id)
{
	return question->given & KNOB_BIT(id);
}

bool question_is_open(const struct question *question, enum knob_id id)
{
	return !question_gives(question, id) && question->only[id].n == 0 &&
	       question->forbidden[id].n == 0;
}

bool question_leaves(const struct question *question, enum knob_id id)
{
	return question_is_open(question, id) || question->kept & KNOB_BIT(id);
}

void question_put(struct question *question, enum knob_id id, union knob_value value)
{
	knob_put(id, &question->asked, value);
	question->given |= KNOB_BIT(id);
}

void question_take(struct question *question, enum knob_id id, const struct plan *from)
{
	question_put(question, id, knob_get(id, from));
}

void question_take_axes(struct question *question, const struct plan *from)
{
	for (int i = 0; i < KNOBS_OF_AXES; i++)
		question_take(question, knobs_of_axes[i], from);
	if (from->mesh.expert > 1)
		question_take(question, KNOB_EXPERT, from);
}

void question_open(struct question *question, enum knob_id id)
{
	question->given &= ~KNOB_BIT(id);
}

bool question_set(struct question *question, enum knob_id id, const char *where, const char *text,
	struct arena *arena, struct error *error)
{
	if (!fields_set(&knob_table[id].field, where, text, &question->asked, arena, error))
		return false;
	question->given |= KNOB_BIT(id);
	return true;
}

bool question_set_by_name(struct question *question, const char *name, const char *where,
	const char *text, struct arena *arena, struct error *error)
{
	enum knob_id id = knob_find(name);
	const char *names[KNOB_COUNT + 1] = {NULL};

	if (id < KNOB_COUNT)
		return question_set(question, id, where, text, arena, error);
	for (int i = 0; i < KNOB_COUNT; i++)
		names[i] = knob_table[i].field.name;
	const char *near = nearest_name(name, names);
	return error_set(error, EXIT_CODE_USAGE, "%s: no such option%s%s%s", where,
		near != NULL ? ", did you mean \"" : "", near != NULL ? near : "",
		near != NULL ? "\"?" : "");
}

bool question_restrict(struct question *question, enum knob_id id, bool forbidden,
	const char *where, const char *text, struct arena *arena, struct error *error)
{
	struct knob_list *list = forbidden ? &question->forbidden[id] : &question->only[id];
	struct plan scratch = {0};

	if (!fields_set(&knob_table[id].field, where, text, &scratch, arena, error))
		return false;
	union knob_value value = knob_get(id, &scratch);
	for (int i = 0; i < list->n; i++)
		if (knob_value_equal(id, list->values[i], value))
			return true;
	if (list->n == KNOB_LIST_MAX)
		return error_set(
			error, EXIT_CODE_USAGE, "%s: more than %d values", where, KNOB_LIST_MAX);
	if (list->n == 0)
		list->values = ARENA_ARRAY(arena, union knob_value, KNOB_LIST_MAX);
	list->values[list->n++] = value;
	return true;
}
