/* YAML and JSON to leaves; "${a.b}" (OmegaConf) is looked up in the same file. */
#include <string.h>

#include "frameworks/readers/leaves.h"

/* Depth is bounded by the document's. */
static void flatten(
	struct arena *arena, struct source *source, const char *path, const struct node *node)
{
	if (node->kind == NODE_SCALAR || node->kind == NODE_NULL) {
		source_add_node(arena, source, path, node);
		return;
	}
	if (node->n_children == 0)
		return;
	for (int i = 0; i < node->n_children; i++) {
		const struct node *child = node->children[i];
		const char *below = node->kind == NODE_LIST ? arena_printf(arena, "%s[]", path)
				    : path[0] == '\0'
					    ? child->key
					    : arena_printf(arena, "%s.%s", path, child->key);
		flatten(arena, source, below, child);
	}
}

/* A reference to nothing in this file ("${oc.env:X}") stays as it is: the reader of its value
 * reports what it expected. */
static void resolve(struct arena *arena, const struct source *source, struct leaf *leaf)
{
	const struct node *node = leaf->node;

	for (int hops = 0;
		hops < 8 && node->kind == NODE_SCALAR && strncmp(node->text, "${", 2) == 0;
		hops++) {
		size_t length = strlen(node->text);
		const struct node *target = source_find(
			source, arena_strndup(arena, node->text + 2, length > 3 ? length - 3 : 0));
		if (node->text[length - 1] != '}' || target == NULL)
			return;
		node = target;
	}
	if (node == leaf->node)
		return;
	/* The value from there, the place from here. */
	struct node *copy = ARENA_NEW(arena, struct node);
	*copy = *node;
	copy->key = leaf->node->key;
	copy->line = leaf->node->line;
	copy->column = leaf->node->column;
	leaf->node = copy;
}

/* Options of a program in YAML, as Megatron-LM's own tests have them: what is below MODEL_ARGS, and
 * nothing else. A switch that is off is left out. */
static void take_options(struct source *source)
{
	static const char prefix[] = "MODEL_ARGS.--";
	int n = 0;

	if (!source_has(source, "MODEL_ARGS.--*"))
		return;
	for (int i = 0; i < source->n_leaves; i++) {
		struct leaf leaf = source->leaves[i];
		bool off = leaf.node->kind == NODE_SCALAR && strcmp(leaf.node->text, "false") == 0;
		if (off || strncmp(leaf.path, prefix, strlen(prefix)) != 0)
			continue;
		leaf.path += strlen(prefix);
		source->leaves[n++] = leaf;
	}
	source->n_leaves = n;
	source->syntax = SYNTAX_ARGUMENTS;
}

bool source_read_tree(struct arena *arena, struct source *source, struct error *error)
{
	const struct node *root = document_parse(
		arena, source->name, source->text, source->length, DOCUMENT_FOREIGN, error);

	if (root == NULL)
		return false;
	if (root->kind != NODE_MAP)
		return node_error(root, error, "expected keys with values");
	flatten(arena, source, "", root);
	for (int i = 0; i < source->n_leaves; i++)
		resolve(arena, source, &source->leaves[i]);
	take_options(source);
	return true;
}
