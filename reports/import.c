/* What every target's import has in common: leaves through a table to options. */
#include "reports/import.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "reports/escape.h"
#include "reports/export_write.h"
#include "reports/import_read.h"

/* --- leaves -------------------------------------------------------------------------------- */

static bool path_matches(const char *pattern, const char *path)
{
	size_t length = strlen(pattern);

	if (length > 0 && pattern[length - 1] == '*')
		return strncmp(pattern, path, length - 1) == 0;
	return strcmp(pattern, path) == 0;
}

const struct node *source_find(const struct source *source, const char *path)
{
	for (int i = source->n_leaves - 1; i >= 0; i--) {
		if (path_matches(path, source->leaves[i].path))
			return source->leaves[i].node;
	}
	return NULL;
}

bool source_has(const struct source *source, const char *path)
{
	return source_find(source, path) != NULL;
}

const struct node *import_find(const struct importing *importing, const char *path)
{
	return source_find(importing->source, path);
}

/* Left to the Trainer, or to the framework. */
static bool is_unset(const struct node *node)
{
	return node == NULL || node->kind == NODE_NULL || node->text == NULL ||
	       strcmp(node->text, "auto") == 0 || strcmp(node->text, "None") == 0;
}

const char *import_text(const struct importing *importing, const char *path, const char *otherwise)
{
	const struct node *node = import_find(importing, path);

	return is_unset(node) ? otherwise : node->text;
}

bool import_is(const struct importing *importing, const char *path, const char *value)
{
	const char *text = import_text(importing, path, NULL);

	return text != NULL && strcasecmp(text, value) == 0;
}

/* --- notes, errors ------------------------------------------------------------------------- */

static void add_note(struct importing *importing, const char *line)
{
	struct imported *imported = importing->imported;
	struct text safe = {0};

	if (imported->n_notes == imported->notes_room) {
		int room = 2 * imported->notes_room + 16;
		const char **grown = ARENA_ARRAY(importing->arena, const char *, room);
		for (int i = 0; i < imported->n_notes; i++)
			grown[i] = imported->notes[i];
		imported->notes = grown;
		imported->notes_room = room;
	}
	add_ascii(&safe, line);
	imported->notes[imported->n_notes++] = arena_strdup(importing->arena, text_string(&safe));
	text_finish(&safe);
}

void import_note(struct importing *importing, const char *path, const char *format, ...)
{
	const struct node *node = path != NULL ? import_find(importing, path) : NULL;
	const char *name = importing->source->name;
	struct text line = {0};
	va_list args;

	if (node == NULL)
		text_printf(&line, "%s: ", name);
	else
		text_printf(&line, "%s:%d: %s: ", name, node->line, path);
	va_start(args, format);
	text_vprintf(&line, format, args);
	va_end(args);
	add_note(importing, text_string(&line));
	text_finish(&line);
}

bool import_fail(const struct importing *importing, const char *path, struct error *error,
	const char *format, ...)
{
	const struct node *node = path != NULL ? import_find(importing, path) : NULL;
	struct text words = {0};
	va_list args;

	va_start(args, format);
	text_vprintf(&words, format, args);
	va_end(args);
	if (node != NULL)
		node_error(node, error, "%s", text_string(&words));
	else
		error_at(error, EXIT_CODE_INPUT, importing->source->name, 0, 0, "%s",
			text_string(&words));
	text_finish(&words);
	return false;
}

/* --- typed values -------------------------------------------------------------------------- */

static bool count_of(const struct node *node, int64_t *count, struct error *error)
{
	if (!parse_whole_number(node->text, count) || *count <= 0)
		return node_error(
			node, error, "expected a whole number above 0, got \"%.60s\"", node->text);
	return true;
}

bool import_count(const struct importing *importing, const char *path, int64_t *count,
	int64_t otherwise, struct error *error)
{
	const struct node *node = import_find(importing, path);

	*count = otherwise;
	if (is_unset(node) || strcmp(node->text, "-1") == 0)
		return true;
	return count_of(node, count, error);
}

static bool switch_of(const struct node *node, bool *value, struct error *error)
{
	static const char *const on[] = {"true", "yes", "y", "on", "1", "t", NULL};
	static const char *const off[] = {"false", "no", "n", "off", "0", "f", NULL};

	for (int i = 0; on[i] != NULL; i++) {
		if (strcasecmp(node->text, on[i]) == 0 || strcasecmp(node->text, off[i]) == 0) {
			*value = strcasecmp(node->text, on[i]) == 0;
			return true;
		}
	}
	return node_error(node, error, "expected true or false, got \"%.60s\"", node->text);
}

bool import_switch(const struct importing *importing, const char *path, bool *value, bool otherwise,
	struct error *error)
{
	const struct node *node = import_find(importing, path);

	*value = otherwise;
	return is_unset(node) || switch_of(node, value, error);
}

/* --- settings ------------------------------------------------------------------------------ */

void import_set(
	struct importing *importing, const char *option, const char *value, const char *path)
{
	struct imported *imported = importing->imported;
	const struct node *node = path != NULL ? import_find(importing, path) : NULL;
	int i = 0;

	while (i < imported->n_settings && strcmp(imported->settings[i].option, option) != 0)
		i++;
	if (i == IMPORT_SETTINGS_MOST)
		return;
	imported->settings[i] = (struct import_setting){option, value, path, node};
	imported->n_settings = max_i64(imported->n_settings, i + 1);
	imported->has_ranks = imported->has_ranks || strcmp(option, "gpus") == 0;
}

void import_set_count(
	struct importing *importing, const char *option, int64_t value, const char *path)
{
	import_set(
		importing, option, arena_printf(importing->arena, "%lld", (long long)value), path);
}

bool import_was_set(const struct importing *importing, const char *option)
{
	const struct imported *imported = importing->imported;

	for (int i = 0; i < imported->n_settings; i++) {
		if (strcmp(imported->settings[i].option, option) == 0)
			return true;
	}
	return false;
}

/* --- one leaf through the table ------------------------------------------------------------ */

static bool set_word(struct importing *importing, const struct import_key *key,
	const struct leaf *leaf, struct error *error)
{
	const char *text = leaf->node->text, *word = key->values;

	while (*word != '\0') {
		size_t length = strcspn(word, " "), left = strcspn(word, ">");
		left = left < length ? left : length;
		bool rest = left > 0 && word[left - 1] == '*';
		bool same = rest ? strncasecmp(text, word, left - 1) == 0
				 : strlen(text) == left && strncasecmp(text, word, left) == 0;
		const char *right = left < length ? word + left + 1 : rest ? text : word;
		size_t right_length = left < length ? length - left - 1
				      : rest        ? strlen(text)
						    : length;
		if (same) {
			import_set(importing, key->option,
				arena_strndup(importing->arena, right, right_length), leaf->path);
			return true;
		}
		word += length + (word[length] == ' ');
	}
	return node_error(
		leaf->node, error, "expected one of \"%s\", got \"%.60s\"", key->values, text);
}

static bool set_number(struct importing *importing, const struct import_key *key,
	const struct leaf *leaf, struct error *error)
{
	const char *text = leaf->node->text;
	bool unlimited = strcmp(text, "inf") == 0 || strcmp(text, "float(\"inf\")") == 0;
	double number = 0;

	if (!unlimited && (!parse_number(text, &number) || number < 0))
		return node_error(
			leaf->node, error, "expected a number from 0 on, got \"%.60s\"", text);
	import_set(importing, key->option, unlimited ? "0" : text, leaf->path);
	return true;
}

static bool must_be_one(const struct leaf *leaf, struct error *error)
{
	const char *text = leaf->node->text;

	if (strcmp(text, "1") == 0 || strcmp(text, "-1") == 0 || strcmp(text, "0") == 0)
		return true;
	return node_error(leaf->node, error,
		"%.20s: only data parallelism is predicted in this version, expected 1", text);
}

static bool take_leaf(struct importing *importing, const struct import_key *key,
	const struct leaf *leaf, struct error *error)
{
	int64_t count;
	bool on = false;

	switch (key->kind) {
	case IMPORT_COUNT:
		if (!count_of(leaf->node, &count, error))
			return false;
		import_set_count(importing, key->option, count, leaf->path);
		return true;
	case IMPORT_SWITCH:
		if (!switch_of(leaf->node, &on, error))
			return false;
		import_set(importing, key->option, on ? "on" : "off", leaf->path);
		return true;
	case IMPORT_NUMBER:
		return set_number(importing, key, leaf, error);
	case IMPORT_WORD:
		return set_word(importing, key, leaf, error);
	case IMPORT_ONE:
		return must_be_one(leaf, error);
	case IMPORT_UNPRICED:
		import_note(importing, leaf->path, "%.60s: is not predicted", leaf->node->text);
		return true;
	case IMPORT_READ:
	case IMPORT_PLAIN:
		return true;
	}
	return true;
}

static const struct import_key *key_of(const struct import_format *format, const char *path)
{
	for (const struct import_key *key = format->keys; key->path != NULL; key++) {
		if (path_matches(key->path, path))
			return key;
	}
	return NULL;
}

static const char *nearest_key(const struct import_format *format, const char *path)
{
	const char *names[200] = {NULL};
	int n = 0;

	for (const struct import_key *key = format->keys; key->path != NULL && n < 199; key++)
		names[n++] = key->path;
	return nearest_name(path, names);
}

static bool take_leaves(struct importing *importing, struct error *error)
{
	const struct import_format *format = importing->imported->target->import;
	const struct source *source = importing->source;

	for (int i = 0; i < source->n_leaves; i++) {
		const struct leaf *leaf = &source->leaves[i];
		const struct import_key *key = key_of(format, leaf->path);
		if (key == NULL) {
			const char *near = nearest_key(format, leaf->path);
			import_note(importing, leaf->path, "unknown key, ignored%s%s%s",
				near != NULL ? "; did you mean " : "", near != NULL ? near : "",
				near != NULL ? "?" : "");
			continue;
		}
		if (key->kind != IMPORT_READ && key->kind != IMPORT_PLAIN && is_unset(leaf->node)) {
			if (leaf->node->kind == NODE_SCALAR && key->option != NULL)
				import_note(importing, leaf->path,
					"%s: add --%s, or its default counts", leaf->node->text,
					key->option);
			continue;
		}
		if (!take_leaf(importing, key, leaf, error))
			return false;
	}
	return true;
}

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

/* "#!/usr/bin/env python3", against "#!/bin/bash". */
static bool is_python_script(const char *text)
{
	const char *python = strstr(text, "python");

	return python != NULL && python < text + strcspn(text, "\n");
}

static enum export_syntax syntax_of(const struct source *source)
{
	static const char *const python[] = {"import ", "from ", "def ", "class ", "\"\"\"", NULL};
	const char *line = first_line(source);

	if (strncmp(source->text, "#!", 2) == 0)
		return is_python_script(source->text) ? SYNTAX_PYTHON : SYNTAX_ARGUMENTS;
	for (int i = 0; python[i] != NULL; i++) {
		if (strncmp(line, python[i], strlen(python[i])) == 0)
			return SYNTAX_PYTHON;
	}
	if (strncmp(line, "--", 2) == 0 && line[2] != '-' && line[2] != '\n')
		return SYNTAX_ARGUMENTS;
	return is_toml_section(line) ? SYNTAX_TOML : SYNTAX_YAML;
}

static bool same_syntax(enum export_syntax a, enum export_syntax b)
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
			target->import->recognizes == NULL)
			continue;
		int sure = target->import->recognizes(source);
		if (sure > surest) {
			surest = sure;
			best = target;
		}
	}
	return best;
}

static bool unrecognized(const struct source *source, struct error *error)
{
	return error_at(error, EXIT_CODE_INPUT, source->name, 1, 1,
		"no configuration of a framework that is known here, expected one of accelerate, "
		"Trainer, torchtitan, DeepSpeed, llm-foundry, axolotl, nanotron, Megatron-LM or a "
		"PyTorch script; --from says which");
}

static bool is_fsdp2(const struct imported *imported)
{
	for (int i = 0; i < imported->n_settings; i++) {
		const struct import_setting *setting = &imported->settings[i];
		if (strcmp(setting->option, "runtime") == 0)
			return strcmp(setting->value, "pytorch-fsdp2") == 0;
	}
	return false;
}

/* accelerate takes "offload_params" below fsdp_config for "fsdp_offload_params". */
static void complete_keys(
	struct arena *arena, struct source *source, const struct import_format *format)
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

bool import_config(struct arena *arena, const char *name, const char *text, size_t length,
	const struct export_target *target, struct imported *imported, struct error *error)
{
	struct source source = {.name = name, .text = text, .length = length};
	struct importing importing = {arena, &source, imported};

	*imported = (struct imported){0};
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
	complete_keys(arena, &source, target->import);
	if (!take_leaves(&importing, error) || !target->import->finish(&importing, error))
		return false;
	imported->wraps_apart = target->wraps_apart && is_fsdp2(imported);
	return true;
}

void import_print(const struct imported *imported, struct text *text)
{
	text_printf(text, "%s\n", imported->target->title);
	for (int i = 0; i < imported->n_settings; i++) {
		const struct import_setting *setting = &imported->settings[i];
		text_printf(text, "  --%-26s ", setting->option);
		add_ascii(text, setting->value);
		text_repeat(text, ' ', (int)max_i64(1, 18 - (int64_t)strlen(setting->value)));
		if (setting->node != NULL) {
			text_add(text, setting->key);
			text_printf(text, " (line %d)\n", setting->node->line);
		} else {
			text_add(text, "what the framework does by itself\n");
		}
	}
}
