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

static const char *value_of(struct arena *arena, const struct plan *plan, const char *knob)
{
	return knob_text(knob_find(knob), plan, arena);
}

static bool is_moot(const struct plan *plan, const char *knob)
{
	static const char *const sharding[] = {"wrap", "prefetch", "forward_prefetch",
		"limit_all_gathers", "reshard_after_forward"};

	if (strcmp(knob, "global_batch") == 0)
		return true;
	if (strcmp(knob, "sync_each_micro_batch") == 0)
		return plan->grad_accum == 1;
	for (int i = 0; i < COUNT_OF(sharding); i++) {
		if (strcmp(knob, sharding[i]) == 0)
			return plan->strategy == STRATEGY_NO_SHARD;
	}
	return false;
}

bool is_beside(const struct trip *trip, const char *knob)
{
	for (int i = 0; i < trip->exported.n_notes; i++) {
		const struct export_note *note = &trip->exported.notes[i];
		if (strcmp(note->knob, knob) == 0 && note->elsewhere)
			return true;
	}
	return false;
}

/* What the caller of `import` has to add, because the file cannot say it. */
static void add_beside(const struct trip *trip, struct question *question)
{
	for (int id = 0; id < KNOB_IN_MESH; id++) {
		const struct field *field = &knob_table[id].field;
		enum expressed expressed;
		const char *value = value_of(trip->arena, &trip->exported.plan, field->name);
		bool quoted = value[0] == '"';
		bool in_file = target_expresses(trip->target, (enum knob_id)id, &expressed) &&
			       expressed != ELSEWHERE && !is_beside(trip, field->name);
		if (in_file || strcmp(field->name, "global_batch") == 0 ||
			strcmp(value, "null") == 0 ||
			(strcmp(field->name, "virtual_stages") == 0 && strcmp(value, "0") == 0))
			continue;
		if (!question_set_by_name(question, field->name, field->name,
			    arena_strndup(trip->arena, value + quoted, strlen(value) - 2 * quoted),
			    trip->arena, NULL))
			fail_msg("%s: %s", field->name, value);
	}
}

static void add_settings(const struct trip *trip, struct question *question)
{
	for (int i = 0; i < trip->imported.n_settings; i++) {
		const struct import_setting *setting = &trip->imported.settings[i];
		char *name = arena_strdup(trip->arena, setting->option);
		struct error error = {0};
		for (char *c = name; *c != '\0'; c++)
			*c = *c == '-' ? '_' : *c;
		if (strcmp(name, "gpus") == 0) {
			int64_t ranks;
			assert_true(parse_int(setting->value, &ranks));
			assert_int_equal(ranks, topology_devices(trip->file.topology));
		} else if (!question_set_by_name(
				   question, name, name, setting->value, trip->arena, &error)) {
			fail_msg("%s: %s", trip->target->name, error.message);
		}
	}
}

/* A loader of YAML keeps the last of two maps of one name. */
static void has_no_map_twice(const struct trip *trip)
{
	const char *text = text_string(&trip->text);
	size_t length = strlen(trip->target->file);

	if (length < 5 || strcmp(trip->target->file + length - 5, ".yaml") != 0)
		return;
	for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
		line += *line == '\n';
		const char *end = strchr(line, '\n');
		if (end == NULL || end == line || end[-1] != ':' || *line == ' ' || *line == '#')
			continue;
		const char *map = arena_printf(trip->arena, "\n%.*s\n", (int)(end - line), line);
		if (strstr(end, map) != NULL)
			fail_msg("%s has twice%s", trip->target->name, map);
	}
}

void read_back(struct trip *trip, struct plan *plan)
{
	struct question question = {.model = trip->file.model, .topology = trip->file.topology};
	struct error error = {0};

	has_no_map_twice(trip);
	if (!import_config(trip->arena, trip->target->file, text_string(&trip->text),
		    trip->text.length, trip->target, NULL, 0, &trip->imported, &error))
		fail_msg("%s: %s\n%s", trip->target->name, error.message, text_string(&trip->text));
	add_settings(trip, &question);
	add_beside(trip, &question);
	if (trip->imported.replicas > 0)
		question_put(&question, KNOB_SHARD_GROUP,
			(union knob_value){.number = topology_devices(trip->file.topology) /
						     trip->imported.replicas});
	if (!plan_resolve(&question, trip->arena, plan, &error))
		fail_msg("%s: %s\n%s", trip->target->name, error.message, text_string(&trip->text));
	import_settle(&trip->imported, trip->file.model, false, trip->arena, plan);
}

void compare(struct trip *trip, const struct plan *back)
{
	const struct plan *out = &trip->exported.plan;

	for (int id = 0; id < KNOB_IN_MESH; id++) {
		const struct field *field = &knob_table[id].field;
		const char *want = value_of(trip->arena, out, field->name);
		const char *got = value_of(trip->arena, back, field->name);
		if (!is_moot(out, field->name) && strcmp(want, got) != 0)
			fail_msg("%s: %s went out as %s and came back as %s\n%s",
				trip->target->name, field->name, want, got,
				text_string(&trip->text));
	}
	if (out->mesh.shard != back->mesh.shard || out->mesh.replicate != back->mesh.replicate)
		fail_msg("%s: mesh %d x %d came back as %d x %d\n%s", trip->target->name,
			(int)out->mesh.replicate, (int)out->mesh.shard, (int)back->mesh.replicate,
			(int)back->mesh.shard, text_string(&trip->text));
	assert_int_equal(out->global_batch, back->global_batch);
	/* One micro-batch: it is the last one too, and the digest is that of the planner's plan. */
	assert_true(out->grad_accum > 1 || back->sync_each_micro_batch);
}

void check_notes(const struct trip *trip)
{
	static const char *const follows[] = {"reshard_after_forward", "limit_all_gathers"};

	for (int id = 0; id < KNOB_IN_MESH; id++) {
		const struct field *field = &knob_table[id].field;
		const char *before = value_of(trip->arena, &trip->file.plan, field->name);
		const char *after = value_of(trip->arena, &trip->exported.plan, field->name);
		bool moot = is_moot(&trip->exported.plan, field->name);
		bool follower = false;
		for (int i = 0; i < COUNT_OF(follows); i++)
			follower =
				follower ||
				(strcmp(field->name, follows[i]) == 0 &&
					(has_note(trip, "strategy") || has_note(trip, "runtime")));
		if (strcmp(before, after) != 0 && !moot && !follower &&
			!has_note(trip, field->name))
			fail_msg("%s: %s became %s in silence: %s", trip->target->name, before,
				after, field->name);
	}
	for (int i = 0; i < trip->imported.n_notes; i++)
		assert_null(strstr(trip->imported.notes[i].text, "unknown key"));
}

int count_versions(const struct export_target *target)
{
	int n = 1;

	for (const char *c = target->versions; *c != '\0'; c++)
		n += *c == ' ';
	return n;
}
