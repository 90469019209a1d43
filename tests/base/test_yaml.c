/* YAML: invalid documents and their messages. */
#include "tests/base/support.h"

static const struct refused refused[] = {
	{"a: &x 1\nb: *x\n",
		"t:1:7: anchors (&) and aliases (*) are not supported, write the value out"},
	{"b: *x\n", "t:1:5: anchors (&) and aliases (*) are not supported, write the value out"},
	{"a: &x\n", "t:1:5: anchors (&) and aliases (*) are not supported, write the value out"},
	{"- &x [1]\n", "t:1:6: anchors (&) and aliases (*) are not supported, write the value out"},
	{"&k a: 1\n", "t:1:4: anchors (&) and aliases (*) are not supported, write the value out"},
	{"b:\n  <<: {c: 1}\n", "t:2:3: merge keys (<<) are not supported, write the keys out"},
	{"a: !!str 12\n", "t:1:10: tags (!) are not supported, remove the tag"},
	{"a: !x [1]\n", "t:1:7: tags (!) are not supported, remove the tag"},
	{"--- \na: 1\n---\nb: 2\n", "t:3:1: expected one document, got a second one"},
	{"? [a]\n: b\n", "t:1:3: expected a plain word as a key, got a map or a list"},
	{"? {a: b}\n: b\n", "t:1:3: expected a plain word as a key, got a map or a list"},
	{": b\n", "t:1:1: expected a key in front of ':'"},
	{"a: \"\\0\"\n", "t:1:4: expected text, got a NUL character"},
	{"a: [1, 2\n", "t:2:1: YAML syntax: the text ends too early, a bracket or a quote is not "
		       "closed"},
	{"a: \"x\n", "t:1:5: YAML syntax: double-quoted scalar without closing quote"},
	{"a: b: c\n", "t:1:5: YAML syntax: invalid nested block mapping on the same line"},
	{"\ta: 1\n", "t:1:1: YAML syntax: invalid tab as indendation in a mapping"},
	{"a: ]\n", "t:1:4: YAML syntax: flow sequence with invalid extra closing bracket"},
};

static void test_refused(void **state)
{
	(void)state;
	assert_refused(refused, COUNT_OF(refused));
}

/* Words of the core schema, and words that are none of it. */
static void test_words(void **state)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
	static const char *const words[] = {"nil", "none", "NuLL", "\"null\"", "'~'", "\"\""};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(nulls); i++) {
		struct node *root = parse_text(&arena, arena_printf(&arena, "a: %s\n", nulls[i]));
		assert_int_equal(node_get(root, "a")->kind, NODE_NULL);
		assert_null(node_get(root, "a")->text);
	}
	for (int i = 0; i < COUNT_OF(words); i++) {
		struct node *root = parse_text(&arena, arena_printf(&arena, "a: %s\n", words[i]));
		assert_int_equal(node_get(root, "a")->kind, NODE_SCALAR);
	}
	arena_finish(&arena);
}

static void test_styles(void **state)
{
	struct arena arena = {0};
	struct node *root = parse_text(&arena, "plain: a b\n"
					       "single: 'it''s'\n"
					       "double: \"a\\tb\\x41\\u00e9\\n\"\n"
					       "literal: |\n"
					       "  one\n"
					       "  two\n"
					       "folded: >-\n"
					       "  one\n"
					       "  two\n"
					       "'quoted key': 1\n"
					       "continued: one\n"
					       "  two\n");

	(void)state;
	assert_string_equal(node_get(root, "plain")->text, "a b");
	assert_false(node_get(root, "plain")->quoted);
	assert_string_equal(node_get(root, "single")->text, "it's");
	assert_true(node_get(root, "single")->quoted);
	assert_string_equal(node_get(root, "double")->text, "a\tbA\xc3\xa9\n");
	assert_string_equal(node_get(root, "literal")->text, "one\ntwo\n");
	assert_true(node_get(root, "literal")->quoted);
	assert_string_equal(node_get(root, "folded")->text, "one two");
	assert_string_equal(node_get(root, "quoted key")->text, "1");
	assert_string_equal(node_get(root, "continued")->text, "one two");
	arena_finish(&arena);
}

/* Other tools' files may carry tags; they are read past. */
static void test_foreign_tags(void **state)
{
	static const char source[] = "a: !!int 12\nb: !x {c: 1}\n";
	struct arena arena = {0};
	struct error error = {0};
	struct node *root =
		parse_bytes(&arena, source, sizeof(source) - 1, DOCUMENT_FOREIGN, &error);

	(void)state;
	assert_non_null(root);
	assert_string_equal(node_get(root, "a")->text, "12");
	assert_string_equal(node_get(node_get(root, "b"), "c")->text, "1");
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_styles),
		cmocka_unit_test(test_foreign_tags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
