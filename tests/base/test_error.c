/* Messages: the place, the first one stays, one line, no overflow, suggestions. */
#include "tests/base/support.h"

static void test_set(void **state)
{
	struct error error = {0};

	(void)state;
	assert_false(error_set(&error, EXIT_CODE_USAGE, "unknown option %s", "--x"));
	assert_error(&error, EXIT_CODE_USAGE, "unknown option --x");
	assert_false(error_set(&error, EXIT_CODE_INTERNAL, "second"));
	assert_error(&error, EXIT_CODE_USAGE, "unknown option --x");
	assert_false(error_at(&error, EXIT_CODE_INPUT, "f", 1, 1, "third"));
	assert_error(&error, EXIT_CODE_USAGE, "unknown option --x");
	error_clear(&error);
	assert_error(&error, EXIT_CODE_OK, "");
	assert_false(error_set(NULL, EXIT_CODE_USAGE, "nowhere"));
	assert_false(error_at(NULL, EXIT_CODE_INPUT, "f", 1, 1, "nowhere"));
	error_clear(NULL);
}

static void test_at(void **state)
{
	struct error error = {0};

	(void)state;
	error_at(&error, EXIT_CODE_INPUT, "a.yaml", 3, 14, "expected %d", 8);
	assert_input_error(&error, "a.yaml:3:14: expected 8");
	error_clear(&error);
	error_at(&error, EXIT_CODE_INPUT, "a.yaml", 0, 14, "is empty");
	assert_input_error(&error, "a.yaml: is empty");
}

/* A file in another encoding is quoted too, and "%.60s" may halve a character. */
static void test_utf8(void **state)
{
	struct error error = {0};

	(void)state;
	error_at(&error, EXIT_CODE_INPUT, "\xff.toml", 1, 1, "got \"%s%.1s\"",
		"\x80 \xc3( \xed\xa0\x80 \xf5\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9");
	assert_input_error(&error, "?.toml:1:1: got \"? ?( ??? ?\xe2\x82\xac\xf0\x9f\x98\x80?\"");
	error_clear(&error);
	error_set(&error, EXIT_CODE_INPUT, "overlong %s", "\xc0\xaf");
	assert_input_error(&error, "overlong ??");
}

/* What comes from a file may not break the line or steer the terminal. */
static void test_one_line(void **state)
{
	struct error error = {0};

	(void)state;
	error_set(&error, EXIT_CODE_INPUT, "got \"%s\"",
		"a\nb\x1b[2J\tc\x7f\xc2\x9b\xc2\xa0\xc3\xa9");
	assert_input_error(&error, "got \"a?b?[2J?c???\xc2\xa0\xc3\xa9\"");
}

static void test_long(void **state)
{
	struct error error = {0};
	char name[3000], word[3000];

	(void)state;
	memset(name, 'n', sizeof(name));
	memcpy(name + sizeof(name) - 8, "end.csv", 8);
	for (size_t i = 0; i + 2 < sizeof(word); i += 2)
		memcpy(word + i, "\xc3\xa9", 3); /* two bytes each: the cut must not halve one */
	for (int shift = 0; shift < 2; shift++) {
		error_clear(&error);
		error_at(&error, EXIT_CODE_INPUT, name + shift, 7, 9, "%*s%s", shift, "", word);
		size_t length = strlen(error.message);
		assert_in_range(length, sizeof(error.message) - 3, sizeof(error.message) - 1);
		assert_memory_equal(error.message, "...nnn", 6);
		assert_non_null(strstr(error.message, "end.csv:7:9: "));
		assert_string_equal(error.message + length - 5, "\xc3\xa9...");
	}
}

static void test_nearest(void **state)
{
	static const char *const names[] = {"seq-len", "micro-batch", "global-batch", "lr", NULL};
	static const char *const none[] = {NULL};
	char word[200];

	(void)state;
	assert_string_equal(nearest_name("seq_len", names), "seq-len");
	assert_string_equal(nearest_name("Seq-Lne", names), "seq-len");
	assert_string_equal(nearest_name("mcro-batch", names), "micro-batch");
	assert_string_equal(nearest_name("globl-bach", names), "global-batch");
	assert_null(nearest_name("l", names)); /* one of one letters may not differ */
	assert_null(nearest_name("topology", names));
	assert_null(nearest_name("xy", names)); /* both letters differ */
	assert_null(nearest_name("fp8", (const char *const[]){"fp32", "fp16", NULL})); /* most do */
	assert_string_equal(
		nearest_name("fp1", (const char *const[]){"fp32", "fp16", NULL}), "fp16");
	assert_null(nearest_name("", names));
	assert_string_equal(nearest_name("global", names), "global-batch"); /* begins it */
	assert_string_equal(nearest_name("Micro", names), "micro-batch");
	assert_null(nearest_name("se", names));
	assert_true(same_name("Seq_Len", "seq-len"));
	assert_false(same_name("seq-le", "seq-len"));
	assert_false(same_name("seq-len2", "seq-len"));
	assert_null(nearest_name("lr", none));
	assert_null(nearest_name("lr", NULL));
	memset(word, 'a', sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	assert_null(nearest_name(word, names));
}

/* A third of the letters, at least two: the bound from both sides. */
static void test_nearest_bound(void **state)
{
	static const char *const names[] = {"abcdefghijkl", NULL};

	(void)state;
	assert_non_null(nearest_name("ABCDEFGHIJKL", names));
	assert_non_null(nearest_name("1234efghijkl", names));
	assert_null(nearest_name("12345fghijkl", names));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_at),
		cmocka_unit_test(test_one_line),
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_nearest),
		cmocka_unit_test(test_nearest_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
