#include <stdlib.h>
#include <string.h>

#include <libfyaml.h>

#include "base/tree.h"

/* libfyaml is used as a stream of events, never through its document tree: depth, aliases and
 * duplicates are judged while nothing has grown yet, and only this file knows the library. */

enum { LARGEST_YAML = 16 << 20 };

struct reader {
	struct tree *tree;
	const char *text;
	size_t length;
	struct fy_parser *parser;
	struct fy_diag *diag;
};

static bool is_quote_style(enum fy_scalar_style style)
{
	return style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
}

/* libfyaml counts from 0, marks a quoted scalar behind its quote, and gives no mark to a value that
 * is not there: that one stands where its key stands. */
static void place_of(const struct reader *reader, struct fy_event *event, int *line, int *column)
{
	const struct fy_mark *mark = fy_event_start_mark(event);
	const struct tree_frame *top = tree_top(reader->tree);

	if (mark == NULL && fy_event_get_anchor_token(event) != NULL)
		mark = fy_token_start_mark(fy_event_get_anchor_token(event));
	if (mark == NULL && fy_event_get_tag_token(event) != NULL)
		mark = fy_token_start_mark(fy_event_get_tag_token(event));
	*line = *column = 1;
	if (mark != NULL) {
		*line = mark->line + 1;
		*column = mark->column + 1;
		if (event->type == FYET_SCALAR && event->scalar.value != NULL &&
			is_quote_style(fy_token_scalar_style(event->scalar.value)))
			(*column)--;
	} else if (top != NULL) {
		*line = top->key != NULL ? top->key_line : top->node->line;
		*column = top->key != NULL ? top->key_column : top->node->column;
	}
}

/* The null words of YAML 1.2's core schema. */
static bool is_null(const char *text)
{
	return text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 ||
	       strcmp(text, "Null") == 0 || strcmp(text, "NULL") == 0;
}

static bool take_key(struct tree *tree, const char *text, bool quoted, int line, int column)
{
	if (!quoted && text[0] == '\0')
		return tree_fail(tree, line, column, "expected a key in front of ':'");
	if (!quoted && strcmp(text, "<<") == 0)
		return tree_fail(tree, line, column,
			"merge keys (<<) are not supported, write the keys out");
	tree_key(tree, text, line, column);
	return true;
}

static bool take_scalar(struct reader *reader, struct fy_event *event)
{
	struct tree *tree = reader->tree;
	struct fy_token *token = event->scalar.value;
	size_t length = 0;
	const char *raw = token != NULL ? fy_token_get_text(token, &length) : "";
	bool quoted = token != NULL && fy_token_scalar_style(token) != FYSS_PLAIN;
	int line, column;

	if (raw == NULL)
		base_out_of_memory(length);
	place_of(reader, event, &line, &column);
	if (memchr(raw, '\0', length) != NULL)
		return tree_fail(tree, line, column, "expected text, got a NUL character");
	char *text = arena_strndup(tree->arena, raw, length);
	if (tree_expects_key(tree))
		return take_key(tree, text, quoted, line, column);
	bool null = !quoted && is_null(text);
	tree_scalar(tree, null ? NODE_NULL : NODE_SCALAR, text, quoted, line, column);
	return true;
}

static bool take_collection(struct reader *reader, enum node_kind kind, struct fy_event *event)
{
	int line, column;

	place_of(reader, event, &line, &column);
	if (tree_expects_key(reader->tree))
		return tree_fail(reader->tree, line, column,
			"expected a plain word as a key, got a map or a list");
	return tree_begin(reader->tree, kind, line, column);
}

/* Anchors are refused and not only aliases: what is never referred to is a mistake as well, and
 * without them no document can be larger than its text. Tags would change types silently. */
static bool check_decorations(struct reader *reader, struct fy_event *event)
{
	int line, column;

	place_of(reader, event, &line, &column);
	if (event->type == FYET_ALIAS || fy_event_get_anchor_token(event) != NULL)
		return tree_fail(reader->tree, line, column,
			"anchors (&) and aliases (*) are not supported, write the value out");
	if (fy_event_get_tag_token(event) != NULL && !(reader->tree->flags & DOCUMENT_FOREIGN))
		return tree_fail(
			reader->tree, line, column, "tags (!) are not supported, remove the tag");
	return true;
}

static bool start_document(struct reader *reader, struct fy_event *event)
{
	int line, column;

	if (reader->tree->root == NULL)
		return true;
	place_of(reader, event, &line, &column);
	return tree_fail(reader->tree, line, column, "expected one document, got a second one");
}

static bool take_event(struct reader *reader, struct fy_event *event)
{
	switch (event->type) {
	case FYET_DOCUMENT_START:
		return start_document(reader, event);
	case FYET_MAPPING_START:
	case FYET_SEQUENCE_START:
		return check_decorations(reader, event) &&
		       take_collection(reader,
			       event->type == FYET_MAPPING_START ? NODE_MAP : NODE_LIST, event);
	case FYET_MAPPING_END:
	case FYET_SEQUENCE_END:
		return tree_end(reader->tree);
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

/* Whether a position that libfyaml reports is behind the last character that is not blank. */
static bool is_at_end(const struct reader *reader, int line, int column)
{
	const char *text = reader->text, *end = text + reader->length;

	while (end > text && strchr(" \t\r\n", end[-1]) != NULL)
		end--;
	for (; line > 1 && text < end; line--) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		text = newline != NULL ? newline + 1 : end;
	}
	return end - text < column;
}

/* libfyaml reports the cause first and consequences after it. At the end of the text its words
 * ("missing comma") name the symptom only. */
static bool fail_syntax(struct reader *reader)
{
	void *iterator = NULL;
	const struct fy_diag_error *first = fy_diag_errors_iterate(reader->diag, &iterator);

	if (first == NULL)
		return tree_fail(reader->tree, 0, 0, "expected YAML, got something unreadable");
	bool at_end = is_at_end(reader, first->line, first->column);
	return tree_fail(reader->tree, first->line, first->column, "YAML syntax: %s",
		at_end ? "the text ends too early, a bracket or a quote is not closed"
		       : first->msg);
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

/* While libfyaml waits whether a bracket starts a key, it queues about 200 bytes per token, so
 * nesting that would be refused anyway must not get there. The count is rough (it also sees
 * brackets in strings), therefore it allows far more than the tree does. */
static bool check_brackets(struct tree *tree, const char *text, size_t length)
{
	int line = 1, open = 0;

	for (size_t i = 0; i < length; i++) {
		char c = text[i];
		line += c == '\n';
		open += c == '[' || c == '{';
		open -= open > 0 && (c == ']' || c == '}');
		if (open > 100 * TREE_DEEPEST)
			return tree_fail(
				tree, line, 1, "nested too deeply, expected at most 64 levels");
	}
	return true;
}

static struct fy_diag *new_diag(void)
{
	struct fy_diag_cfg config = {
		.output_fn = discard_output, .level = FYET_ERROR, .module_mask = ~0u};
	struct fy_diag *diag = fy_diag_create(&config);
	if (diag == NULL)
		base_out_of_memory(0);
	fy_diag_set_collect_errors(diag, true);
	return diag;
}

bool yaml_read(struct tree *tree, const char *text, size_t length)
{
	struct reader reader = {.tree = tree, .text = text, .length = length};
	struct fy_parse_cfg config = {.flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_JSON_NONE |
					       FYPCF_DEFAULT_VERSION_1_2 | FYPCF_DISABLE_MMAP_OPT};

	if (length > LARGEST_YAML)
		return tree_fail(tree, 0, 0,
			"too large, expected at most 16 MiB of YAML (or 64 MiB of JSON), "
			"got %zu bytes",
			length);
	if (!check_brackets(tree, text, length))
		return false;
	config.diag = reader.diag = new_diag();
	reader.parser = fy_parser_create(&config);
	if (reader.parser == NULL || fy_parser_set_string(reader.parser, text, length) != 0)
		base_out_of_memory(length);
	bool ok = read_events(&reader);
	fy_parser_destroy(reader.parser);
	fy_diag_destroy(reader.diag); /* unref alone keeps the collected errors */
	return ok;
}
