/* Leaves of a file through the keys of its target, to options. */
#include <string.h>
#include <strings.h>

#include "frameworks/common/reading.h"
#include "frameworks/common/words.h"

static const struct config_key *find_row(const struct config_format *format, const char *path)
{
	for (const struct config_key *key = format->keys; key->path != NULL; key++) {
		if (source_path_matches(key->path, path))
			return key;
	}
	return NULL;
}

const char *import_other_path(struct arena *arena, const struct config_format *format,
	const char *path, bool from_alias, int n)
{
	const char *aliases = format->aliases;
	struct word word;

	for (int i = 0; i <= n; i++) {
		if (!word_next(&aliases, &word))
			return NULL;
	}
	const char *from = from_alias ? word.left : word.right;
	size_t from_length = from_alias ? word.left_length : word.right_length;
	if (strncmp(path, from, from_length) != 0)
		return "";
	return arena_printf(arena, "%.*s%s",
		(int)(from_alias ? word.right_length : word.left_length),
		from_alias ? word.right : word.left, path + from_length);
}

static const struct config_key *key_of(
	struct arena *arena, const struct config_format *format, const char *path)
{
	const struct config_key *key = find_row(format, path);
	const char *other;

	for (int i = 0;
		key == NULL && (other = import_other_path(arena, format, path, true, i)) != NULL;
		i++)
		key = find_row(format, other);
	return key;
}

/* Paths between blanks. */
static bool is_listed(const char *paths, const char *path)
{
	struct word word;

	return word_find(paths, path, &word);
}

/* --- typed values ---------------------------------------------------------------------------- */

/* "BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH"; numbers that stand for words are left out. */
static const char *list_words(struct arena *arena, const char *words)
{
	const char *last = NULL, *list = "";
	struct word word;

	while (word_next(&words, &word)) {
		if (word.left_length == 1)
			continue;
		if (last != NULL)
			list = arena_printf(
				arena, "%s%s%s", list, list[0] != '\0' ? ", " : "", last);
		last = arena_printf(
			arena, "%.*s%s", (int)word.left_length, word.left, word.rest ? "*" : "");
	}
	return list[0] != '\0' ? arena_printf(arena, "%s or %s", list, last) : last;
}

static bool set_word(struct importing *importing, const struct config_key *key,
	const struct leaf *leaf, const char *text, struct error *error)
{
	const char *words = key->words;
	struct word word;

	while (word_next(&words, &word)) {
		if (!word_matches(&word, text, (key->when & EXACT_CASE) != 0))
			continue;
		import_set(importing, key->knob, word_right(importing->arena, &word, text),
			leaf->path);
		return true;
	}
	if (key->knob == KNOB_OPTIMIZER) { /* 8-bit moments, Muon, Lion, ...: none keeps more */
		import_note(importing, leaf->path, "%.40s: is predicted as AdamW", text);
		return true;
	}
	return node_error(leaf->node, error, "expected %s, got \"%.60s\"",
		list_words(importing->arena, key->words), text);
}

static bool set_number(struct importing *importing, const struct config_key *key,
	const struct leaf *leaf, struct error *error)
{
	const char *text = leaf->node->text;
	bool unlimited = strcmp(text, "inf") == 0 || strcmp(text, "float(\"inf\")") == 0;
	double number = 0;

	if (!unlimited && (!parse_number(text, &number) || number < 0))
		return node_error(
			leaf->node, error, "expected a number from 0 on, got \"%.60s\"", text);
	import_set(importing, key->knob, unlimited ? "0" : text, leaf->path);
	return true;
}

static bool must_be_one(const struct leaf *leaf, struct error *error)
{
	const char *text = leaf->node->text;

	if (strcmp(text, "1") == 0 || strcmp(text, "-1") == 0 || strcmp(text, "0") == 0)
		return true;
	return node_error(
		leaf->node, error, "%.20s: not predicted of this framework, expected 1", text);
}

bool import_key(
	struct importing *importing, const char *path, const char *otherwise, struct error *error)
{
	const struct config_key *key = find_row(importing->imported->target->format, path);
	const struct node *node = import_find(importing, path);
	size_t length = strcspn(path, "*");
	const struct leaf leaf = {arena_strndup(importing->arena, path, length), node};
	bool on;

	if (import_is_unset(node)) {
		if (otherwise != NULL)
			import_set(importing, key->knob, otherwise, leaf.path);
		return true;
	}
	if (key->words != NULL && strncmp(key->words, "true", 4) != 0)
		return set_word(importing, key, &leaf, node->text, error);
	if (!import_read_switch(node, &on, error))
		return false;
	if (key->words != NULL)
		return set_word(importing, key, &leaf, on ? "true" : "false", error);
	import_set(importing, key->knob, on ? "on" : "off", leaf.path);
	return true;
}

/* --- all leaves ------------------------------------------------------------------------------ */

/* What is off has no consequence. */
static bool is_off(const struct node *node)
{
	static const char *const off[] = {"false", "no", "off", "none", "null", "0", "", NULL};

	for (int i = 0; off[i] != NULL; i++) {
		if (strcasecmp(node->text, off[i]) == 0)
			return true;
	}
	return false;
}

static bool take_leaf(struct importing *importing, const struct config_key *key,
	const struct leaf *leaf, struct error *error)
{
	int64_t count;
	bool on = false;

	switch (key->kind) {
	case KEY_COUNT:
		if (!import_read_count(leaf->node, &count, error))
			return false;
		import_set_count(importing, key->knob, count, leaf->path);
		return true;
	case KEY_SWITCH:
		if (!import_read_switch(leaf->node, &on, error))
			return false;
		import_set(importing, key->knob, on ? "on" : "off", leaf->path);
		return true;
	case KEY_NUMBER:
		return set_number(importing, key, leaf, error);
	case KEY_WORD:
		return set_word(importing, key, leaf, leaf->node->text, error);
	case KEY_ONE:
		return must_be_one(leaf, error);
	case KEY_UNPRICED:
		if (!is_off(leaf->node))
			import_note(
				importing, leaf->path, "%.60s: is not predicted", leaf->node->text);
		return true;
	case KEY_READ:
	case KEY_PLAIN:
		return true;
	}
	return true;
}

static const char *nearest_key(
	struct arena *arena, const struct config_format *format, const char *path)
{
	const char *const lists[] = {format->unpriced, format->plain};
	const char *names[200] = {NULL};
	int n = 0;

	for (const struct config_key *key = format->keys; key->path != NULL && n < 199; key++) {
		if (key->path[0] != '#')
			names[n++] = key->path;
	}
	for (int i = 0; i < COUNT_OF(lists); i++) {
		const char *at = lists[i];
		struct word word;
		while (n < 199 && word_next(&at, &word))
			names[n++] = arena_printf(arena, "%.*s%s", (int)word.left_length, word.left,
				word.rest ? "*" : "");
	}
	return nearest_name(path, names);
}

/* What a leaf is whose path no row has. */
static enum key_kind listed_kind(const struct config_format *format, const char *path, bool *known)
{
	bool unpriced = is_listed(format->unpriced, path);

	*known = unpriced || is_listed(format->plain, path);
	return unpriced ? KEY_UNPRICED : KEY_PLAIN;
}

/* The key that a leaf of a section, all of which we pass over, may have been meant for: it is
 * nearly the same, and the file does not have it. NULL: it is some other key of the framework. */
static const char *misspelled(struct importing *importing, const char *path)
{
	const struct config_format *format = importing->imported->target->format;
	const char *dot = strrchr(path, '.'), *names[100] = {NULL};
	size_t length = dot != NULL ? (size_t)(dot + 1 - path) : 0;
	struct word word;
	int n = 0;

	if (dot == NULL || !word_find(format->plain, path, &word) || !word.rest)
		return NULL;
	for (const struct config_key *key = format->keys; key->path != NULL && n < 99; key++)
		if (strncmp(key->path, path, length) == 0 &&
			strpbrk(key->path + length, ".*") == NULL &&
			!source_has(importing->source, key->path))
			names[n++] = key->path + length;
	const char *near = nearest_name(dot + 1, names);
	return near != NULL ? arena_printf(importing->arena, "%.*s%s", (int)length, path, near)
			    : NULL;
}

static void note_misspelled(
	struct importing *importing, const struct leaf *leaf, enum key_kind kind)
{
	const char *meant = kind == KEY_PLAIN ? misspelled(importing, leaf->path) : NULL;

	if (meant != NULL)
		import_note(importing, leaf->path, "unknown key, ignored; did you mean %s?", meant);
}

/* Has the format keys below this path? Then a value stands where its map is expected. */
static bool is_map(const struct config_format *format, const char *path)
{
	size_t length = strlen(path);
	for (const struct config_key *key = format->keys; key->path != NULL; key++) {
		if (strncmp(key->path, path, length) == 0 && key->path[length] == '.')
			return true;
	}
	return false;
}

static bool note_unknown(struct importing *importing, const struct leaf *leaf, struct error *error)
{
	const struct config_format *format = importing->imported->target->format;
	bool empty = leaf->node->kind != NODE_SCALAR || is_off(leaf->node);
	if (is_map(format, leaf->path))
		return empty ||
		       node_error(leaf->node, error, "expected a map of options, got \"%.60s\"",
			       leaf->node->text);
	const char *near = nearest_key(importing->arena, format, leaf->path);
	import_note(importing, leaf->path, "unknown key, ignored%s%s%s",
		near != NULL ? "; did you mean " : "", near != NULL ? near : "",
		near != NULL ? "?" : "");
	return true;
}

bool import_take_leaves(struct importing *importing, struct error *error)
{
	const struct config_format *format = importing->imported->target->format;
	const struct source *source = importing->source;

	for (int i = 0; i < source->n_leaves; i++) {
		const struct leaf *leaf = &source->leaves[i];
		const struct config_key *key = key_of(importing->arena, format, leaf->path);
		struct config_key listed = {.knob = NO_KNOB};
		bool known = true;
		if (key == NULL) {
			listed.kind = listed_kind(format, leaf->path, &known);
			key = &listed;
			if (known)
				note_misspelled(importing, leaf, listed.kind);
		}
		if (!known) {
			if (!note_unknown(importing, leaf, error))
				return false;
			continue;
		}
		if (key->kind != KEY_READ && key->kind != KEY_PLAIN &&
			import_is_unset(leaf->node)) {
			if (leaf->node->kind == NODE_SCALAR && key->knob != NO_KNOB)
				import_note(importing, leaf->path,
					"%s: add --%s, or its default counts", leaf->node->text,
					import_option(importing, key->knob));
			continue;
		}
		if (!take_leaf(importing, key, leaf, error))
			return false;
	}
	return true;
}
