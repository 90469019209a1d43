#include "support.h"

void load(struct arena *arena, const char *model, const char *topology, struct plan_file *file)
{
	assert_true(model_load_preset(arena, model, &file->model, NULL));
	assert_true(topology_load_name(arena, topology, &file->topology, NULL));
	file->question = (struct question_text){model, topology, ""};
}

void resolve(struct plan_file *file, struct arena *arena)
{
	struct question question = {.model = file->model, .topology = file->topology};

	assert_true(plan_resolve(&question, arena, &file->plan, NULL));
}

const struct export_target *target_of(const char *name)
{
	const struct export_target *target = export_find(name, NULL);

	assert_non_null(target);
	return target;
}

bool has_note(const struct trip *trip, const char *knob)
{
	for (int i = 0; i < trip->exported.n_notes; i++) {
		if (strcmp(trip->exported.notes[i].knob, knob) == 0)
			return true;
	}
	return false;
}
