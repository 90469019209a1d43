/* YAML and JSON alike: the tree, places, duplicates, limits. */
#include "tests/base/support.h"

/* "kind line:column key=text", one line per node, indented by depth. */
static void dump(const struct node *node, int depth, struct text *text)
{
	static const char *const kinds[] = {"null", "scalar", "list", "map"};

	text_repeat(text, ' ', depth);
	text_printf(text, "%s %d:%d", kinds[node->kind], node->line, node->column);
	if (node->key != NULL)
		text_printf(text, " %s", node->key);
	if (node->text != NULL)
		text_printf(text, "=%s%s", node->text, node->quoted ? " (quoted)" : "");
	text_add_char(text, '\n');
	assert_string_equal(node->name, "t");
	for (int i = 0; i < node->n_children; i++)
		dump(node->children[i], depth + 1, text);
}

static void check_tree(const char *source, const char *expected)
{
	struct arena arena = {0};
	struct text text = {0};

	dump(parse_text(&arena, source), 0, &text);
	assert_string_equal(text_string(&text), expected);
	text_finish(&text);
	arena_finish(&arena);
}

static void test_yaml_tree(void **state)
{
	(void)state;
	check_tree("# model\n"
		   "name: llama\n"
		   "layers: [1, \"2\"]\n"
		   "empty:\n"
		   "nested:\n"
		   "  - x: 1\n"
		   "    y: 'two'\n"
		   "  - []\n"
		   "  -\n"
		   "flow: {a: , b: ~}\n"
		   "block: |\n"
		   "  text\n"
		   "\xc3\xa9: \xc3\xbc\n",
		"map 2:1\n"
		" scalar 2:7 name=llama\n"
		" list 3:9 layers\n"
		"  scalar 3:10=1\n"
		"  scalar 3:13=2 (quoted)\n"
		" null 4:1 empty\n"
		" list 6:3 nested\n"
		"  map 6:5\n"
		"   scalar 6:8 x=1\n"
		"   scalar 7:8 y=two (quoted)\n"
		"  list 8:5\n"
		"  null 6:3\n"
		" map 10:7 flow\n"
		"  null 10:8 a\n"
		"  null 10:16 b\n"
		" scalar 12:1 block=text\n (quoted)\n"
		" scalar 13:4 \xc3\xa9=\xc3\xbc\n");
}

static void test_json_tree(void **state)
{
	(void)state;
	check_tree("{\n"
		   "\t\"name\": \"llama\",\n"
		   "\t\"layers\": [1, -2.5e+3, true],\n"
		   "\t\"\xc3\xa9\": null, \"z\": {\"a\": [], \"b\": {}},\r\n"
		   "\t\"e\": \"\xc3\xa9\", \"f\": 0\n"
		   "}\n",
		"map 1:1\n"
		" scalar 2:10 name=llama (quoted)\n"
		" list 3:12 layers\n"
		"  scalar 3:13=1\n"
		"  scalar 3:16=-2.5e+3\n"
		"  scalar 3:25=true\n"
		" null 4:7 \xc3\xa9\n"
		" map 4:18 z\n"
		"  list 4:24 a\n"
		"  map 4:33 b\n"
		" scalar 5:7 e=\xc3\xa9 (quoted)\n"
		" scalar 5:17 f=0\n");
}

/* A byte order mark does not shift the first line. */
static void test_bom(void **state)
{
	(void)state;
	check_tree("\xef\xbb\xbf"
		   "a: 1\n",
		"map 1:1\n scalar 1:4 a=1\n");
	check_tree("\xef\xbb\xbf{\"a\": 1}", "map 1:1\n scalar 1:7 a=1\n");
}

/* Flow style is YAML until it looks like JSON, and both give the same tree. */
static void test_which(void **state)
{
	(void)state;
	check_tree("{a: 1}", "map 1:1\n scalar 1:5 a=1\n");
	check_tree("[a, b]", "list 1:1\n scalar 1:2=a\n scalar 1:5=b\n");
	check_tree(" {}", "map 1:2\n");
	check_tree("[]", "list 1:1\n");
	check_tree("[1]", "list 1:1\n scalar 1:2=1\n");
	check_tree("just words", "scalar 1:1=just words\n");
	check_tree("\"quoted\"", "scalar 1:1=quoted (quoted)\n");
}

static void check_refused(const char *source, size_t length, const char *message)
{
	struct arena arena = {0};
	struct error error = {0};

	assert_null(parse_bytes(&arena, source, length, 0, &error));
	assert_input_error(&error, message);
	arena_finish(&arena);
}

static void test_bytes_refused(void **state)
{
	(void)state;
	check_refused("", 0, "t: the document is empty, expected YAML or JSON");
	check_refused("\xef\xbb\xbf", 3, "t: the document is empty, expected YAML or JSON");
	check_refused("# only\n", 7, "t: the document is empty, expected YAML or JSON");
	check_refused("---\n", 4, "t: the document is empty, expected YAML or JSON");
	check_refused("null", 4, "t: the document is empty, expected YAML or JSON");
	check_refused("<!DOCTYPE html>\n", 16, "t:1:1: expected YAML or JSON, got an HTML page");
	check_refused("\x89PNG\r\n\x1a\n", 8, "t:1:1: expected YAML or JSON, got a PNG picture");
	check_refused("a: 1\nb: x\0y\n", 12, "t:2:5: expected text, got a NUL byte");
	check_refused("{\"a\": \"\0\"}", 10, "t:1:8: expected text, got a NUL byte");
	check_refused("a: \xc3\xa9\xff\n", 7, "t:1:5: expected UTF-8 text, got the byte 0xff");
	check_refused("a: 1\n\xed\xa0\x80", 8, "t:2:1: expected UTF-8 text, got the byte 0xed");
	check_refused("a: \xc3", 4, "t:1:4: expected UTF-8 text, got the byte 0xc3");
}

static void test_duplicates_refused(void **state)
{
	static const char yaml[] = "a: 1\nb: 2\na: 3\n",
			  json[] = "{\"a\": 1,\n\"b\": {\"a\": 0},\n\"a\": 3}";

	(void)state;
	check_refused(yaml, strlen(yaml),
		"t:3:1: a: duplicate key, already given in line 1; remove one of them");
	check_refused(json, strlen(json),
		"t:3:1: a: duplicate key, already given in line 1; remove one of them");
}

/* In a foreign file the last one wins and stands where it stood. */
static void test_duplicates_foreign(void **state)
{
	static const char *const sources[] = {"a: 1\nb: 2\na: 3\nb: 4\nc: 5\na: 6\n",
		"{\"a\": 1, \"b\": 2, \"a\": 3, \"b\": 4, \"c\": 5, \"a\": 6}"};

	(void)state;
	for (int i = 0; i < COUNT_OF(sources); i++) {
		struct arena arena = {0};
		struct error error = {0};
		struct node *root = parse_bytes(
			&arena, sources[i], strlen(sources[i]), DOCUMENT_FOREIGN, &error);
		assert_non_null(root);
		assert_int_equal(root->n_children, 3);
		assert_string_equal(root->children[0]->key, "b");
		assert_string_equal(node_get(root, "b")->text, "4");
		assert_string_equal(node_get(root, "c")->text, "5");
		assert_string_equal(node_get(root, "a")->text, "6");
		arena_finish(&arena);
	}
}

/* The error is optional and the first one wins, as everywhere. */
static void test_error_kept(void **state)
{
	struct arena arena = {0};
	struct error error = {.code = EXIT_CODE_USAGE, .message = "first"};

	(void)state;
	assert_null(document_parse(&arena, "t", "a: [", 4, 0, &error));
	assert_error(&error, EXIT_CODE_USAGE, "first");
	assert_null(document_parse(&arena, "t", "a: [", 4, 0, NULL));
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_yaml_tree),
		cmocka_unit_test(test_json_tree),
		cmocka_unit_test(test_bom),
		cmocka_unit_test(test_which),
		cmocka_unit_test(test_bytes_refused),
		cmocka_unit_test(test_duplicates_refused),
		cmocka_unit_test(test_duplicates_foreign),
		cmocka_unit_test(test_error_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
