/* `plan --free LIST`: the levers that the search may change. */
#include <string.h>

#include "cli/question/question.h"

static const char *lever_names(struct arena *arena)
{
	const char *names = "all";

	for (int i = 0; i < KNOB_COUNT; i++)
		if (knob_table[knobs_in_help[i]].roles & KNOB_LEVER)
			names = arena_printf(
				arena, "%s, %s", names, knob_option(knobs_in_help[i], arena));
	return names;
}

static bool free_one(
	struct question *question, const char *name, struct arena *arena, struct error *error)
{
	enum knob_id id = knob_find(swap_dashes(name, '-', '_', arena));

	if (id == KNOB_COUNT || !(knob_table[id].roles & KNOB_LEVER))
		return error_set(error, EXIT_CODE_USAGE, "--free %.40s: no such lever; use %s",
			name, lever_names(arena));
	if (question_gives(question, id) || question->only[id].n > 0)
		return error_set(
			error, EXIT_CODE_USAGE, "--free %s: --%s fixes it; drop one", name, name);
	question->freed |= KNOB_BIT(id);
	question->freed_by_name |= KNOB_BIT(id);
	return true;
}

bool ask_levers(const struct arguments *arguments, struct arena *arena, struct question *question,
	struct error *error)
{
	const char *list = argument(arguments, "free");

	if (list == NULL)
		return true;
	if (strcmp(list, "all") == 0) {
		question->freed = knobs_of_role(KNOB_LEVER);
		return true;
	}
	while (true) {
		size_t length = strcspn(list, ",");
		if (!free_one(question, arena_strndup(arena, list, length), arena, error))
			return false;
		if (list[length] == '\0')
			return true;
		list += length + 1;
	}
}
