#include "base/json_stream.h"
#include "base/tree.h"

/* JSON is read here and not by libfyaml's JSON mode, which cannot know whether the outermost
 * bracket starts a key and therefore queues the whole document: 810 MiB for 14 MiB. */

struct reader {
	struct tree *tree;
	struct json_stream stream;
};

static bool on_event(void *data, enum json_event event, int depth, const char *key,
	const char *value, bool quoted, struct error *error)
{
	struct reader *reader = data;
	struct tree *tree = reader->tree;
	struct json_place key_at = reader->stream.key_at, at = reader->stream.value_at;

	(void)depth, (void)error;
	if (event == JSON_END)
		return tree_end(tree);
	if (key != NULL)
		tree_key(tree, arena_strdup(tree->arena, key), key_at.line, key_at.column);
	if (event != JSON_SCALAR)
		return tree_begin(
			tree, event == JSON_MAP ? NODE_MAP : NODE_LIST, at.line, at.column);
	bool is_null = !quoted && value[0] == 'n';
	tree_scalar(tree, is_null ? NODE_NULL : NODE_SCALAR, arena_strdup(tree->arena, value),
		quoted, at.line, at.column);
	return true;
}

bool json_read(struct tree *tree, const char *text, size_t length)
{
	struct reader reader = {.tree = tree};

	json_stream_init(&reader.stream, tree->name, on_event, &reader);
	reader.stream.foreign = (tree->flags & DOCUMENT_FOREIGN) != 0;
	reader.stream.longest = 0;
	bool ok = json_stream_feed(&reader.stream, text, length, tree->error) &&
		  json_stream_end(&reader.stream, tree->error);
	json_stream_finish(&reader.stream);
	return ok;
}
