/* The same calls must give the same document as YAML, JSON and one-line JSON; quoting is tested in
 * both. */
#include "tests/base/support.h"

#include <math.h>

#include "base/units.h"

static void write_sample(enum writer_format format, struct text *text)
{
	struct writer w;

	writer_init(&w, text, format);
	writer_comment(&w, "made by hand\nand\n\nchecked");
	writer_string(&w, "name", "llama-2-7b");
	writer_int(&w, "count", -7);
	writer_number(&w, "ratio", 1e-5);
	writer_number(&w, "broken", NAN);
	writer_bool(&w, "on", true);
	writer_bytes(&w, "memory", 85899345920);
	writer_quantity(&w, "latency", UNIT_TIME, 3.5e-6);
	writer_quantity(&w, "endless", UNIT_TIME, INFINITY);
	writer_string(&w, "none", NULL);
	writer_begin_list(&w, "units");
	writer_begin_map(&w, NULL);
	writer_comment(&w, "the root");
	writer_string(&w, "name", "root");
	writer_begin_list(&w, "ranks");
	writer_int(&w, NULL, 0);
	writer_string(&w, NULL, "1");
	writer_end_list(&w);
	writer_end_map(&w);
	writer_begin_map(&w, NULL);
	writer_end_map(&w);
	writer_begin_list(&w, NULL);
	writer_int(&w, NULL, 1);
	writer_begin_list(&w, NULL);
	writer_end_list(&w);
	writer_begin_map(&w, NULL);
	writer_int(&w, "x", 1);
	writer_int(&w, "y", 2);
	writer_end_map(&w);
	writer_end_list(&w);
	writer_end_list(&w);
	writer_begin_list(&w, "no_list");
	writer_end_list(&w);
	writer_begin_map(&w, "no_map");
	writer_comment(&w, "nothing here");
	writer_end_map(&w);
	writer_begin_map(&w, "map");
	writer_comment(&w, "first");
	writer_int(&w, "a", 1);
	writer_comment(&w, "second");
	writer_begin_map(&w, "b");
	writer_bool(&w, "c", false);
	writer_end_map(&w);
	writer_end_map(&w);
	writer_finish(&w);
}

/* Keys that YAML 1.1 reads as booleans ("on", "y") are quoted too. */
static void test_yaml(void **state)
{
	struct text text = {0};

	(void)state;
	write_sample(WRITER_YAML, &text);
	assert_string_equal(text_string(&text), "# made by hand\n"
						"# and\n"
						"#\n"
						"# checked\n"
						"name: llama-2-7b\n"
						"count: -7\n"
						"ratio: 1.0e-05\n"
						"broken: null\n"
						"\"on\": true\n"
						"memory: 80GiB\n"
						"latency: 3.5us\n"
						"endless: null\n"
						"none: null\n"
						"units:\n"
						"  - # the root\n"
						"    name: root\n"
						"    ranks:\n"
						"      - 0\n"
						"      - \"1\"\n"
						"  - {}\n"
						"  - - 1\n"
						"    - []\n"
						"    - x: 1\n"
						"      \"y\": 2\n"
						"no_list: []\n"
						"no_map:\n"
						"  # nothing here\n"
						"  {}\n"
						"map:\n"
						"  # first\n"
						"  a: 1\n"
						"  # second\n"
						"  b:\n"
						"    c: false\n");
	text_finish(&text);
}

static void test_json(void **state)
{
	struct text text = {0};

	(void)state;
	write_sample(WRITER_JSON, &text);
	assert_string_equal(text_string(&text), "{\n"
						"  \"name\": \"llama-2-7b\",\n"
						"  \"count\": -7,\n"
						"  \"ratio\": 1e-05,\n"
						"  \"broken\": null,\n"
						"  \"on\": true,\n"
						"  \"memory\": 85899345920,\n"
						"  \"latency\": 3.5e-06,\n"
						"  \"endless\": null,\n"
						"  \"none\": null,\n"
						"  \"units\": [\n"
						"    {\n"
						"      \"name\": \"root\",\n"
						"      \"ranks\": [\n"
						"        0,\n"
						"        \"1\"\n"
						"      ]\n"
						"    },\n"
						"    {},\n"
						"    [\n"
						"      1,\n"
						"      [],\n"
						"      {\n"
						"        \"x\": 1,\n"
						"        \"y\": 2\n"
						"      }\n"
						"    ]\n"
						"  ],\n"
						"  \"no_list\": [],\n"
						"  \"no_map\": {},\n"
						"  \"map\": {\n"
						"    \"a\": 1,\n"
						"    \"b\": {\n"
						"      \"c\": false\n"
						"    }\n"
						"  }\n"
						"}\n");
	text_finish(&text);
}

static void test_json_compact(void **state)
{
	struct text text = {0};

	(void)state;
	write_sample(WRITER_JSON_COMPACT, &text);
	assert_string_equal(text_string(&text),
		"{\"name\":\"llama-2-7b\",\"count\":-7,\"ratio\":1e-05,\"broken\":null,\"on\":true,"
		"\"memory\":85899345920,\"latency\":3.5e-06,\"endless\":null,\"none\":null,"
		"\"units\":[{"
		"\"name\":\"root\",\"ranks\":[0,\"1\"]},{},[1,[],{\"x\":1,\"y\":2}]],\"no_list\":[]"
		","
		"\"no_map\":{},\"map\":{\"a\":1,\"b\":{\"c\":false}}}\n");
	text_finish(&text);
}

/* Several documents may follow one another in one text, and none may be empty in YAML. */
static void test_empty(void **state)
{
	static const char *const expected[] = {"head\n{}\n", "head\n{}\n", "head\n{}\n"};

	(void)state;
	for (int format = WRITER_YAML; format <= WRITER_JSON_COMPACT; format++) {
		struct text text = {0};
		struct writer w;
		text_add(&text, "head\n");
		writer_init(&w, &text, (enum writer_format)format);
		writer_finish(&w);
		assert_string_equal(text_string(&text), expected[format]);
		text_finish(&text);
	}
	struct text text = {0};
	struct writer w;
	writer_init(&w, &text, WRITER_YAML);
	writer_comment(&w, "only");
	writer_finish(&w);
	assert_string_equal(text_string(&text), "# only\n{}\n");
	text_finish(&text);
}

static void test_json_escape(void **state)
{
	static const char *const cases[][2] = {{"", "\"\""}, {"a\"b\\c", "\"a\\\"b\\\\c\""},
		{"\n\r\t\b\x01\x1f", "\"\\n\\r\\t\\u0008\\u0001\\u001f\""},
		{"</script>&", "\"\\u003c/script\\u003e\\u0026\""},
		{"\xe2\x80\xa8\xe2\x80\xa9", "\"\\u2028\\u2029\""},
		{"\xc3\xa9\xf0\x9f\x98\x80", "\"\xc3\xa9\xf0\x9f\x98\x80\""},
		{"a\xff", "\"a\xef\xbf\xbd\""}, {"\xc3", "\"\xef\xbf\xbd\""},
		{"\x7f\xc2\x80", "\"\\u007f\\u0080\""}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct text text = {0};
		json_escape(&text, cases[i][0]);
		assert_string_equal(text_string(&text), cases[i][1]);
		text_finish(&text);
	}
}

static void test_yaml_escape(void **state)
{
	static const char *const plain[] = {"a", "llama-2-7b", "80GiB", "200Gbit/s", "3.5us", "a b",
		"v1.2.3", "pytorch-fsdp2", "2xdgx-a100-80gb", "path/to/file.yaml", "/abs", "a:b",
		"_x", "transformer.h.0", "FULL_SHARD", "f(x)", "nullable", "onset"};
	static const char *const quoted[] = {"", " a", "a ", "a  b", "a: b", "a:", "a #b", "# a",
		"- a", "null", "Null", "~", "true", "False", "yes", "NO", "on", "off", "y", "N",
		"nan", "inf", ".inf", "1", "-1", "+1", "1.5", ".5", "1e5", "1e-05", "0x1F", "0o17",
		"0b11", "1_000", "12:30", "2024-01-01", "2024-01-01T00:00:00Z", "&a", "*a", "!a",
		"|", ">", "'a'", "\"a\"", "%a", "@a", "`a", "{a", "[a", "a, b", "a]", "?", "-",
		"<<", "=", "\xc3\xa9", "a\nb", "a\tb", "...", "---"};
	struct text text = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(plain); i++) {
		text_clear(&text);
		yaml_escape(&text, plain[i]);
		assert_string_equal(text_string(&text), plain[i]);
	}
	for (int i = 0; i < COUNT_OF(quoted); i++) {
		text_clear(&text);
		yaml_escape(&text, quoted[i]);
		assert_int_equal(text_string(&text)[0], '"');
	}
	text_clear(&text);
	yaml_escape(&text, "<a> & \"b\"\n");
	assert_string_equal(text_string(&text), "\"<a> & \\\"b\\\"\\n\"");
	text_finish(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_yaml),
		cmocka_unit_test(test_json),
		cmocka_unit_test(test_json_compact),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_json_escape),
		cmocka_unit_test(test_yaml_escape),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
