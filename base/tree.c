#include "base/tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tree_finish(struct tree *tree)
{
	free(tree->finished);
	tree->finished = NULL;
}

bool tree_fail(struct tree *tree, int line, int column, const char *format, ...)
{
	char message[256];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	return error_at(tree->error, EXIT_CODE_INPUT, tree->name, line, column, "%s", message);
}

struct tree_frame *tree_top(struct tree *tree)
{
	return tree->depth > 0 ? &tree->frames[tree->depth - 1] : NULL;
}

bool tree_expects_key(struct tree *tree)
{
	const struct tree_frame *top = tree_top(tree);

	return top != NULL && top->node->kind == NODE_MAP && top->key == NULL;
}

static struct node *new_node(struct tree *tree, enum node_kind kind, int line, int column)
{
	struct node *node = ARENA_NEW(tree->arena, struct node);

	node->kind = kind;
	node->name = tree->name;
	node->line = line;
	node->column = column;
	return node;
}

/* Puts a finished value where it belongs: under its key, in its list, or at the root. */
static void add_value(struct tree *tree, struct node *node)
{
	struct tree_frame *top = tree_top(tree);

	if (top == NULL) {
		tree->root = node;
		return;
	}
	node->key = top->key;
	node->key_line = top->key_line;
	node->key_column = top->key_column;
	top->key = NULL;
	tree->finished = array_grow(tree->finished, &tree->finished_capacity, tree->n_finished + 1,
		sizeof(struct node *));
	tree->finished[tree->n_finished++] = node;
}

bool tree_begin(struct tree *tree, enum node_kind kind, int line, int column)
{
	if (tree->depth == TREE_DEEPEST)
		return tree_fail(
			tree, line, column, "nested too deeply, expected at most 64 levels");
	tree->frames[tree->depth++] = (struct tree_frame){
		.node = new_node(tree, kind, line, column), .first_child = tree->n_finished};
	return true;
}

static int compare_keys(const void *a, const void *b)
{
	const struct node *const *left = a, *const *right = b;
	int order = strcmp((*left)->key, (*right)->key);

	/* Positions make the order total, so that the later duplicate is the one reported. */
	if (order == 0)
		order = (*left)->line - (*right)->line;
	return order != 0 ? order : (*left)->column - (*right)->column;
}

/* Keeps the last of each key, in the order of the text. */
static void drop_duplicates(struct node *map, struct node **sorted)
{
	int n = 0;

	for (int i = 0; i + 1 < map->n_children; i++) {
		if (strcmp(sorted[i]->key, sorted[i + 1]->key) == 0)
			sorted[i]->key = NULL;
	}
	for (int i = 0; i < map->n_children; i++) {
		if (map->children[i]->key != NULL)
			map->children[n++] = map->children[i];
	}
	map->n_children = n;
}

static bool check_duplicates(struct tree *tree, struct node *map)
{
	size_t bytes = (size_t)map->n_children * sizeof(struct node *);
	const struct node *earlier = NULL, *later = NULL;

	if (map->n_children < 2)
		return true;
	struct node **sorted = malloc(bytes);
	if (sorted == NULL)
		base_out_of_memory(bytes);
	memcpy(sorted, map->children, bytes);
	qsort(sorted, (size_t)map->n_children, sizeof(*sorted), compare_keys);
	for (int i = 0; i + 1 < map->n_children && later == NULL; i++) {
		if (strcmp(sorted[i]->key, sorted[i + 1]->key) == 0) {
			earlier = sorted[i];
			later = sorted[i + 1];
		}
	}
	if (later != NULL && (tree->flags & DOCUMENT_FOREIGN))
		drop_duplicates(map, sorted);
	free(sorted);
	if (later == NULL || (tree->flags & DOCUMENT_FOREIGN))
		return true;
	return node_key_error(later, tree->error,
		"duplicate key, already given in line %d; remove one of them", earlier->key_line);
}

bool tree_end(struct tree *tree)
{
	struct tree_frame *frame = &tree->frames[--tree->depth];
	struct node *node = frame->node;

	node->n_children = tree->n_finished - frame->first_child;
	node->children = ARENA_ARRAY(tree->arena, struct node *, node->n_children);
	if (node->n_children > 0)
		memcpy(node->children, tree->finished + frame->first_child,
			(size_t)node->n_children * sizeof(struct node *));
	tree->n_finished = frame->first_child;
	if (node->kind == NODE_MAP && !check_duplicates(tree, node))
		return false;
	add_value(tree, node);
	return true;
}

void tree_key(struct tree *tree, const char *text, int line, int column)
{
	struct tree_frame *top = tree_top(tree);

	top->key = text;
	top->key_line = line;
	top->key_column = column;
}

void tree_scalar(
	struct tree *tree, enum node_kind kind, const char *text, bool quoted, int line, int column)
{
	struct node *node = new_node(tree, kind, line, column);

	node->text = kind == NODE_SCALAR ? text : NULL;
	node->quoted = quoted;
	add_value(tree, node);
}
