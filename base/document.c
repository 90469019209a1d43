#include "base/document.h"

#include <string.h>

#include "base/content.h"
#include "base/text.h"
#include "base/tree.h"

enum { LARGEST_DOCUMENT = 64 << 20 };

static size_t skip_bom(const char *text, size_t length)
{
	return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static bool is_printed_ascii(char c)
{
	return c >= ' ' && (unsigned char)c < 0x7f;
}

/* NUL bytes and broken UTF-8 are found before the parser sees them, with their place. */
static bool check_text(struct tree *tree, const char *text, size_t length)
{
	int line = 1, column = 1;
	uint32_t point;

	if (length > LARGEST_DOCUMENT)
		return tree_fail(
			tree, 0, 0, "too large, expected at most 64 MiB, got %zu bytes", length);
	for (size_t i = 0; i < length; column++) {
		if (is_printed_ascii(text[i])) { /* as nearly all of it */
			i++;
			continue;
		}
		int bytes = utf8_decode(text + i, length - i, &point);
		if (bytes == 0)
			return tree_fail(tree, line, column,
				"expected UTF-8 text, got the byte 0x%02x",
				(unsigned)(unsigned char)text[i]);
		if (point == 0)
			return tree_fail(tree, line, column, "expected text, got a NUL byte");
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

/* YAML in flow style starts with a bracket too; what follows the bracket decides then. */
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
	struct tree tree = {.arena = arena, .flags = flags, .error = error};
	size_t bom = skip_bom(text, length);

	tree.name = arena_strdup(arena, name);
	text += bom;
	length -= bom;
	const char *kind = content_kind(text, length);
	bool ok = kind != NULL ? tree_fail(&tree, 1, 1, "expected YAML or JSON, got %s", kind)
			       : check_text(&tree, text, length);
	if (ok && length > 0)
		ok = looks_like_json(text, length) ? json_read(&tree, text, length)
						   : yaml_read(&tree, text, length);
	tree_finish(&tree);
	if (ok && (tree.root == NULL || tree.root->kind == NODE_NULL))
		ok = tree_fail(&tree, 0, 0, "the document is empty, expected YAML or JSON");
	return ok ? tree.root : NULL;
}
