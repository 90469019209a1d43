#include "base/document.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Most keys differ in their first letter. */
static bool is_same(const char *a, const char *b)
{
	return *a == *b && strcmp(a, b) == 0;
}

const struct node *node_get(const struct node *map, const char *key)
{
	if (map == NULL || map->kind != NODE_MAP)
		return NULL;
	for (int i = 0; i < map->n_children; i++) {
		if (is_same(map->children[i]->key, key))
			return map->children[i];
	}
	return NULL;
}

/* "key: message" where the node has a key: the position alone says little to a person. */
static bool error_in(const struct node *node, int line, int column, struct error *error,
	const char *format, va_list args)
{
	char message[512] = "";
	int length = 0;

	if (node != NULL && node->key != NULL)
		length = snprintf(message, sizeof(message), "%.60s: ", node->key);
	vsnprintf(message + length, sizeof(message) - (size_t)length, format, args);
	if (node == NULL)
		return error_set(error, EXIT_CODE_INPUT, "%s", message);
	return error_at(error, EXIT_CODE_INPUT, node->name, line, column, "%s", message);
}

bool node_error(const struct node *node, struct error *error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_in(node, node != NULL ? node->line : 0, node != NULL ? node->column : 0, error,
		format, args);
	va_end(args);
	return false;
}

bool node_key_error(const struct node *node, struct error *error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	error_in(node, node->key_line, node->key_column, error, format, args);
	va_end(args);
	return false;
}

/* "expected X, got ..." with what stands there, cut to a readable length. */
static bool unexpected(const struct node *node, struct error *error, const char *expected)
{
	static const char *const kinds[] = {
		[NODE_NULL] = "nothing", [NODE_LIST] = "a list", [NODE_MAP] = "a map"};

	if (node == NULL)
		return node_error(node, error, "expected %s, got nothing", expected);
	if (node->kind != NODE_SCALAR)
		return node_error(node, error, "expected %s, got %s", expected, kinds[node->kind]);
	bool is_long = strlen(node->text) > 60;
	return node_error(node, error, "expected %s, got %s\"%.60s%s\"", expected,
		node->quoted ? "the string " : "", node->text, is_long ? "..." : "");
}

static bool is_plain(const struct node *node)
{
	return node != NULL && node->kind == NODE_SCALAR && !node->quoted;
}

/* Also "5e8" and "4096.0": other tools write whole numbers so. Past 2^53 a double no longer tells
 * neighbours apart, so those must be written with all their digits. */
bool parse_whole_number(const char *string, int64_t *value)
{
	double number;

	if (parse_int(string, value))
		return true;
	if (!parse_number(string, &number) || number != floor(number) || fabs(number) > 0x1p53)
		return false;
	*value = (int64_t)number;
	return true;
}

bool parse_bool(const char *string, bool *value)
{
	static const struct {
		const char *word;
		bool value;
	} words[] = {{"true", true}, {"false", false}, {"on", true}, {"off", false}, {"True", true},
		{"False", false}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(string, words[i].word) == 0) {
			*value = words[i].value;
			return true;
		}
	}
	return false;
}

bool node_int(const struct node *node, int64_t *value, struct error *error)
{
	if (is_plain(node) && parse_whole_number(node->text, value))
		return true;
	return unexpected(node, error, "a whole number");
}

bool node_double(const struct node *node, double *value, struct error *error)
{
	if (is_plain(node) && parse_number(node->text, value))
		return true;
	return unexpected(node, error, "a number");
}

bool node_bool(const struct node *node, bool *value, struct error *error)
{
	if (is_plain(node) && parse_bool(node->text, value))
		return true;
	return unexpected(node, error, "true, false, on or off");
}

/* A number without quotes is taken as its text: a name may well look like one. */
bool node_string(const struct node *node, const char **value, struct error *error)
{
	if (node == NULL || node->kind != NODE_SCALAR)
		return unexpected(node, error, "a string");
	*value = node->text;
	return true;
}

enum { MOST_NAMED = 20 };

static bool unknown_key(const struct node *child, const char *const *keys, struct error *error)
{
	const char *near = nearest_name(child->key, keys);
	struct text known = {0};

	if (near != NULL)
		return node_key_error(child, error, "unknown key, did you mean \"%s\"?", near);
	for (int i = 0; keys[i] != NULL && i < MOST_NAMED; i++)
		text_printf(
			&known, "%s%s", i > 0 ? ", " : "", i + 1 < MOST_NAMED ? keys[i] : "...");
	node_key_error(child, error, "unknown key; known here: %s", text_string(&known));
	text_finish(&known);
	return false;
}

bool node_only_keys(const struct node *map, const char *const *keys, struct error *error)
{
	if (map == NULL || map->kind != NODE_MAP)
		return unexpected(map, error, "a map");
	for (int i = 0; i < map->n_children; i++) {
		const struct node *child = map->children[i];
		bool known = false;
		for (int k = 0; keys[k] != NULL && !known; k++)
			known = is_same(keys[k], child->key);
		if (!known)
			return unknown_key(child, keys, error);
	}
	return true;
}
