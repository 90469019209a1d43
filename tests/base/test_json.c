/* JSON: valid documents, and the messages for invalid ones. */
#include "tests/base/support.h"

static const struct refused refused[] = {
	{"{\"a\": tru}", "t:1:7: expected a JSON value, got tru; text needs double quotes"},
	{"{\"a\": NaN}", "t:1:7: expected a JSON value, got NaN; text needs double quotes"},
	{"{\"a\": -Infinity}",
		"t:1:7: expected a JSON value, got -Infinity; text needs double quotes"},
	{"{\"a\": 01}", "t:1:7: expected a JSON value, got 01; text needs double quotes"},
	{"{\"a\": +1}", "t:1:7: expected a JSON value, got +1; text needs double quotes"},
	{"{\"a\": .5}", "t:1:7: expected a JSON value, got .5; text needs double quotes"},
	{"{\"a\": 5.}", "t:1:7: expected a JSON value, got 5.; text needs double quotes"},
	{"{\"a\": 1e}", "t:1:7: expected a JSON value, got 1e; text needs double quotes"},
	{"{\"a\": 0x10}", "t:1:7: expected a JSON value, got 0x10; text needs double quotes"},
	{"{\"a\": -}", "t:1:7: expected a JSON value, got -; text needs double quotes"},
	{"{\"a\": 1.5.2}", "t:1:7: expected a JSON value, got 1.5.2; text needs double quotes"},
	{"{\"a\": 'x'}", "t:1:7: expected a JSON value, got '''"},
	{"{\"a\": \xc3\xa9}", "t:1:7: expected a JSON value, got '\xc3\xa9'"},
	{"{\"a\" 1}", "t:1:6: expected ':' after the key, got '1'"},
	{"{\"a\":}", "t:1:6: expected a JSON value, got '}'"},
	{"{\"a\": 1,}", "t:1:9: expected another key after ',', got '}'; remove the comma"},
	{"{\"a\": 1 \"b\": 2}", "t:1:9: expected ',' or '}', got '\"'"},
	{"{\"a\": 1, b: 2}", "t:1:10: expected a key in double quotes, got 'b'"},
	{"{\"a\": 1, 2: 2}", "t:1:10: expected a key in double quotes, got '2'"},
	{"[1, 2,]", "t:1:7: expected another value after ',', got ']'; remove the comma"},
	{"[1 2]", "t:1:4: expected ',' or ']', got '2'"},
	{"[1, 2}", "t:1:6: expected ',' or ']', got '}'"},
	{"[[]", "t:1:4: expected ',' or ']', got the end of the text"},
	{"{\"a\"", "t:1:5: expected ':' after the key, got the end of the text"},
	{"{\"a\":", "t:1:6: expected a JSON value, got the end of the text"},
	{"{", "t:1:2: expected a key in double quotes, got the end of the text"},
	{"{\"a\": \"abc", "t:1:7: string without a closing quote"},
	{"{\"a\": \"abc\\",
		"t:1:12: expected one of \" \\ / b f n r t u after \\, got the end of the text"},
	{"{\"abc", "t:1:2: string without a closing quote"},
	{"{\"a\": 1} x", "t:1:10: expected the end of the text, got 'x'"},
	{"{\"a\": 1}\n{\"b\": 2}", "t:2:1: expected the end of the text, got '{'"},
	{"{\"a\": \"x\ny\"}",
		"t:1:9: control character in a string, write it as an escape such as \\n or "
		"close the quote"},
	{"{\"a\": \"x\ty\"}",
		"t:1:9: control character in a string, write it as an escape such as \\n or "
		"close the quote"},
	{"{\"a\": \"\\x41\"}", "t:1:9: expected one of \" \\ / b f n r t u after \\, got 'x'"},
	{"{\"a\": \"\\u00g0\"}", "t:1:12: expected four hexadecimal digits after \\u, got 'g'"},
	{"{\"a\": \"\\u12\"}", "t:1:12: expected four hexadecimal digits after \\u, got '\"'"},
	{"{\"a\": \"\\u0000\"}", "t:1:14: expected text, got a NUL character"},
	{"{\"a\": \"\\ud83d\"}",
		"t:1:14: expected both halves of a surrogate pair (\\ud83d\\ude00)"},
	{"{\"a\": \"\\ude00\"}",
		"t:1:14: expected both halves of a surrogate pair (\\ud83d\\ude00)"},
	{"{\"a\": \"\\ud83d\\u0041\"}",
		"t:1:20: expected both halves of a surrogate pair (\\ud83d\\ude00)"},
	{"{\"a\": 1} // x", "t:1:10: expected the end of the text, got '/'"},
	{"{\"a\": \"\xc3\xa9\", \"b\": ?}", "t:1:17: expected a JSON value, got '?'"},
};

static void test_refused(void **state)
{
	(void)state;
	assert_refused(refused, COUNT_OF(refused));
}

static void test_strings(void **state)
{
	static const char *const cases[][2] = {{"", ""}, {"plain", "plain"},
		{"\\\" \\\\ \\/ \\b \\f \\n \\r \\t", "\" \\ / \b \f \n \r \t"},
		{"\\u0041\\u00e9", "A\xc3\xa9"}, {"\\u20AC\\u20ac", "\xe2\x82\xac\xe2\x82\xac"},
		{"\\ud83d\\ude00!", "\xf0\x9f\x98\x80!"},
		{"\\uffff\\u07ff\\u0800", "\xef\xbf\xbf\xdf\xbf\xe0\xa0\x80"},
		{"\\udbff\\udfff", "\xf4\x8f\xbf\xbf"}, {"# { [ : ' ", "# { [ : ' "},
		{"\\\\\\\"", "\\\""}};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		char *source = arena_printf(&arena, "{\"%s\": [\"%s\"]}", cases[i][0], cases[i][0]);
		struct node *root = parse_text(&arena, source);
		assert_string_equal(root->children[0]->key, cases[i][1]);
		assert_string_equal(root->children[0]->children[0]->text, cases[i][1]);
		assert_true(root->children[0]->children[0]->quoted);
	}
	arena_finish(&arena);
}

static void test_numbers(void **state)
{
	static const char *const good[] = {"0", "-0", "12", "-1.5", "0.5e10", "1E-5", "1e+05",
		"1e999", "123456789012345678901234567890"};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(good); i++) {
		struct node *root = parse_text(&arena, arena_printf(&arena, "[%s]", good[i]));
		assert_string_equal(root->children[0]->text, good[i]);
		assert_false(root->children[0]->quoted);
	}
	arena_finish(&arena);
}

/* Python's NaN and Infinity pass in foreign files, but not as numbers. */
static void test_foreign_words(void **state)
{
	static const char source[] = "{\"a\": NaN, \"b\": [Infinity, -Infinity]}";
	struct arena arena = {0};
	struct error error = {0};
	struct node *root =
		parse_bytes(&arena, source, sizeof(source) - 1, DOCUMENT_FOREIGN, &error);
	double value = 42;

	(void)state;
	assert_non_null(root);
	assert_false(node_double(node_get(root, "a"), &value, &error));
	assert_input_error(&error, "t:1:7: a: expected a number, got \"NaN\"");
	assert_true(value == 42);
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_strings),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_foreign_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
