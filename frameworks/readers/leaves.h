/* A configuration file of any syntax, taken apart into a flat list of leaves
 * ("fsdp_config.fsdp_version" = 2, with its line). */
#ifndef FRAMEWORKS_READERS_LEAVES_H
#define FRAMEWORKS_READERS_LEAVES_H

#include "base/base.h"

enum config_syntax {
	SYNTAX_YAML,
	SYNTAX_JSON,
	SYNTAX_TOML,
	SYNTAX_PYTHON,
	SYNTAX_ARGUMENTS, /* "--name value", one a line, or a shell script that has them */
};

struct leaf {
	const char *path;        /* keys with '.' between */
	const struct node *node; /* a scalar; in a list, one leaf an element, "path[]" */
};

struct source {
	const char *name, *text;
	size_t length;
	enum config_syntax syntax;
	int n_leaves, room;
	struct leaf *leaves; /* from the arena */
};

/* --- text to leaves ----------------------------------------------------------------------- */
bool source_read_tree(struct arena *arena, struct source *source, struct error *error);
bool source_read_toml(struct arena *arena, struct source *source, struct error *error);
bool source_read_python(struct arena *arena, struct source *source, struct error *error);
bool source_read_arguments(struct arena *arena, struct source *source, struct error *error);
/* Before reading: of the functions of a Python file only `name` stays, with those that it calls;
 * lines stay where they are. NULL: a file of several is an error that names them. */
bool source_choose_function(
	struct arena *arena, struct source *source, const char *name, struct error *error);
/* One leaf more, from the text of its value or from a node. */
void source_add(struct arena *arena, struct source *source, const char *path, const char *value,
	bool quoted, int line, int column);
void source_add_node(
	struct arena *arena, struct source *source, const char *path, const struct node *node);

/* --- looking up ---------------------------------------------------------------------------- */
/* '*' at the end of the pattern: any rest. */
bool source_path_matches(const char *pattern, const char *path);
/* The last leaf whose path matches; NULL: none. */
const struct node *source_find(const struct source *source, const char *pattern);
bool source_has(const struct source *source, const char *pattern);

#endif
