/* CPU offload where the devices' memory does not suffice: the question of a second search. */
#include "planner/mixed/mixed.h"
#include "schedule/resolve/resolve.h"

/* Can some plan of the question's runtime have this kind of offload? */
static bool is_offered(const struct question *question, union knob_value value, struct arena *arena)
{
	struct question only = *question;
	struct space space;
	struct error error = {0};
	question_put(&only, KNOB_CPU_OFFLOAD, value);
	if (!space_build(&only, arena, &space, &error))
		return false;
	space_finish(&space);
	return true;
}

bool offload_question(const struct question *question, struct arena *arena, struct question *other)
{
	static const enum offload kinds[] = {OFFLOAD_OPTIMIZER, OFFLOAD_PARAMETERS};
	struct knob_list list = {0, ARENA_ARRAY(arena, union knob_value, COUNT_OF(kinds))};
	if (!question_is_open(question, KNOB_CPU_OFFLOAD))
		return false;
	for (int i = 0; i < COUNT_OF(kinds); i++) {
		union knob_value value = knob_value_of(KNOB_CPU_OFFLOAD, (int)kinds[i]);
		if (is_offered(question, value, arena))
			list.values[list.n++] = value;
	}
	*other = *question;
	other->earlier = NULL;
	other->only[KNOB_CPU_OFFLOAD] = list;
	return list.n > 0;
}
