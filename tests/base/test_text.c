/* The growing string, numbers in and out, and UTF-8. */
#include "tests/base/support.h"

#include <math.h>

static void test_add(void **state)
{
	struct text text = {0};

	(void)state;
	assert_string_equal(text_string(&text), "");
	text_add(&text, "");
	assert_string_equal(text_string(&text), "");
	text_add(&text, "all");
	text_add_char(&text, '-');
	text_add_bytes(&text, "gather!", 6);
	text_printf(&text, " %d/%s", 3, "8");
	text_repeat(&text, '.', 3);
	text_repeat(&text, 'x', 0);
	text_repeat(&text, 'x', -5);
	assert_string_equal(text_string(&text), "all-gather 3/8...");
	assert_int_equal(text.length, 17);
	text_clear(&text);
	assert_string_equal(text_string(&text), "");
	text_add_bytes(&text, NULL, 0);
	assert_int_equal(text.length, 0);
	text_finish(&text);
	assert_null(text.data);
	text_clear(&text);
	text_finish(&text);
}

static void test_growth(void **state)
{
	struct text text = {0};

	(void)state;
	for (int i = 0; i < 5000; i++)
		text_printf(&text, "%d,", i % 10);
	text_repeat(&text, 'z', 100000);
	assert_int_equal(text.length, 110000);
	assert_int_equal(strlen(text.data), 110000);
	assert_int_equal(text.data[9998], '9');
	text_printf(&text, "%*d", 200000, 5);
	assert_int_equal(strlen(text.data), 310000);
	text_finish(&text);
}

static void test_number(void **state)
{
	static const struct {
		double value;
		const char *text;
	} cases[] = {{0, "0"}, {-0.0, "-0"}, {1, "1"}, {0.1, "0.1"}, {1e-5, "1e-05"},
		{123456789, "123456789"}, {1e15, "1e+15"}, {123456789012345, "123456789012345"},
		{0.1 + 0.2, "0.30000000000000004"}, {1.0 / 3, "0.3333333333333333"},
		{5e-324, "4.94065645841247e-324"},
		{1.7976931348623157e308, "1.7976931348623157e+308"}, {INFINITY, "inf"},
		{-INFINITY, "-inf"}, {NAN, "nan"}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct text text = {0};
		text_number(&text, cases[i].value);
		assert_string_equal(text_string(&text), cases[i].text);
		double back = 0;
		assert_int_equal(parse_number(text_string(&text), &back), isfinite(cases[i].value));
		if (isfinite(cases[i].value))
			assert_true(back == cases[i].value);
		text_finish(&text);
	}
}

/* Any bit pattern that is a number comes back bit for bit. */
static void test_number_roundtrip(void **state)
{
	uint64_t seed = 20240611;

	(void)state;
	for (int i = 0; i < 50000; i++) {
		uint64_t bits = random_u64(&seed), again;
		double value, back = 0;
		memcpy(&value, &bits, sizeof(value));
		if (!isfinite(value))
			continue;
		struct text text = {0};
		text_number(&text, value);
		assert_true(parse_number(text_string(&text), &back));
		memcpy(&again, &back, sizeof(again));
		assert_true(again == bits);
		assert_in_range(text.length, 1, 24);
		text_finish(&text);
	}
}

static void test_parse_number(void **state)
{
	static const char *const good[] = {"0", "+1", "-1.5", ".5", "5.", "1e5", "1E+05", "1e-400"};
	static const double values[] = {0, 1, -1.5, 0.5, 5, 1e5, 1e5, 0};
	static const char *const bad[] = {"", " 1", "1 ", "1x", "0x10", "inf", "nan", "-inf", "1e",
		"1e+", ".", "-", "+", "e5", "1e999", "-1e999", "1.2.3", "--1", "1,5", "1_000",
		"NaN", "infinity"};
	double value = 42;

	(void)state;
	for (int i = 0; i < COUNT_OF(good); i++) {
		assert_true(parse_number(good[i], &value));
		assert_true(value == values[i]);
	}
	value = 42;
	for (int i = 0; i < COUNT_OF(bad); i++) {
		if (parse_number(bad[i], &value))
			fail_msg("\"%s\" was read as %g", bad[i], value);
	}
	assert_true(value == 42);
}

static void test_int(void **state)
{
	static const int64_t values[] = {0, 7, -7, INT64_MAX, INT64_MIN, 100000000000000};
	static const char *const bad[] = {"", "-", "+", " 1", "1 ", "1.0", "1e3", "0x10",
		"9223372036854775808", "-9223372036854775809", "99999999999999999999999", "1_0",
		"--1"};
	int64_t value = 42;

	(void)state;
	for (int i = 0; i < COUNT_OF(values); i++) {
		struct text text = {0};
		text_int(&text, values[i]);
		assert_true(parse_int(text_string(&text), &value));
		assert_true(value == values[i]);
		text_finish(&text);
	}
	assert_true(parse_int("+12", &value));
	assert_int_equal(value, 12);
	for (int i = 0; i < COUNT_OF(bad); i++) {
		if (parse_int(bad[i], &value))
			fail_msg("\"%s\" was read as an integer", bad[i]);
	}
	assert_int_equal(value, 12);
}

static void test_utf8(void **state)
{
	static const struct {
		const char *bytes;
		int length;
		uint32_t point;
	} cases[] = {{"a", 1, 'a'}, {"\xc3\xa9", 2, 0xe9}, {"\xe2\x82\xac", 3, 0x20ac},
		{"\xf0\x9f\x98\x80", 4, 0x1f600}, {"\xf4\x8f\xbf\xbf", 4, 0x10ffff}, {"\x80", 0, 0},
		{"\xc0\x80", 0, 0}, {"\xc1\xbf", 0, 0}, {"\xe0\x80\x80", 0, 0},
		{"\xed\xa0\x80", 0, 0}, {"\xf4\x90\x80\x80", 0, 0}, {"\xf8\x88\x80\x80\x80", 0, 0},
		{"\xff", 0, 0}, {"\xc3", 0, 0}, {"\xe2\x82", 0, 0}, {"\xe2\x28\xa1", 0, 0}};
	uint32_t point;

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		int length = utf8_decode(cases[i].bytes, strlen(cases[i].bytes), &point);
		assert_int_equal(length, cases[i].length);
		if (length > 0)
			assert_int_equal(point, cases[i].point);
	}
	assert_int_equal(utf8_decode("", 0, &point), 0);
	assert_int_equal(utf8_decode("\xe2\x82\xac", 2, &point), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_number),
		cmocka_unit_test(test_number_roundtrip),
		cmocka_unit_test(test_parse_number),
		cmocka_unit_test(test_int),
		cmocka_unit_test(test_utf8),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
