/* Leaves through the table of a target to options. */
#include <string.h>
#include <strings.h>

#include "frameworks/common/reading.h"

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
		if (!import_read_count(leaf->node, &count, error))
			return false;
		import_set_count(importing, key->option, count, leaf->path);
		return true;
	case IMPORT_SWITCH:
		if (!import_read_switch(leaf->node, &on, error))
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
		if (source_path_matches(key->path, path))
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

bool import_take_leaves(struct importing *importing, struct error *error)
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
		if (key->kind != IMPORT_READ && key->kind != IMPORT_PLAIN &&
			import_is_unset(leaf->node)) {
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
