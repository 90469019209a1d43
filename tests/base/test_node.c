/* Typed access to nodes and its messages. */
#include "tests/base/support.h"

static const char source[] = "text: abc\n"
			     "int: -12\n"
			     "whole: 5e8\n"
			     "half: 2.5\n"
			     "quoted: \"12\"\n"
			     "yes: true\n"
			     "off: off\n"
			     "nothing:\n"
			     "list: [1]\n"
			     "map: {a: 1}\n"
			     "huge: 99999999999999999999\n"
			     "vast: 1e999\n"
			     "fine: 9007199254740993\n"
			     "coarse: 9.007199254740994e15\n";

static struct node *root;
static struct arena arena;

static int set_up(void **state)
{
	(void)state;
	root = parse_text(&arena, source);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	arena_finish(&arena);
	return 0;
}

static void test_get(void **state)
{
	(void)state;
	assert_string_equal(node_get(root, "text")->text, "abc");
	assert_null(node_get(root, "tex"));
	assert_null(node_get(NULL, "text"));
	assert_null(node_get(node_get(root, "list"), "a"));
	assert_null(node_get(node_get(root, "text"), "a"));
	assert_non_null(node_get(node_get(root, "map"), "a"));
}

static void test_values(void **state)
{
	struct error error = {0};
	int64_t i = 0;
	double d = 0;
	bool b = false;
	const char *s = NULL;

	(void)state;
	assert_true(node_int(node_get(root, "int"), &i, &error));
	assert_int_equal(i, -12);
	assert_true(node_int(node_get(root, "whole"), &i, &error));
	assert_int_equal(i, 500000000);
	assert_true(node_int(node_get(root, "fine"), &i, &error));
	assert_true(i == 9007199254740993);
	assert_true(node_double(node_get(root, "half"), &d, &error));
	assert_true(d == 2.5);
	assert_true(node_double(node_get(root, "huge"), &d, &error));
	assert_true(d == 1e20);
	assert_true(node_bool(node_get(root, "yes"), &b, &error));
	assert_true(b);
	assert_true(node_bool(node_get(root, "off"), &b, &error));
	assert_false(b);
	assert_true(node_string(node_get(root, "text"), &s, &error));
	assert_string_equal(s, "abc");
	assert_true(node_string(node_get(root, "quoted"), &s, &error));
	assert_string_equal(s, "12");
	assert_true(node_string(node_get(root, "int"), &s, &error));
	assert_string_equal(s, "-12");
	assert_error(&error, EXIT_CODE_OK, "");
}

enum { INT, DOUBLE, BOOL, STRING };

static bool read_as(int type, const struct node *node, struct error *error)
{
	int64_t i;
	double d;
	bool b;
	const char *s;

	return type == INT      ? node_int(node, &i, error)
	       : type == DOUBLE ? node_double(node, &d, error)
	       : type == BOOL   ? node_bool(node, &b, error)
				: node_string(node, &s, error);
}

static void test_refused(void **state)
{
	static const struct {
		int type;
		const char *key, *message;
	} cases[] = {
		{INT, "text", "t:1:7: text: expected a whole number, got \"abc\""},
		{INT, "half", "t:4:7: half: expected a whole number, got \"2.5\""},
		{INT, "quoted", "t:5:9: quoted: expected a whole number, got the string \"12\""},
		{INT, "nothing", "t:8:1: nothing: expected a whole number, got nothing"},
		{INT, "list", "t:9:7: list: expected a whole number, got a list"},
		{INT, "map", "t:10:6: map: expected a whole number, got a map"},
		{INT, "huge",
			"t:11:7: huge: expected a whole number, got \"99999999999999999999\""},
		{INT, "coarse",
			"t:14:9: coarse: expected a whole number, got \"9.007199254740994e15\""},
		{INT, "absent", "expected a whole number, got nothing"},
		{DOUBLE, "text", "t:1:7: text: expected a number, got \"abc\""},
		{DOUBLE, "vast", "t:12:7: vast: expected a number, got \"1e999\""},
		{DOUBLE, "quoted", "t:5:9: quoted: expected a number, got the string \"12\""},
		{BOOL, "int", "t:2:6: int: expected true, false, on or off, got \"-12\""},
		{BOOL, "list", "t:9:7: list: expected true, false, on or off, got a list"},
		{STRING, "list", "t:9:7: list: expected a string, got a list"},
		{STRING, "nothing", "t:8:1: nothing: expected a string, got nothing"},
	};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct error error = {0};
		assert_false(read_as(cases[i].type, node_get(root, cases[i].key), &error));
		assert_input_error(&error, cases[i].message);
	}
}

static void test_long_value(void **state)
{
	struct arena local = {0};
	struct error error = {0};
	int64_t value;
	struct node *node = parse_text(&local, arena_printf(&local, "%080d x", 1));

	(void)state;
	assert_false(node_int(node, &value, &error));
	assert_input_error(&error,
		"t:1:1: expected a whole number, got \""
		"000000000000000000000000000000000000000000000000000000000000...\"");
	arena_finish(&local);
}

static void test_error(void **state)
{
	struct error error = {0};

	(void)state;
	assert_false(node_error(node_get(root, "list"), &error, "expected %d items", 2));
	assert_input_error(&error, "t:9:7: list: expected 2 items");
	error_clear(&error);
	assert_false(node_error(node_get(root, "list")->children[0], &error, "too small"));
	assert_input_error(&error, "t:9:8: too small");
	error_clear(&error);
	assert_false(node_error(NULL, &error, "nothing there"));
	assert_input_error(&error, "nothing there");
}

static void test_only_keys(void **state)
{
	static const char *const all[] = {"text", "int", "whole", "half", "quoted", "yes", "off",
		"nothing", "list", "map", "huge", "vast", "fine", "coarse", "more", NULL};
	static const char *const near[] = {"text", "int", "whole", "half", "quotes", NULL};
	static const char *const far[] = {"text", "int", "whole", "half", NULL};
	struct error error = {0};

	(void)state;
	assert_true(node_only_keys(root, all, &error));
	assert_false(node_only_keys(root, near, &error));
	assert_input_error(&error, "t:5:1: quoted: unknown key, did you mean \"quotes\"?");
	error_clear(&error);
	assert_false(node_only_keys(root, far, &error));
	assert_input_error(
		&error, "t:5:1: quoted: unknown key; known here: text, int, whole, half");
	error_clear(&error);
	assert_false(node_only_keys(node_get(root, "list"), all, &error));
	assert_input_error(&error, "t:9:7: list: expected a map, got a list");
}

static void test_spellings(void **state)
{
	static const char *const wholes[] = {"5e8", "4096.0", "-0.0", "1E3", "9007199254740992.0"};
	static const char *const not_whole[] = {"5e-1", "4096.5", "1e16", "", "x", "1e999", "0x10"};
	int64_t value;
	bool b;

	(void)state;
	for (int i = 0; i < COUNT_OF(wholes); i++)
		assert_true(parse_whole_number(wholes[i], &value));
	for (int i = 0; i < COUNT_OF(not_whole); i++)
		assert_false(parse_whole_number(not_whole[i], &value));
	assert_true(parse_bool("on", &b) && b);
	assert_true(parse_bool("True", &b) && b);
	assert_true(parse_bool("false", &b) && !b);
	assert_true(parse_bool("off", &b) && !b);
	assert_false(parse_bool("yes", &b));
	assert_false(parse_bool("1", &b));
	assert_false(parse_bool("", &b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_get),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_long_value),
		cmocka_unit_test(test_error),
		cmocka_unit_test(test_only_keys),
		cmocka_unit_test(test_spellings),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
