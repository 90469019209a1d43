/* Quantities: valid and invalid text, exact printing, and words for people. */
#include "tests/base/support.h"

#include <math.h>

static void test_bytes(void **state)
{
	static const struct {
		const char *text;
		int64_t bytes;
	} cases[] = {{"0", 0}, {"0B", 0}, {"1", 1}, {"1e9", 1000000000}, {"80GiB", 85899345920},
		{"80 GiB", 85899345920}, {"27.7GiB", 29742648524}, /* 27.7 x 2^30 = 29742648524.8 */
		{"80GB", 80000000000}, {"80G", 85899345920}, {"80g", 85899345920},
		{"80 Gi", 85899345920}, {"80gib", 85899345920}, {"80gb", 80000000000},
		{"512M", 536870912}, {"8k", 8192}, {"1.5GiB", 1610612736}, {"0.5kB", 500},
		{"1KB", 1000}, {"1KiB", 1024}, {"2TiB", 2199023255552}, {"3PB", 3000000000000000},
		{"7PiB", 7881299347898368}, {"1EB", 1000000000000000000}, {"1E3B", 1000},
		{"+5B", 5}, {"9223372036854775807", INT64_MAX}, {"9223372036854775807B", INT64_MAX},
		{"1.50000000000000000000000000000000000GB", 1500000000}, {"0.0009765625MiB", 1024},
		{"8191PiB", 8191LL << 50}, {"1e-3kB", 1},
		{"100000000000000000000e-11GB", 1000000000000000000}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		int64_t bytes = -1;
		double number = -1;
		if (!unit_parse_bytes(cases[i].text, &bytes) || bytes != cases[i].bytes)
			fail_msg("\"%s\" gave %lld", cases[i].text, (long long)bytes);
		assert_true(unit_parse(UNIT_BYTES, cases[i].text, &number));
		assert_true(number == (double)cases[i].bytes);
	}
}

static void test_bytes_refused(void **state)
{
	static const char *const bad[] = {"", "B", "GiB", "-1", "-1GiB", "1.5", "1.5B", "0.3KiB",
		"1e-4kB", "80Gb", "80Gbit", "80Gbps", "80x", "80GiB/s", "80GiBs", "80  G iB",
		" 80GiB", "80GiB ", "9223372036854775808", "8192PiB", "10EB", "1e19", "1e999",
		"1e99999999999B", "nan", "inf", "0x10", "1,5GB", "1_000", "++1", "1..5GB", ".",
		".B"};
	static char endless[300];
	int64_t bytes = 42;

	(void)state;
	for (int i = 0; i < COUNT_OF(bad); i++) {
		if (unit_parse_bytes(bad[i], &bytes))
			fail_msg("\"%s\" was read as %lld", bad[i], (long long)bytes);
	}
	memset(endless, '1', sizeof(endless) - 1);
	assert_false(unit_parse_bytes(endless, &bytes));
	assert_int_equal(bytes, 42);
}

static void test_quantities(void **state)
{
	static const struct {
		enum unit_kind kind;
		const char *text;
		double value;
	} cases[] = {{UNIT_BANDWIDTH, "200Gbit/s", 25e9}, {UNIT_BANDWIDTH, "200Gb/s", 25e9},
		{UNIT_BANDWIDTH, "200 Gbps", 25e9}, {UNIT_BANDWIDTH, "50GB/s", 50e9},
		{UNIT_BANDWIDTH, "50GBps", 50e9}, {UNIT_BANDWIDTH, "400gbps", 50e9},
		{UNIT_BANDWIDTH, "400Gbit", 50e9}, {UNIT_BANDWIDTH, "400gbit/s", 50e9},
		{UNIT_BANDWIDTH, "100GbE", 12.5e9}, {UNIT_BANDWIDTH, "50gB/s", 50e9},
		{UNIT_FLOPS, "312T", 312e12}, {UNIT_FLOPS, "312tflops", 312e12},
		{UNIT_FLOPS, "312TFLOP", 312e12}, {UNIT_BANDWIDTH, "1.5GiB/s", 1610612736.0},
		{UNIT_BANDWIDTH, "3.35TB/s", 3.35e12}, {UNIT_BANDWIDTH, "12.5e9", 12.5e9},
		{UNIT_BANDWIDTH, "0B/s", 0}, {UNIT_BANDWIDTH, "1bit/s", 0.125},
		{UNIT_TIME, "3.5us", 3.5e-6}, {UNIT_TIME, "3.5\xc2\xb5s", 3.5e-6},
		{UNIT_TIME, "3.5\xce\xbcs", 3.5e-6}, {UNIT_TIME, "10 ms", 10e-3},
		{UNIT_TIME, "7ns", 7e-9}, {UNIT_TIME, "90s", 90}, {UNIT_TIME, "2min", 120},
		{UNIT_TIME, "1.5h", 5400}, {UNIT_TIME, "5e-6", 5e-6}, {UNIT_TIME, "5ps", 5e-12},
		{UNIT_FLOPS, "312TFLOPS", 312e12}, {UNIT_FLOPS, "312 TFLOP/s", 312e12},
		{UNIT_FLOPS, "0.9895PFLOPS", 0.9895e15}, {UNIT_FLOPS, "1EFLOPS", 1e18},
		{UNIT_FLOPS, "5e3FLOPS", 5e3}, {UNIT_FLOPS, "19.5e12", 19.5e12}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		double value = -1;
		if (!unit_parse(cases[i].kind, cases[i].text, &value) || value != cases[i].value)
			fail_msg("\"%s\" gave %.17g", cases[i].text, value);
	}
}

static void test_quantities_refused(void **state)
{
	static const struct {
		enum unit_kind kind;
		const char *text;
	} bad[] = {{UNIT_BANDWIDTH, "50GB"}, {UNIT_BANDWIDTH, "50G"}, {UNIT_BANDWIDTH, "-1GB/s"},
		{UNIT_BANDWIDTH, "50gb/s"}, {UNIT_BANDWIDTH, "50GBPS"}, {UNIT_BANDWIDTH, "50g"},
		{UNIT_BANDWIDTH, "1e400"}, {UNIT_BANDWIDTH, "9e307GB/s"}, {UNIT_BANDWIDTH, ""},
		{UNIT_BANDWIDTH, "/s"}, {UNIT_TIME, "5us/s"}, {UNIT_TIME, "5Ms"},
		{UNIT_TIME, "5 u s"}, {UNIT_TIME, "5kmin"}, {UNIT_TIME, "-0.5s"},
		{UNIT_TIME, "nan"}, {UNIT_TIME, "0x5s"}, {UNIT_TIME, "5m"}, {UNIT_FLOPS, "312TB"},
		{UNIT_FLOPS, "312X"}, {UNIT_FLOPS, "312TiFLOPSs"}, {UNIT_FLOPS, "inf"}};
	double value = 42;

	(void)state;
	for (int i = 0; i < COUNT_OF(bad); i++) {
		if (unit_parse(bad[i].kind, bad[i].text, &value))
			fail_msg("\"%s\" was read as %g", bad[i].text, value);
	}
	assert_true(value == 42);
}

static void test_print(void **state)
{
	static const struct {
		enum unit_kind kind;
		double value;
		const char *text;
	} cases[] = {{UNIT_BYTES, 0, "0B"}, {UNIT_BYTES, 85899345920, "80GiB"},
		{UNIT_BYTES, 80000000000, "80GB"}, {UNIT_BYTES, 1234567, "1234567B"},
		{UNIT_BYTES, 1024, "1KiB"}, {UNIT_BYTES, 1000, "1kB"}, {UNIT_BYTES, 1536, "1536B"},
		{UNIT_BYTES, 0x1p62, "4096PiB"}, {UNIT_BYTES, 1000000, "1MB"},
		{UNIT_BANDWIDTH, 25e9, "25GB/s"}, {UNIT_BANDWIDTH, 3.35e12, "3.35TB/s"},
		{UNIT_BANDWIDTH, 0, "0B/s"}, {UNIT_BANDWIDTH, 0.125, "0.125B/s"},
		{UNIT_BANDWIDTH, 1555e9, "1.555TB/s"}, {UNIT_BANDWIDTH, 1e25, "10000000000PB/s"},
		{UNIT_BANDWIDTH, 1e300, "1e285PB/s"}, {UNIT_TIME, 3.5e-6, "3.5us"},
		{UNIT_TIME, 5e-3, "5ms"}, {UNIT_TIME, 120, "120s"}, {UNIT_TIME, 1e-10, "0.1ns"},
		{UNIT_TIME, 5e-20, "5e-11ns"}, {UNIT_TIME, 1.0 / 3, "333.3333333333333ms"},
		{UNIT_FLOPS, 312e12, "312TFLOPS"}, {UNIT_FLOPS, 989.5e12, "989.5TFLOPS"},
		{UNIT_FLOPS, 1, "1FLOPS"}, {UNIT_TIME, -5e-6, "-5us"}, {UNIT_TIME, NAN, "nan"},
		{UNIT_TIME, INFINITY, "inf"}, {UNIT_BYTES, 0.5, "0.5B"}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct text text = {0};
		unit_print(&text, cases[i].kind, cases[i].value);
		assert_string_equal(text_string(&text), cases[i].text);
		text_finish(&text);
	}
}

static void check_roundtrip(enum unit_kind kind, double value)
{
	struct text text = {0};
	double back = -1;

	unit_print(&text, kind, value);
	if (!unit_parse(kind, text_string(&text), &back) || back != value)
		fail_msg("%.17g -> \"%s\" -> %.17g", value, text_string(&text), back);
	text_finish(&text);
}

/* Bit for bit, for any value at all and for the round values that people write. */
static void test_roundtrip(void **state)
{
	uint64_t seed = 7;

	(void)state;
	for (int i = 0; i < 30000; i++) {
		enum unit_kind kind = (enum unit_kind)(UNIT_BANDWIDTH + i % 3);
		uint64_t bits = random_u64(&seed) >> 1;
		double value;
		memcpy(&value, &bits, sizeof(value));
		if (isfinite(value))
			check_roundtrip(kind, value);
		check_roundtrip(
			kind, random_below(&seed, 10000) * pow(10, random_below(&seed, 30) - 12));
		check_roundtrip(kind, (double)(random_u64(&seed) >> 11) * 0x1p-40);
	}
}

static void check_bytes_roundtrip(int64_t bytes)
{
	struct text text = {0};
	int64_t back = -1;

	unit_print_bytes(&text, bytes);
	if (!unit_parse_bytes(text_string(&text), &back) || back != bytes)
		fail_msg("%lld -> \"%s\" -> %lld", (long long)bytes, text_string(&text),
			(long long)back);
	text_finish(&text);
}

static void test_bytes_roundtrip(void **state)
{
	uint64_t seed = 8;

	(void)state;
	for (int i = 0; i < 30000; i++) {
		int64_t bytes = (int64_t)(random_u64(&seed) >> 1) >> random_below(&seed, 63);
		check_bytes_roundtrip(bytes);
		check_bytes_roundtrip(bytes >> 40 << random_below(&seed, 40));
		check_bytes_roundtrip(bytes % 9000 * 1000000000000);
	}
	check_bytes_roundtrip(INT64_MAX);
}

static void test_format(void **state)
{
	static const struct {
		const char *(*format)(char[32], double);
		double value;
		const char *text;
	} cases[] = {{format_bytes, 0, "0 B"}, {format_bytes, 512, "512 B"},
		{format_bytes, 1023, "1023 B"}, {format_bytes, 1022, "1022 B"},
		{format_bytes, 1024, "1.00 KiB"}, {format_bytes, 28776568422.4, "26.8 GiB"},
		{format_bytes, 85899345920, "80.0 GiB"}, {format_bytes, -1536, "-1.50 KiB"},
		{format_bytes, 1023.9 * 0x1p20, "1.00 GiB"}, {format_bytes, 1e30, "8.88e+14 PiB"},
		{format_bytes, 0.25, "0.25 B"}, {format_seconds, 0.00124, "1.24 ms"},
		{format_seconds, 0, "0 s"}, {format_seconds, 3.5e-6, "3.50 us"},
		{format_seconds, 12e-9, "12.0 ns"}, {format_seconds, 0.99996, "1.00 s"},
		{format_seconds, 1, "1 s"}, {format_seconds, 90.25, "90.2 s"},
		{format_seconds, 119, "119 s"}, {format_seconds, 600, "10.0 min"},
		{format_seconds, 10800, "3.00 h"}, {format_seconds, 864000, "10.0 d"},
		{format_bandwidth, 50e9, "50.0 GB/s"}, {format_bandwidth, 999.7e6, "1.00 GB/s"},
		{format_bandwidth, 999.4e6, "999 MB/s"}, {format_bandwidth, 3.35e12, "3.35 TB/s"},
		{format_count, 6738415616, "6.74 B"}, {format_count, 1200, "1.20 k"},
		{format_count, 12, "12"}, {format_count, 0, "0"}, {format_count, 124.4e6, "124 M"},
		{format_count, 1.8e12, "1.80 T"}, {format_count, NAN, "nan"},
		{format_count, -INFINITY, "-inf"}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		char buffer[32];
		assert_string_equal(cases[i].format(buffer, cases[i].value), cases[i].text);
		assert_string_equal(buffer, cases[i].text);
	}
}

static void test_expectation(void **state)
{
	(void)state;
	assert_string_equal(unit_expectation(UNIT_BYTES), "a size such as 80GiB");
	for (int kind = UNIT_BYTES; kind <= UNIT_FLOPS; kind++) {
		double value;
		const char *example = strstr(unit_expectation((enum unit_kind)kind), "such as ");
		assert_non_null(example);
		char word[32];
		size_t length = strcspn(example + 8, " ");
		memcpy(word, example + 8, length);
		word[length] = '\0';
		assert_true(unit_parse((enum unit_kind)kind, word, &value)); /* it must be true */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_bytes_refused),
		cmocka_unit_test(test_quantities),
		cmocka_unit_test(test_quantities_refused),
		cmocka_unit_test(test_print),
		cmocka_unit_test(test_roundtrip),
		cmocka_unit_test(test_bytes_roundtrip),
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_expectation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
