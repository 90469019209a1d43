/* Private to base: builds the tree of a document from a stream of values, from either reader
 * (yaml.c or json.c). Nothing here recurses, so depth costs no stack. */
#ifndef BASE_TREE_H
#define BASE_TREE_H

#include "base/document.h"

enum { TREE_DEEPEST = 64 };

/* An open map or list; its children so far are `finished[first_child...]` of the tree. */
struct tree_frame {
	struct node *node;
	int first_child;
	const char *key; /* of a map: key read, value not yet */
	int key_line, key_column;
};

struct tree {
	struct arena *arena;
	const char *name; /* of the document, in the arena */
	unsigned flags;
	struct error *error;
	struct node *root;
	int depth;
	struct tree_frame frames[TREE_DEEPEST];
	int n_finished, finished_capacity;
	struct node **finished;
};

/* Frees what is not in the arena. */
void tree_finish(struct tree *tree);

/* False with an error at that place; `expected` and what follows is the message. */
bool tree_fail(struct tree *tree, int line, int column, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* The innermost open collection, NULL at the root. */
struct tree_frame *tree_top(struct tree *tree);
/* Whether the next scalar is a key. */
bool tree_expects_key(struct tree *tree);

bool tree_begin(struct tree *tree, enum node_kind kind, int line, int column);
bool tree_end(struct tree *tree);
/* `text` must live in the arena. */
void tree_key(struct tree *tree, const char *text, int line, int column);
void tree_scalar(struct tree *tree, enum node_kind kind, const char *text, bool quoted, int line,
	int column);

/* The two readers. `text` is valid UTF-8 without NUL bytes and without a byte order mark. */
bool yaml_read(struct tree *tree, const char *text, size_t length);
bool json_read(struct tree *tree, const char *text, size_t length);

#endif
