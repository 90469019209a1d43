/* A plan through the row of its target, and the targets as a list and as a table. */
#include "frameworks/frameworks.h"

#include <assert.h>
#include <string.h>

enum { TARGETS_MOST = 64 };

const struct export_target *export_find(const char *name, struct error *error)
{
	const char *names[TARGETS_MOST + 1] = {NULL};

	assert(n_export_targets <= TARGETS_MOST);
	for (int i = 0; i < n_export_targets; i++) {
		names[i] = export_targets[i]->name;
		if (strcmp(names[i], name) == 0)
			return export_targets[i];
	}
	const char *near = nearest_name(name, names);
	error_set(error, EXIT_CODE_USAGE, "%.60s: no such target%s%s%s", name,
		near != NULL ? ", did you mean " : "", near != NULL ? near : "",
		near != NULL ? "?" : "; `export --list` shows them");
	return NULL;
}

/* One word to a shell. */
static void add_quoted(struct text *line, const char *name, struct arena *arena)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+,:@%";

	if (name[0] != '\0' && name[strspn(name, plain)] == '\0') {
		text_add(line, name);
		return;
	}
	text_add_char(line, '\'');
	for (const char *quote; (quote = strchr(name, '\'')) != NULL; name = quote + 1) {
		add_ascii(line, arena_strndup(arena, name, (size_t)(quote - name)));
		text_add(line, "'\\''");
	}
	add_ascii(line, name);
	text_add_char(line, '\'');
}

/* "%f": the file, "%n" nodes, "%g" devices a node, "%w" all, "%b" micro-batch, "%a" micro-batches,
 * "%s" tokens, "%m" the file as a module, "%S" the strategy, "%x" the target's own words; "%[" and
 * "%]" are not for one node what they enclose. */
static void add_placeholder(
	struct exporting *exporting, char letter, const char *file_name, struct text *line)
{
	const struct topology *topology = exporting->topology;
	const struct plan *plan = exporting->plan;
	struct arena *arena = exporting->arena;
	const char *slash = strrchr(file_name, '/'), *base = slash != NULL ? slash + 1 : file_name;
	const struct {
		char letter;
		int64_t value;
	} numbers[] = {{'n', topology->nodes}, {'g', topology->devices_per_node},
		{'w', topology_devices(topology)}, {'b', plan->micro_batch},
		{'a', plan->grad_accum}, {'s', plan->seq_len}};

	if (letter == 'f')
		add_quoted(line, file_name, arena);
	if (letter == 'm') /* as a module */
		add_quoted(line, arena_strndup(arena, base, strcspn(base, ".")), arena);
	if (letter == 'x')
		text_add(line, exporting->target->started_with(exporting));
	if (letter == 'S')
		text_add(line, strategy_names[plan->strategy]);
	for (int i = 0; i < COUNT_OF(numbers); i++) {
		if (numbers[i].letter == letter)
			text_int(line, numbers[i].value);
	}
}

static const char *launch_line(struct exporting *exporting, const char *file_name)
{
	struct text line = {0};

	for (const char *c = exporting->target->launch; *c != '\0'; c++) {
		if (*c != '%')
			text_add_char(&line, *c);
		else if (*++c == '[' && exporting->topology->nodes == 1)
			c = strchr(c, ']');
		else
			add_placeholder(exporting, *c, file_name, &line);
	}
	const char *copy = arena_strdup(exporting->arena, text_string(&line));
	text_finish(&line);
	return copy;
}

bool export_runs_on(
	const struct export_target *target, const struct topology *topology, struct error *error)
{
	if (!target->gpus_only || topology->device.kind != DEVICE_CPU)
		return true;
	return error_set(
		error, EXIT_CODE_USAGE, "%s shards nothing on CPUs; use pytorch", target->title);
}

/* FSDP1 overwrites what it has reduced into host memory. */
static bool adds_gradients(
	const struct export_target *target, const struct plan *plan, struct error *error)
{
	if (!plan_offloads_any(plan) || plan->grad_accum == 1 || !plan->sync_each_micro_batch ||
		runtime_of(plan->runtime)->accumulates_on_host)
		return true;
	return error_set(error, EXIT_CODE_USAGE,
		"%s adds no reduced gradients on the host, "
		"so %lld micro-batches would train as one; plan with --sync-each-micro-batch off",
		target->title, (long long)plan->grad_accum);
}

/* Ranks that divide the model are in no file unless it has a key for them. */
static bool says_axes(
	const struct export_target *target, const struct plan *plan, struct error *error)
{
	enum knob_id knobs[KNOBS_OF_AXES + 1] = {KNOB_EXPERT};
	enum expressed expressed;

	memcpy(&knobs[1], knobs_of_axes, sizeof(knobs_of_axes));
	for (int i = 0; i < COUNT_OF(knobs); i++) {
		int64_t size = knob_get(knobs[i], plan).number;
		const char *name = knob_table[knobs[i]].field.name;
		if (size > 1 && !target_expresses(target, knobs[i], &expressed))
			return error_set(error, EXIT_CODE_USAGE,
				"export --to %s: it has no word for %s %lld here; "
				"use --to torchtitan, or plan with --%s 1",
				target->name, name, (long long)size, name);
	}
	const char *why = target->refuses != NULL ? target->refuses(plan) : NULL;
	return why == NULL ||
	       error_set(error, EXIT_CODE_USAGE, "export --to %s: %s", target->name, why);
}

bool export_plan(const struct export_target *target, int version, const struct plan_file *file,
	const char *file_name, struct arena *arena, struct exported *exported, struct text *text,
	struct error *error)
{
	struct exporting exporting = {
		.target = target,
		.version = version,
		.file = file,
		.plan = &exported->plan,
		.model = file->model,
		.topology = file->topology,
		.exported = exported,
		.arena = arena,
		.text = text,
	};
	*exported = (struct exported){0};
	if (!says_axes(target, &file->plan, error) ||
		!export_runs_on(target, file->topology, error))
		return false;
	export_adapt(&exporting, &exported->plan);
	export_adapt_clip(&exporting, &exported->plan);
	if (!adds_gradients(target, &exported->plan, error))
		return false;
	exported->launch = launch_line(&exporting, file_name);
	(target->write != NULL ? target->write : export_write)(&exporting);
	return true;
}

void export_settle(const struct export_target *target, const struct model *model,
	const struct topology *topology, struct arena *arena, struct plan *plan)
{
	const struct plan_file file = {.plan = *plan};
	struct exported exported = {0};
	struct exporting exporting = {
		.target = target,
		.file = &file,
		.plan = plan,
		.model = model,
		.topology = topology,
		.exported = &exported,
		.arena = arena,
	};

	export_adapt(&exporting, plan);
	if (says_axes(target, plan, NULL))
		return;
	plan->mesh.tensor = plan->mesh.context = plan->mesh.pipeline = plan->mesh.expert = 1;
	plan->pipeline_schedule = PIPELINE_1F1B;
	plan->virtual_stages = 0;
	plan->layers_per_stage = (struct rows){0};
	plan->sequence_parallel = plan->async_tensor = false;
	plan->context_method = CONTEXT_ALL_GATHER;
	plan->expert_tensor = 0;
	plan->expert_load = plan->capacity_factor = 0;
	plan->expert_dispatch = DISPATCH_ALL_TO_ALL;
	plan->expert_overlap = false;
}

/* A program that reads a file without a word for it trains everything. */
static bool says_what_is_trained(const struct exporting *exporting)
{
	struct exporting copy = *exporting;
	bool says = trainable_is_all(&exporting->plan->trainable);

	for (const struct config_key *key = exporting->target->format->keys;
		!says && key->path != NULL; key++)
		says = key->knob == KNOB_TRAINABLE && key->value != NULL &&
		       key->value(&copy) != NULL;
	return says;
}

static bool says(const struct export_target *target, const struct model *model,
	const struct topology *topology, struct arena *arena, const struct plan *plan)
{
	struct plan said = *plan;
	const struct exporting exporting = {.target = target,
		.plan = plan,
		.model = model,
		.topology = topology,
		.arena = arena};

	if (!says_axes(target, plan, NULL) || !export_runs_on(target, topology, NULL) ||
		!says_what_is_trained(&exporting))
		return false;
	export_settle(target, model, topology, arena, &said);
	if (target->leaves != NULL && target->leaves(&exporting))
		return false;
	return knobs_alike_but(0, plan, &said) &&
	       fields_equal(mesh_fields, &plan->mesh, &said.mesh);
}

int export_sayers(const struct model *model, const struct topology *topology,
	const struct plan *plan, struct arena *arena, const char *const **names)
{
	const char **found = ARENA_ARRAY(arena, const char *, n_export_targets);
	int n = 0;

	for (int i = 0; i < n_export_targets; i++) {
		if (says(export_targets[i], model, topology, arena, plan))
			found[n++] = export_targets[i]->name;
	}
	*names = found;
	return n;
}

/* --- lists --------------------------------------------------------------------------------- */

void export_list(struct text *text)
{
	int64_t name = 0, file = 0;

	for (int i = 0; i < n_export_targets; i++) {
		name = max_i64(name, (int64_t)strlen(export_targets[i]->name));
		file = max_i64(file, (int64_t)strlen(export_targets[i]->file));
	}
	for (int i = 0; i < n_export_targets; i++) {
		const struct export_target *target = export_targets[i];
		text_printf(text, "%-*s  %-*s  %s\n", (int)name, target->name, (int)file,
			target->file, target->title);
	}
}

static const char *table_cell(const struct export_target *target, enum knob_id knob)
{
	enum expressed expressed;

	if (knob == KNOB_WRAP)
		return target->wraps == NULL                 ? "yes"
		       : strcmp(target->wraps, "block") == 0 ? "fixed"
							     : "some";
	if (!target_expresses(target, knob, &expressed))
		return "no";
	if (expressed != IN_FILE)
		return expressed == FIXED ? "fixed" : "beside";
	const struct export_rule *rule = target->rules;
	while (rule->knob != NO_KNOB && rule->knob != (int)knob)
		rule++;
	return rule->values != NULL && strchr(rule->values, '>') != NULL ? "some" : "yes";
}

void export_table(struct text *text)
{
	text_add(text, "| knob |");
	for (int i = 0; i < n_export_targets; i++)
		text_printf(text, " %s |", export_targets[i]->name);
	text_add(text, "\n|---|");
	for (int i = 0; i < n_export_targets; i++)
		text_add(text, "---|");
	text_add_char(text, '\n');
	for (int knob = 0; knob < KNOB_COUNT; knob++) {
		text_printf(text, "| `%s` |", knob_table[knob].field.name);
		for (int i = 0; i < n_export_targets; i++)
			text_printf(
				text, " %s |", table_cell(export_targets[i], (enum knob_id)knob));
		text_add_char(text, '\n');
	}
}
