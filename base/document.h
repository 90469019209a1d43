/* YAML 1.2 and JSON text read into a tree of nodes that know where they stand.
 *
 * One file (yaml.c) talks to libfyaml, so that it can be replaced; everything else sees this tree.
 * Text whose first characters are {" {} [" [{ [[ [] or [ and a digit is read as JSON, strictly.
 * Limits: 64 MiB of JSON, 16 MiB of YAML, depth 64; beyond is an error, not a crash. Anchors,
 * aliases, merge keys, several documents in one text, NUL and broken UTF-8 are errors. */
#ifndef BASE_DOCUMENT_H
#define BASE_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum node_kind { NODE_NULL, NODE_SCALAR, NODE_LIST, NODE_MAP };

struct node {
	enum node_kind kind;
	const char *key;  /* in a map; NULL elsewhere */
	const char *text; /* of a scalar, NUL-terminated; embedded NULs are refused */
	bool quoted;      /* "12" in quotes is a string, not a number */
	int line, column; /* of the value, from 1 */
	int key_line, key_column;
	int n_children;
	struct node **children;
	const char *name; /* of the document, for messages */
};

enum document_flags {
	DOCUMENT_FOREIGN = 1, /* another tool's file: the last of duplicate keys wins */
};

/* Parses `text`; the tree lives in `arena`. An empty document is an error. `name` appears in
 * messages and is copied. */
struct node *document_parse(struct arena *arena, const char *name, const char *text, size_t length,
	unsigned flags, struct error *error);

/* The child with that key, NULL when absent or when `map` is NULL or no map. */
const struct node *node_get(const struct node *map, const char *key);

/* An error at the node: "name:line:col: key: ..." (no "key: " outside a map). Always false. */
bool node_error(const struct node *node, struct error *error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The same at the node's key: what is wrong is the name. */
bool node_key_error(const struct node *node, struct error *error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Typed values of a scalar; false with an error at the node ("expected a whole number, got ...").
 */
bool node_int(const struct node *node, int64_t *value, struct error *error);
bool node_double(const struct node *node, double *value, struct error *error);
bool node_bool(const struct node *node, bool *value, struct error *error); /* true false on off */
bool node_string(const struct node *node, const char **value, struct error *error);

/* The spellings behind node_int and node_bool, for options and CSV cells. A whole number may also
 * be written as "5e8" or "4096.0". */
bool parse_whole_number(const char *string, int64_t *value);
bool parse_bool(const char *string, bool *value);

/* Every key of `map` must be in the NULL-terminated list; the first unknown one is an error that
 * suggests the nearest known key, or names them all. */
bool node_only_keys(const struct node *map, const char *const *keys, struct error *error);

#endif
