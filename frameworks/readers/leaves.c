/* The flat list of leaves that every syntax is read into. */
#include <string.h>

#include "frameworks/readers/leaves.h"

void source_add_node(
	struct arena *arena, struct source *source, const char *path, const struct node *node)
{
	if (source->n_leaves == source->room) {
		int room = 2 * source->room + 64;
		struct leaf *grown = ARENA_ARRAY(arena, struct leaf, room);
		if (source->n_leaves > 0)
			memcpy(grown, source->leaves, (size_t)source->n_leaves * sizeof(*grown));
		source->leaves = grown;
		source->room = room;
	}
	source->leaves[source->n_leaves++] = (struct leaf){path, node};
}

void source_add(struct arena *arena, struct source *source, const char *path, const char *value,
	bool quoted, int line, int column)
{
	struct node *node = ARENA_NEW(arena, struct node);

	*node = (struct node){.kind = NODE_SCALAR,
		.key = path,
		.text = value,
		.quoted = quoted,
		.line = line,
		.column = column,
		.name = source->name};
	source_add_node(arena, source, path, node);
}

bool source_path_matches(const char *pattern, const char *path)
{
	for (; *pattern != '\0'; pattern++, path++) {
		if (pattern[0] == '*' && pattern[1] == '\0')
			return true;
		if (*pattern != *path)
			return false;
	}
	return *path == '\0';
}

const struct node *source_find(const struct source *source, const char *path)
{
	for (int i = source->n_leaves - 1; i >= 0; i--) {
		if (source_path_matches(path, source->leaves[i].path))
			return source->leaves[i].node;
	}
	return NULL;
}

bool source_has(const struct source *source, const char *path)
{
	return source_find(source, path) != NULL;
}
