/* Which syntax a text has, whose configuration it is, and reading it. */
#include "frameworks/frameworks.h"

#include <string.h>

/* --- which target, which syntax ------------------------------------------------------------ */

static bool read_source(struct arena *arena, struct source *source, struct error *error)
{
	switch (source->syntax) {
	case SYNTAX_YAML:
	case SYNTAX_JSON:
		return source_read_tree(arena, source, error);
	case SYNTAX_TOML:
		return source_read_toml(arena, source, error);
	case SYNTAX_PYTHON:
		return source_read_python(arena, source, error);
	case SYNTAX_ARGUMENTS:
		return source_read_arguments(arena, source, error);
	}
	return false;
}

/* The first line that is neither blank nor a comment. */
static const char *first_line(const struct source *source)
{
	const char *line = source->text;

	while (*line == '#' || *line == '\n' || *line == '\r' || *line == ' ' || *line == '\t') {
		if (*line == '#')
			line += strcspn(line, "\n");
		else
			line++;
	}
	return line;
}

static bool is_toml_section(const char *line)
{
	size_t name =
		line[0] == '[' ? strspn(line + 1, "abcdefghijklmnopqrstuvwxyz_.0123456789") : 0;

	return name > 0 && line[name + 1] == ']' && strchr("\r\n \t#", line[name + 2]) != NULL;
}

static bool is_named_toml(const char *name)
{
	size_t length = strlen(name);

	return length > 5 && strcmp(name + length - 5, ".toml") == 0;
}

/* "#!/usr/bin/env python3", against "#!/bin/bash". */
static bool is_python_script(const char *text)
{
	const char *python = strstr(text, "python");

	return python != NULL && python < text + strcspn(text, "\n");
}

/* Of a shell script without its first line: "torchrun --nproc-per-node 8 ...", "TP=8". */
static bool is_command(const char *line)
{
	static const char *const launchers[] = {"torchrun ", "python ", "python3 ", "srun ",
		"mpirun ", "export ", "set -", "exec ", "cd "};
	size_t name = strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");

	for (int i = 0; i < COUNT_OF(launchers); i++)
		if (strncmp(line, launchers[i], strlen(launchers[i])) == 0)
			return true;
	return name > 0 && line[name] == '=';
}

static enum config_syntax syntax_of(const struct source *source)
{
	static const char *const python[] = {"import ", "from ", "def ", "class ", "\"\"\"", NULL};
	const char *line = first_line(source);

	if (strncmp(source->text, "#!", 2) == 0)
		return is_python_script(source->text) ? SYNTAX_PYTHON : SYNTAX_ARGUMENTS;
	for (int i = 0; python[i] != NULL; i++) {
		if (strncmp(line, python[i], strlen(python[i])) == 0)
			return SYNTAX_PYTHON;
	}
	if ((strncmp(line, "--", 2) == 0 && line[2] != '-' && line[2] != '\n') || is_command(line))
		return SYNTAX_ARGUMENTS;
	return is_toml_section(line) || is_named_toml(source->name) ? SYNTAX_TOML : SYNTAX_YAML;
}

static bool same_syntax(enum config_syntax a, enum config_syntax b)
{
	return a == b || (a <= SYNTAX_JSON && b <= SYNTAX_JSON); /* YAML reads JSON too */
}

static const struct export_target *recognize(const struct source *source)
{
	const struct export_target *best = NULL;
	int surest = 0;

	for (int i = 0; i < n_export_targets; i++) {
		const struct export_target *target = export_targets[i];
		if (!same_syntax(target->syntax, source->syntax) ||
			target->format->recognizes == NULL)
			continue;
		int sure = target->format->recognizes(source);
		if (sure > surest) {
			surest = sure;
			best = target;
		}
	}
	return best;
}

static bool unrecognized(const struct source *source, struct error *error)
{
	if (strncmp(source->text, "shardplan: plan/", 16) == 0)
		return error_at(error, EXIT_CODE_INPUT, source->name, 1, 1,
			"a plan already, expected a framework's configuration; "
			"`shardplan explain` shows it, `export` writes it for a framework");
	return error_at(error, EXIT_CODE_INPUT, source->name, 1, 1,
		"no configuration of a framework that is known here, expected one "
		"of " FRAMEWORK_NAMES " or a PyTorch script; --from says which");
}

static bool is_of_runtime(const struct imported *imported, enum runtime_kind runtime)
{
	for (int i = 0; i < imported->n_settings; i++) {
		const struct import_setting *setting = &imported->settings[i];
		if (strcmp(setting->option, "runtime") == 0)
			return strcmp(setting->value, runtime_names[runtime]) == 0;
	}
	return false;
}

/* The precision that a file gives for reductions is of sharded ones; DDP has none. */
static void drop_reduction(struct imported *imported)
{
	int n = 0;

	for (int i = 0; i < imported->n_settings; i++)
		if (imported->settings[i].knob != KNOB_REDUCE_DTYPE)
			imported->settings[n++] = imported->settings[i];
	imported->n_settings = n;
}

/* accelerate takes "offload_params" below fsdp_config for "fsdp_offload_params". */
static void complete_keys(
	struct arena *arena, struct source *source, const struct config_format *format)
{
	size_t section = format->section != NULL ? strlen(format->section) : 0;

	for (int i = 0; section > 0 && i < source->n_leaves; i++) {
		const char *path = source->leaves[i].path;
		if (strncmp(path, format->section, section) == 0 &&
			strncmp(path + section, format->prefix, strlen(format->prefix)) != 0)
			source->leaves[i].path = arena_printf(
				arena, "%s%s%s", format->section, format->prefix, path + section);
	}
}

static bool choose_function(struct arena *arena, struct source *source,
	const struct export_target *target, const char *function, struct error *error)
{
	if (!target->format->has_functions)
		return function == NULL ||
		       error_set(error, EXIT_CODE_USAGE,
			       "--config: a file of %s is one configuration", target->name);
	source->n_leaves = 0;
	return source_choose_function(arena, source, function, error) &&
	       read_source(arena, source, error);
}

bool import_config(struct arena *arena, const char *name, const char *text, size_t length,
	const struct export_target *target, const char *function, int64_t layers,
	struct imported *imported, struct error *error)
{
	struct source source = {.name = name, .text = text, .length = length};
	struct importing importing = {
		.arena = arena, .source = &source, .imported = imported, .layers = layers};

	*imported = (struct imported){0};
	if (content_kind(text, length) != NULL)
		return error_at(error, EXIT_CODE_INPUT, name, 1, 1,
			"expected a configuration or a script, got %s", content_kind(text, length));
	if (strlen(text) != length)
		return error_at(
			error, EXIT_CODE_INPUT, name, 0, 0, "expected text, got a NUL byte");
	source.syntax = syntax_of(&source);
	if (target != NULL && !same_syntax(target->syntax, source.syntax))
		source.syntax = target->syntax;
	if (!read_source(arena, &source, error))
		return false;
	if (target == NULL)
		target = recognize(&source);
	if (target == NULL)
		return unrecognized(&source, error);
	imported->target = target;
	if (!choose_function(arena, &source, target, function, error))
		return false;
	complete_keys(arena, &source, target->format);
	if (!import_take_leaves(&importing, error) || !target->format->finish(&importing, error))
		return false;
	if (is_of_runtime(imported, RUNTIME_PYTORCH_DDP))
		drop_reduction(imported);
	bool is_fsdp2 = is_of_runtime(imported, RUNTIME_PYTORCH_FSDP2);
	imported->wraps_apart = target->wraps_apart && is_fsdp2;
	imported->tail_stays = is_fsdp2 && (imported->tail_stays || target->tail == TAIL_STAYS);
	return true;
}

static void set(enum knob_id knob, const char *value, struct arena *arena, struct plan *plan)
{
	const struct field *field = &knob_table[knob].field;

	if (value != NULL)
		fields_set(field, field->name, value, plan, arena, NULL);
}

void import_settle(const struct imported *imported, const struct model *model, bool reshards,
	struct arena *arena, struct plan *plan)
{
	const char *wrap = plan->wrap.text;

	if (imported->wraps_apart && strchr(wrap, '+') == NULL)
		set(KNOB_WRAP, ends_wrap(arena, model, wrap), arena, plan);
	if (imported->tail_stays && !reshards && plan->reshard_after_forward.n == 0 &&
		plan_reshard_group(plan) < 0)
		set(KNOB_RESHARD_AFTER_FORWARD, ends_reshard(arena, model, plan), arena, plan);
	/* The only micro-batch is the last one too: the plan, and its digest, as the planner's. */
	if (plan->grad_accum == 1)
		plan->sync_each_micro_batch = true;
}

/* The file's, with the units that its framework adds for this model. */
static const char *value_of(const struct import_setting *setting, const struct plan *plan)
{
	size_t length = strlen(setting->value);
	bool settled = plan != NULL && strcmp(setting->option, "wrap") == 0 &&
		       strncmp(plan->wrap.text, setting->value, length) == 0 &&
		       plan->wrap.text[length] == '+';

	return settled ? plan->wrap.text : setting->value;
}

void import_print(const struct imported *imported, const struct plan *plan, struct text *text)
{
	struct arena scratch = {0};

	text_printf(text, "%s; what the file leaves out is as in %s\n", imported->target->title,
		export_version(imported->target, 0, &scratch));
	arena_finish(&scratch);
	for (int i = 0; i < imported->n_settings; i++) {
		const struct import_setting *setting = &imported->settings[i];
		const char *value = value_of(setting, plan);
		text_printf(text, " --%-24s ", setting->option);
		add_ascii(text, value);
		text_repeat(text, ' ', (int)max_i64(1, 21 - (int64_t)strlen(value)));
		if (setting->node != NULL) {
			text_add(text, setting->key);
			text_printf(text, " (line %d)\n", setting->node->line);
		} else {
			text_add(text, "the framework's default\n");
		}
	}
}
