#include "base/document.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libfyaml.h>

#include "base/text.h"

/* libfyaml is used as a stream of events, never through its document tree: the events are turned
 * into nodes without recursion, so depth, aliases and duplicates are judged here, before anything
 * grows. */

enum { DEEPEST = 64, LARGEST_DOCUMENT = 64 << 20 };

/* An open map or list; its children so far are `finished[first_child...]` of the reader. */
struct frame {
	struct node *node;
	int first_child;
	const char *key; /* of a map: key read, value not yet */
};

struct reader {
	struct arena *arena;
	const char *name;
	unsigned flags;
	bool json;
	struct error *error;
	struct fy_parser *parser;
	struct fy_diag *diag;
	int depth;
	struct frame frames[DEEPEST];
	int n_finished, finished_capacity;
	struct node **finished;
	struct node *root;
};

static bool fail(struct reader *reader, int line, int column, const char *what)
{
	return error_at(reader->error, EXIT_CODE_INPUT, reader->name, line, column, "%s", what);
}

static void place_of(struct fy_event *event, int *line, int *column)
{
	const struct fy_mark *mark = fy_event_start_mark(event);

	*line = mark != NULL ? mark->line + 1 : 1;
	*column = mark != NULL ? mark->column + 1 : 1;
}

static struct node *new_node(struct reader *reader, enum node_kind kind, struct fy_event *event)
{
	struct node *node = ARENA_NEW(reader->arena, struct node);

	node->kind = kind;
	node->name = reader->name;
	place_of(event, &node->line, &node->column);
	return node;
}

/* Puts a finished value where it belongs: under its key, in its list, or at the root. */
static void add_value(struct reader *reader, struct node *node)
{
	if (reader->depth == 0) {
		reader->root = node;
		return;
	}
	struct frame *frame = &reader->frames[reader->depth - 1];
	node->key = frame->key;
	frame->key = NULL;
	reader->finished = array_grow(reader->finished, &reader->finished_capacity,
		reader->n_finished + 1, sizeof(struct node *));
	reader->finished[reader->n_finished++] = node;
}

static bool expects_key(const struct reader *reader)
{
	if (reader->depth == 0)
		return false;
	const struct frame *frame = &reader->frames[reader->depth - 1];
	return frame->node->kind == NODE_MAP && frame->key == NULL;
}

static bool begin_collection(struct reader *reader, enum node_kind kind, struct fy_event *event)
{
	struct node *node = new_node(reader, kind, event);

	if (expects_key(reader))
		return fail(reader, node->line, node->column,
			"expected a plain word as a key, got a map or a list");
	if (reader->depth == DEEPEST)
		return fail(reader, node->line, node->column,
			"nested too deeply, expected at most 64 levels");
	reader->frames[reader->depth++] =
		(struct frame){.node = node, .first_child = reader->n_finished};
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

static bool check_duplicates(struct reader *reader, struct node *map)
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
	if (later != NULL && (reader->flags & DOCUMENT_FOREIGN))
		drop_duplicates(map, sorted);
	free(sorted);
	if (later == NULL || (reader->flags & DOCUMENT_FOREIGN))
		return true;
	return node_error(later, reader->error,
		"duplicate key, already given in line %d; remove one of them", earlier->line);
}

static bool end_collection(struct reader *reader)
{
	struct frame *frame = &reader->frames[--reader->depth];
	struct node *node = frame->node;

	node->n_children = reader->n_finished - frame->first_child;
	node->children = ARENA_ARRAY(reader->arena, struct node *, node->n_children);
	if (node->n_children > 0)
		memcpy(node->children, reader->finished + frame->first_child,
			(size_t)node->n_children * sizeof(struct node *));
	reader->n_finished = frame->first_child;
	if (node->kind == NODE_MAP && !check_duplicates(reader, node))
		return false;
	add_value(reader, node);
	return true;
}

/* The null words of YAML 1.2's core schema. */
static bool is_null(const char *text)
{
	return text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 ||
	       strcmp(text, "Null") == 0 || strcmp(text, "NULL") == 0;
}

static bool take_key(struct reader *reader, const struct node *node, const char *text)
{
	struct frame *frame = &reader->frames[reader->depth - 1];

	if (!node->quoted && text[0] == '\0')
		return fail(reader, node->line, node->column, "expected a key in front of ':'");
	if (!node->quoted && strcmp(text, "<<") == 0)
		return fail(reader, node->line, node->column,
			"merge keys (<<) are not supported, write the keys out");
	if (reader->json && !node->quoted)
		return fail(reader, node->line, node->column, "expected a key in double quotes");
	frame->key = text;
	return true;
}

/* JSON has four plain words; everything else without quotes is a mistake, for YAML a string. */
static bool is_json_word(const char *text)
{
	double number;
	const char *digit = text + (text[0] == '-');

	return strcmp(text, "true") == 0 || strcmp(text, "false") == 0 ||
	       strcmp(text, "null") == 0 ||
	       (isdigit((unsigned char)*digit) &&
		       (parse_number(text, &number) || strpbrk(text, "eE") != NULL));
}

static bool take_scalar(struct reader *reader, struct fy_event *event)
{
	size_t length = 0;
	struct fy_token *token = event->scalar.value;
	const char *raw = token != NULL ? fy_token_get_text(token, &length) : "";
	struct node *node = new_node(reader, NODE_SCALAR, event);

	if (raw == NULL)
		base_out_of_memory(length);
	if (memchr(raw, '\0', length) != NULL)
		return fail(reader, node->line, node->column, "expected text, got a NUL character");
	char *text = arena_strndup(reader->arena, raw, length);
	node->quoted = token != NULL && fy_token_scalar_style(token) != FYSS_PLAIN;
	if (expects_key(reader))
		return take_key(reader, node, text);
	if (reader->json && !node->quoted && !is_json_word(text))
		return error_at(reader->error, EXIT_CODE_INPUT, reader->name, node->line,
			node->column,
			"expected a JSON value, got %.40s; strings need double quotes", text);
	if (!node->quoted && is_null(text))
		node->kind = NODE_NULL;
	else
		node->text = text;
	add_value(reader, node);
	return true;
}

/* Anchors are refused and not only aliases: what is never referred to is a mistake as well, and
 * without them no document can be larger than its text. Tags would change types silently. */
static bool check_decorations(struct reader *reader, struct fy_event *event)
{
	int line, column;

	place_of(event, &line, &column);
	if (event->type == FYET_ALIAS || fy_event_get_anchor_token(event) != NULL)
		return fail(reader, line, column,
			"anchors (&) and aliases (*) are not supported, write the value out");
	if (fy_event_get_tag_token(event) != NULL && !(reader->flags & DOCUMENT_FOREIGN))
		return fail(reader, line, column, "tags (!) are not supported, remove the tag");
	return true;
}

static bool start_document(struct reader *reader, struct fy_event *event)
{
	int line, column;

	if (reader->root == NULL)
		return true;
	place_of(event, &line, &column);
	return fail(reader, line, column, "expected one document, got a second one");
}

static bool take_event(struct reader *reader, struct fy_event *event)
{
	switch (event->type) {
	case FYET_DOCUMENT_START:
		return start_document(reader, event);
	case FYET_MAPPING_START:
	case FYET_SEQUENCE_START:
		return check_decorations(reader, event) &&
		       begin_collection(reader,
			       event->type == FYET_MAPPING_START ? NODE_MAP : NODE_LIST, event);
	case FYET_MAPPING_END:
	case FYET_SEQUENCE_END:
		return end_collection(reader);
	case FYET_SCALAR:
		return check_decorations(reader, event) && take_scalar(reader, event);
	case FYET_ALIAS:
		return check_decorations(reader, event);
	case FYET_NONE:
	case FYET_STREAM_START:
	case FYET_STREAM_END:
	case FYET_DOCUMENT_END:
		break;
	}
	return true;
}

/* libfyaml reports the cause first and consequences after it. */
static bool fail_syntax(struct reader *reader)
{
	void *iterator = NULL;
	const struct fy_diag_error *first = fy_diag_errors_iterate(reader->diag, &iterator);

	if (first == NULL)
		return error_at(reader->error, EXIT_CODE_INPUT, reader->name, 0, 0,
			"expected %s, got something that cannot be read",
			reader->json ? "JSON" : "YAML");
	return error_at(reader->error, EXIT_CODE_INPUT, reader->name, first->line, first->column,
		"%s syntax: %s", reader->json ? "JSON" : "YAML", first->msg);
}

static bool read_events(struct reader *reader)
{
	for (;;) {
		struct fy_event *event = fy_parser_parse(reader->parser);
		if (event == NULL)
			return !fy_diag_got_error(reader->diag) || fail_syntax(reader);
		bool end = event->type == FYET_STREAM_END;
		bool ok = take_event(reader, event);
		fy_parser_event_free(reader->parser, event);
		if (!ok || end)
			return ok;
	}
}

/* The library must neither print nor stop; it only collects. */
static void discard_output(struct fy_diag *diag, void *user, const char *text, size_t length)
{
	(void)diag, (void)user, (void)text, (void)length;
}

static bool parse(struct reader *reader, const char *text, size_t length)
{
	struct fy_diag_cfg diag_config;
	struct fy_parse_cfg config = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG |
					       FYPCF_DEFAULT_VERSION_1_2 | FYPCF_DISABLE_MMAP_OPT};

	fy_diag_cfg_default(&diag_config);
	diag_config.fp = NULL;
	diag_config.output_fn = discard_output;
	diag_config.colorize = false;
	reader->diag = fy_diag_create(&diag_config);
	if (reader->diag == NULL)
		base_out_of_memory(0);
	fy_diag_set_collect_errors(reader->diag, true);
	config.diag = reader->diag;
	config.flags |= reader->json ? FYPCF_JSON_FORCE : FYPCF_JSON_NONE;
	reader->parser = fy_parser_create(&config);
	if (reader->parser == NULL || fy_parser_set_string(reader->parser, text, length) != 0)
		base_out_of_memory(length);
	bool ok = read_events(reader);
	fy_parser_destroy(reader->parser);
	fy_diag_unref(reader->diag);
	free(reader->finished);
	return ok;
}

static size_t skip_bom(const char *text, size_t length)
{
	return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* NUL bytes and broken UTF-8 are found before the parser sees them, with their place. */
static bool check_text(struct reader *reader, const char *text, size_t length)
{
	int line = 1, column = 1;
	uint32_t point;

	if (length > LARGEST_DOCUMENT)
		return error_at(reader->error, EXIT_CODE_INPUT, reader->name, 0, 0,
			"too large, expected at most 64 MiB, got %zu bytes", length);
	for (size_t i = 0; i < length; column++) {
		int bytes = utf8_decode(text + i, length - i, &point);
		if (bytes == 0)
			return error_at(reader->error, EXIT_CODE_INPUT, reader->name, line, column,
				"expected UTF-8 text, got the byte 0x%02x",
				(unsigned)(unsigned char)text[i]);
		if (point == 0)
			return fail(reader, line, column, "expected text, got a NUL byte");
		i += (size_t)bytes;
		if (point == '\n') {
			line++;
			column = 0;
		}
	}
	return true;
}

static size_t skip_blanks(const char *text, size_t length, size_t i)
{
	while (i < length && strchr(" \t\r\n", text[i]) != NULL)
		i++;
	return i;
}

/* JSON is not quite a part of YAML (tabs indent, escapes differ), so the parser must know. Both
 * start with '{' or '[' when YAML is in flow style; what follows the bracket decides then. */
static bool looks_like_json(const char *text, size_t length)
{
	size_t start = skip_blanks(text, length, 0);

	if (start == length || (text[start] != '{' && text[start] != '['))
		return false;
	size_t next = skip_blanks(text, length, start + 1);
	if (next == length)
		return true;
	if (text[start] == '{')
		return text[next] == '"' || text[next] == '}';
	return strchr("\"{[]-0123456789", text[next]) != NULL;
}

struct node *document_parse(struct arena *arena, const char *name, const char *text, size_t length,
	unsigned flags, struct error *error)
{
	struct reader reader = {.arena = arena, .flags = flags, .error = error};
	size_t bom = length > 0 ? skip_bom(text, length) : 0;

	text += bom;
	length -= bom;
	reader.name = arena_strdup(arena, name);
	if (length > 0 && !check_text(&reader, text, length))
		return NULL;
	reader.json = looks_like_json(text, length);
	if (length > 0 && !parse(&reader, text, length))
		return NULL;
	if (reader.root == NULL || reader.root->kind == NODE_NULL) {
		error_at(error, EXIT_CODE_INPUT, name, 0, 0,
			"the document is empty, expected YAML or JSON");
		return NULL;
	}
	return reader.root;
}
