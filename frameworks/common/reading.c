/* What readers of every target share: typed values, settings, notes and errors with their places.
 */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "frameworks/common/reading.h"

/* Where the file has a key: at its path, or at an alias of it. */
static const char *path_in_file(const struct importing *importing, const char *path)
{
	const struct config_format *format = importing->imported->target->format;
	const char *other;

	if (source_has(importing->source, path))
		return path;
	for (int i = 0;
		(other = import_other_path(importing->arena, format, path, false, i)) != NULL;
		i++) {
		if (other[0] != '\0' && source_has(importing->source, other))
			return other;
	}
	return path;
}

const struct node *import_find(const struct importing *importing, const char *path)
{
	return source_find(importing->source, path_in_file(importing, path));
}

int64_t import_layers(const struct importing *importing)
{
	int64_t own = importing->imported->shape.layers;

	return own > 0 ? own : importing->layers;
}

/* Left to the Trainer, or to the framework. */
bool import_is_unset(const struct node *node)
{
	return node == NULL || node->kind == NODE_NULL || node->text == NULL ||
	       strcmp(node->text, "auto") == 0 || strcmp(node->text, "None") == 0;
}

const char *import_list(const struct importing *importing, const char *path)
{
	const char *element = arena_printf(importing->arena, "%s[]", path);

	if (!import_is_unset(import_find(importing, element)))
		return element;
	return import_is_unset(import_find(importing, path)) ? NULL : path;
}

/* The names of one leaf; Megatron-LM's tests write several as "[attn mlp]". */
static unsigned names_in(
	struct importing *importing, const char *path, const char *text, const char *const *known)
{
	static const char between[] = "[], ";
	unsigned of = 0;

	for (const char *at = text + strspn(text, between); *at != '\0';) {
		size_t length = strcspn(at, between);
		unsigned bit = name_bit(at, length, known);
		if (bit == 0)
			import_note(importing, path, "%.*s: is not predicted",
				(int)(length < 40 ? length : 40), at);
		of |= bit;
		at += length;
		at += strspn(at, between);
	}
	return of;
}

unsigned import_names(struct importing *importing, const char *path, const char *const *known)
{
	const struct source *source = importing->source;
	unsigned of = 0;

	for (int i = 0; i < source->n_leaves; i++) {
		const struct leaf *leaf = &source->leaves[i];
		if (strcmp(leaf->path, path) == 0 && !import_is_unset(leaf->node))
			of |= names_in(importing, path, leaf->node->text, known);
	}
	return of;
}

const char *import_text(const struct importing *importing, const char *path, const char *otherwise)
{
	const struct node *node = import_find(importing, path);

	return import_is_unset(node) ? otherwise : node->text;
}

bool import_is(const struct importing *importing, const char *path, const char *value)
{
	const char *text = import_text(importing, path, NULL);

	return text != NULL && strcasecmp(text, value) == 0;
}

/* Behind the notes of earlier lines. */
static void add_note(struct importing *importing, int line, const char *words)
{
	struct imported *imported = importing->imported;
	struct text safe = {0};
	int at = imported->n_notes++;

	if (at == imported->notes_room) {
		int room = 2 * imported->notes_room + 16;
		struct import_note *grown = ARENA_ARRAY(importing->arena, struct import_note, room);
		for (int i = 0; i < at; i++)
			grown[i] = imported->notes[i];
		imported->notes = grown;
		imported->notes_room = room;
	}
	for (; at > 0 && imported->notes[at - 1].line > line; at--)
		imported->notes[at] = imported->notes[at - 1];
	add_ascii(&safe, words);
	imported->notes[at] =
		(struct import_note){line, arena_strdup(importing->arena, text_string(&safe))};
	text_finish(&safe);
}

/* A key may be as long as its file: the note is what should be read. Of one that stands for several
 * the part before the "*". */
static void add_place(struct text *line, const char *name, int number, const char *path)
{
	enum { MOST = 160 };
	size_t length = strcspn(path, "*");

	text_printf(line, "%s:%d: %.*s%s: ", name, number, length > MOST ? MOST : (int)length, path,
		length > MOST ? "..." : "");
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
		add_place(&line, name, node->line, path_in_file(importing, path));
	va_start(args, format);
	text_vprintf(&line, format, args);
	va_end(args);
	add_note(importing, node != NULL ? node->line : INT_MAX, text_string(&line));
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

bool import_read_count(const struct node *node, int64_t *count, struct error *error)
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
	if (import_is_unset(node) || strcmp(node->text, "-1") == 0)
		return true;
	return import_read_count(node, count, error);
}

bool import_read_switch(const struct node *node, bool *value, struct error *error)
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
	return import_is_unset(node) || import_read_switch(node, value, error);
}

const char *import_option(const struct importing *importing, int knob)
{
	if (knob == KEY_GPUS)
		return "gpus";
	if (knob == KEY_MTP_LAYERS)
		return "mtp-layers";
	char *option = arena_strdup(importing->arena, knob_table[knob].field.name);
	for (char *c = option; *c != '\0'; c++)
		*c = *c == '_' ? '-' : *c;
	return option;
}

static struct import_setting *find_setting(const struct importing *importing, int knob)
{
	struct imported *imported = importing->imported;

	for (int i = 0; i < imported->n_settings; i++) {
		if (imported->settings[i].knob == knob)
			return &imported->settings[i];
	}
	return NULL;
}

void import_set(struct importing *importing, int knob, const char *value, const char *path)
{
	struct imported *imported = importing->imported;
	struct import_setting *setting = find_setting(importing, knob);

	path = path != NULL ? path_in_file(importing, path) : NULL;
	const struct node *node = path != NULL ? source_find(importing->source, path) : NULL;

	if (setting == NULL)
		setting = &imported->settings[imported->n_settings++];
	*setting = (struct import_setting){knob, import_option(importing, knob), value, path, node};
	imported->has_ranks = imported->has_ranks || knob == KEY_GPUS;
}

void import_activation_offload(struct importing *importing, const char *path, bool checkpoints)
{
	if (import_is(importing, path, "true"))
		import_set(importing, KNOB_ACTIVATION_OFFLOAD, checkpoints ? "checkpoints" : "all",
			path);
}

void import_set_count(struct importing *importing, int knob, int64_t value, const char *path)
{
	import_set(importing, knob, arena_printf(importing->arena, "%lld", (long long)value), path);
}

const char *import_value(const struct importing *importing, int knob)
{
	const struct import_setting *setting = find_setting(importing, knob);

	return setting != NULL ? setting->value : NULL;
}

void import_set_default(struct importing *importing, int knob, const char *value)
{
	if (import_value(importing, knob) == NULL)
		import_set(importing, knob, value, NULL);
}
