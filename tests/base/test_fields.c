/* The table that describes a struct: reading, options, writing, comparing, and every message. */
#include "tests/base/support.h"

#include <math.h>

enum kind { KIND_NVLINK, KIND_PCIE, KIND_INFINIBAND };

static const char *const kind_names[] = {"nvlink", "pcie", "infiniband", NULL};

struct thing {
	bool on;
	int64_t parameters;
	int lanes;
	double ratio;
	const char *name;
	enum kind kind;
	int64_t memory;
	double bandwidth, latency, peak;
};

static const struct field fields[] = {
	FIELD_STRING(struct thing, name, "name", FIELD_REQUIRED),
	FIELD_BOOL(struct thing, on, "on", 0),
	FIELD_INT(struct thing, parameters, "parameters", FIELD_POSITIVE),
	FIELD_INT32(struct thing, lanes, "lanes", FIELD_NOT_NEGATIVE),
	FIELD_DOUBLE(struct thing, ratio, "ratio", FIELD_OMIT_ZERO),
	FIELD_ENUM(struct thing, kind, "kind", 0, kind_names),
	FIELD_BYTES(struct thing, memory, "memory", FIELD_REQUIRED | FIELD_POSITIVE),
	FIELD_BANDWIDTH(struct thing, bandwidth, "bandwidth", FIELD_POSITIVE),
	FIELD_TIME(struct thing, latency, "latency", FIELD_NOT_NEGATIVE),
	FIELD_FLOPS(struct thing, peak, "peak", FIELD_OMIT_ZERO),
	FIELD_END,
};

static const struct thing sample = {.on = true,
	.parameters = 6738415616,
	.lanes = 16,
	.ratio = 0.1,
	.name = "a100: 80GB",
	.kind = KIND_INFINIBAND,
	.memory = 85899345920,
	.bandwidth = 25e9,
	.latency = 3.5e-6,
	.peak = 312e12};

static const char sample_yaml[] = "name: \"a100: 80GB\"\n"
				  "\"on\": true\n"
				  "parameters: 6738415616\n"
				  "lanes: 16\n"
				  "ratio: 0.1\n"
				  "kind: infiniband\n"
				  "memory: 80GiB\n"
				  "bandwidth: 25GB/s\n"
				  "latency: 3.5us\n"
				  "peak: 312TFLOPS\n";

static const char sample_json[] =
	"{\"name\":\"a100: 80GB\",\"on\":true,\"parameters\":6738415616,"
	"\"lanes\":16,\"ratio\":0.1,\"kind\":\"infiniband\",\"memory\":85899345920,"
	"\"bandwidth\":25000000000,\"latency\":3.5e-06,\"peak\":312000000000000}\n";

static void write_thing(const struct thing *thing, enum writer_format format, struct text *text)
{
	struct writer writer;

	writer_init(&writer, text, format);
	fields_write(fields, thing, &writer);
	writer_finish(&writer);
}

static void test_write(void **state)
{
	struct text text = {0};

	(void)state;
	write_thing(&sample, WRITER_YAML, &text);
	assert_string_equal(text_string(&text), sample_yaml);
	text_clear(&text);
	write_thing(&sample, WRITER_JSON_COMPACT, &text);
	assert_string_equal(text_string(&text), sample_json);
	text_finish(&text);
}

static void test_write_zeros(void **state)
{
	struct thing zero = {0};
	struct text text = {0};

	(void)state;
	write_thing(&zero, WRITER_YAML, &text);
	assert_string_equal(text_string(&text), "\"on\": false\n"
						"parameters: 0\n"
						"lanes: 0\n"
						"kind: nvlink\n"
						"memory: 0B\n"
						"bandwidth: 0B/s\n"
						"latency: 0s\n");
	text_finish(&text);
}

static void test_read(void **state)
{
	static const char *const sources[] = {sample_yaml, sample_json};

	(void)state;
	for (int i = 0; i < COUNT_OF(sources); i++) {
		struct arena arena = {0};
		struct error error = {0};
		struct thing thing = {0};
		const struct node *root = parse_text(&arena, sources[i]);
		assert_true(fields_read(fields, root, NULL, &thing, &arena, &error));
		assert_true(fields_equal(fields, &thing, &sample));
		assert_true(thing.name != node_get(root, "name")->text); /* a copy */
		arena_finish(&arena);
	}
}

/* What is absent, or present without a value, keeps what the object held. */
static void test_defaults(void **state)
{
	struct arena arena = {0};
	struct error error = {0};
	struct thing thing = sample;
	const struct node *root =
		parse_text(&arena, "name: b\nmemory: 1\nlanes:\nratio: ~\nextra: [1]\n");
	static const char *const others[] = {"extra", NULL};

	(void)state;
	assert_true(fields_read(fields, root, others, &thing, &arena, &error));
	assert_string_equal(thing.name, "b");
	assert_int_equal(thing.memory, 1);
	assert_int_equal(thing.lanes, 16);
	assert_true(thing.ratio == 0.1);
	assert_int_equal(thing.kind, KIND_INFINIBAND);
	assert_false(fields_read(fields, root, NULL, &thing, &arena, &error));
	assert_input_error(&error,
		"t:5:1: extra: unknown key; known here: name, on, parameters, lanes, "
		"ratio, kind, memory, bandwidth, latency, peak");
	arena_finish(&arena);
}

static void test_refused(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"memory: 1\n", "t:1:1: missing key \"name\", expected a string"},
		{"name: a\n", "t:1:1: missing key \"memory\", expected a size such as 80GiB "
			      "greater than 0"},
		{"memroy: 1\n", "t:1:1: memroy: unknown key, did you mean \"memory\"?"},
		{"- 1\n", "t:1:1: expected a map, got a list"},
		{"name: [a]\n", "t:1:7: name: expected a string, got a list"},
		{"name:\n", "t:1:1: name: expected a string, got nothing"},
		{"name: a\non: 1\n", "t:2:5: on: expected true, false, on or off, got \"1\""},
		{"name: a\non: \"true\"\n", "t:2:5: on: expected true, false, on or off, got "
					    "\"true\", remove the quotes"},
		{"name: a\nparameters: 0\n",
			"t:2:13: parameters: expected a whole number greater than 0, got \"0\""},
		{"name: a\nparameters: 1.5\n",
			"t:2:13: parameters: expected a whole number greater than 0, got \"1.5\""},
		{"name: a\nlanes: -1\n",
			"t:2:8: lanes: expected a whole number up to 2147483647 of 0 or more, "
			"got \"-1\""},
		{"name: a\nlanes: 2147483648\n",
			"t:2:8: lanes: expected a whole number up to 2147483647 of 0 or more, got "
			"\"2147483648\""},
		{"name: a\nratio: x\n", "t:2:8: ratio: expected a number, got \"x\""},
		{"name: a\nratio: {a: 1}\n", "t:2:8: ratio: expected a number, got a map"},
		{"name: a\nkind: nvlnk\n",
			"t:2:7: kind: expected one of nvlink, pcie, infiniband, got "
			"\"nvlnk\", did you mean \"nvlink\"?"},
		{"name: a\nkind: token-ring\n", "t:2:7: kind: expected one of nvlink, pcie, "
						"infiniband, got \"token-ring\""},
		{"name: a\nmemory: 80Gb\n", "t:2:9: memory: expected a size such as 80GiB greater "
					    "than 0, got \"80Gb\""},
		{"name: a\nmemory: 0B\n",
			"t:2:9: memory: expected a size such as 80GiB greater than 0, got \"0B\""},
		{"name: a\nmemory: 1\nbandwidth: 0\n",
			"t:3:12: bandwidth: expected a bandwidth such as 200Gbit/s or 25GB/s "
			"greater than 0, got \"0\""},
		{"name: a\nmemory: 1\nbandwidth: 5TB\n",
			"t:3:12: bandwidth: expected a bandwidth such as 200Gbit/s or 25GB/s "
			"greater than 0, got \"5TB\"; write 5TB/s"},
		{"name: a\nmemory: 1\nlatency: -5us\n", "t:3:10: latency: expected a time such as "
							"3.5us of 0 or more, got \"-5us\""},
		{"name: a\nmemory: 1\npeak: fast\n",
			"t:3:7: peak: expected a rate such as 312TFLOPS, got \"fast\""},
	};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct error error = {0};
		struct thing thing = {0};
		const struct node *root = parse_text(&arena, cases[i].text);
		assert_false(fields_read(fields, root, NULL, &thing, &arena, &error));
		assert_input_error(&error, cases[i].message);
		arena_finish(&arena);
	}
}

static void test_set(void **state)
{
	static const char *const values[][2] = {{"name", "a100: 80GB"}, {"on", "on"},
		{"parameters", "6738415616"}, {"lanes", "16"}, {"ratio", "0.1"},
		{"kind", "infiniband"}, {"memory", "80 GiB"}, {"bandwidth", "200Gbit/s"},
		{"latency", "3500ns"}, {"peak", "312e12"}};
	struct arena arena = {0};
	struct error error = {0};
	struct thing thing = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(values); i++) {
		const struct field *field = fields_find(fields, values[i][0]);
		assert_non_null(field);
		assert_true(fields_set(field, "--x", values[i][1], &thing, &arena, &error));
	}
	assert_true(fields_equal(fields, &thing, &sample));
	assert_null(fields_find(fields, "nam"));

	assert_false(fields_set(
		fields_find(fields, "lanes"), "--lanes", "many", &thing, &arena, &error));
	assert_error(&error, EXIT_CODE_USAGE,
		"--lanes: expected a whole number up to 2147483647 of 0 or more, got \"many\"");
	assert_int_equal(thing.lanes, 16); /* a refused value changes nothing */
	error_clear(&error);
	assert_false(
		fields_set(fields_find(fields, "kind"), "--kind", "pci", &thing, &arena, &error));
	assert_error(&error, EXIT_CODE_USAGE,
		"--kind: expected one of nvlink, pcie, infiniband, got \"pci\", did you mean "
		"\"pcie\"?");
	arena_finish(&arena);
}

static void test_print_one(void **state)
{
	static const char *const printed[][2] = {{"name", "\"a100: 80GB\""}, {"on", "true"},
		{"parameters", "6738415616"}, {"lanes", "16"}, {"ratio", "0.1"},
		{"kind", "infiniband"}, {"memory", "80GiB"}, {"bandwidth", "25GB/s"},
		{"latency", "3.5us"}, {"peak", "312TFLOPS"}};
	struct thing zero = {0};
	struct text text = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(printed); i++) {
		text_clear(&text);
		fields_print_one(fields_find(fields, printed[i][0]), &sample, &text);
		assert_string_equal(text_string(&text), printed[i][1]);
	}
	text_clear(&text);
	fields_print_one(fields_find(fields, "name"), &zero, &text);
	assert_string_equal(text_string(&text), "null");
	text_finish(&text);
}

static void test_equal(void **state)
{
	char name[] = "a100: 80GB";
	struct thing same = sample;

	(void)state;
	same.name = name;
	assert_true(fields_equal(fields, &sample, &same));
	struct thing others[10];
	for (int i = 0; i < COUNT_OF(others); i++)
		others[i] = sample;
	others[0].on = false;
	others[1].parameters++;
	others[2].lanes++;
	others[3].ratio = nextafter(0.1, 1);
	others[4].name = NULL;
	others[5].kind = KIND_PCIE;
	others[6].memory--;
	others[7].bandwidth *= 2;
	others[8].latency = NAN;
	others[9].name = "a100: 80GB ";
	for (int i = 0; i < COUNT_OF(others); i++) {
		assert_false(fields_equal(fields, &sample, &others[i]));
		assert_true(fields_equal(fields, &others[i], &others[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write),
		cmocka_unit_test(test_write_zeros),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_set),
		cmocka_unit_test(test_print_one),
		cmocka_unit_test(test_equal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
