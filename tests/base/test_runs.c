/* Runs of values along a row: valid and invalid ones, and normal forms. */
#include "base/runs.h"

#include <string.h>

#include "base/text.h"
#include "tests/base/support.h"

static void test_valid(void **state)
{
	static const char *const good[] = {"full", "8xfull+24xnone", "1xa", "16x8+16xtrue", "8",
		"2xa+3xa", "16777216xa", "adamw-fused", "x"};
	static const char *const bad[] = {"", "+", "0xfull", "-1xfull", "8x", "8x+1xa", "full+none",
		"8xfull+none", "full+8xnone", "8xfull+", "+8xfull", "8xFull", "8 xfull",
		"8xfull + 24xnone", "8xfull24xnone,", "16777217xa", "16777216xa+1xb",
		"99999999999999999999xa", "full ", "8xa++1xb"};
	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		if (!runs_valid(good[i]))
			fail_msg("\"%s\" is refused", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (runs_valid(bad[i]))
			fail_msg("\"%s\" is accepted", bad[i]);
}

static void test_walk(void **state)
{
	const char *text = "2xfull+1xnone+3x8";
	struct value_run run;
	(void)state;
	assert_int_equal(runs_total(text), 6);
	assert_int_equal(runs_total("full"), 0);
	for (int i = 0; i < 3; i++) {
		static const char *const words[] = {"full", "none", "8"};
		assert_true(runs_next(&text, &run));
		assert_int_equal(run.count, i < 2 ? 2 - i : 3);
		assert_true(run_is(&run, words[i]));
		assert_false(run_is(&run, i == 0 ? "ful" : i == 1 ? "nonee" : ""));
	}
	assert_false(runs_next(&text, &run));
}

/* What is printed reads back as the same row, and no neighbours are alike. */
static void test_print(void **state)
{
	static const char *const words[] = {"none", "selective", "full"};
	struct arena arena = {0};
	uint32_t seed = 1;
	(void)state;
	for (int round = 0; round < 2000; round++) {
		const char *row[12];
		int n = 1 + round % 12;
		for (int i = 0; i < n; i++) {
			seed = seed * 1664525 + 1013904223;
			row[i] = words[(seed >> 24) % 3];
		}
		const char *text = runs_print(&arena, row, n), *cursor = text;
		struct value_run run, previous = {0, "", 0};
		assert_true(runs_valid(text));
		int64_t total = runs_total(text);
		assert_true(total == n || (total == 0 && strchr(text, 'x') == NULL));
		for (int i = 0; runs_next(&cursor, &run); i += (int)run.count) {
			for (int64_t same = 0; same < (run.count > 0 ? run.count : n); same++)
				assert_true(run_is(&run, row[i + same]));
			assert_false(run.length == previous.length &&
				     strncmp(run.word, previous.word, (size_t)run.length) == 0);
			previous = run;
		}
		assert_string_equal(runs_normalise(&arena, text, NULL, NULL), text);
	}
	arena_finish(&arena);
}

static void test_normalise(void **state)
{
	struct arena arena = {0};
	(void)state;
	assert_string_equal(runs_normalise(&arena, "32xfull", NULL, NULL), "full");
	assert_string_equal(runs_normalise(&arena, "2xa+3xa+1xb", NULL, NULL), "5xa+1xb");
	assert_string_equal(runs_normalise(&arena, "02xa+1xb", NULL, NULL), "2xa+1xb");
	assert_string_equal(
		runs_normalise(&arena, "3xall+2xparameters+1xnone", "all", "parameters"),
		"5xparameters+1xnone");
	assert_string_equal(runs_normalise(&arena, "all", "all", "parameters"), "parameters");
	assert_string_equal(runs_normalise(&arena, "full", "all", "parameters"), "full");
	assert_string_equal(runs_print(&arena, NULL, 0), "");
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_valid),
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_print),
		cmocka_unit_test(test_normalise),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
