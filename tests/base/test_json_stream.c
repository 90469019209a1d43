/* JSON in pieces: the same events wherever it is cut, and the same refusals as by the reader of
 * documents. */
#include "base/json_stream.h"
#include "tests/base/support.h"

static bool write_event(void *data, enum json_event event, int depth, const char *key,
	const char *value, bool quoted, struct error *error)
{
	static const char *const names[] = {"map", "list", "end", ""};

	(void)error;
	text_printf(data, "%d %s:%s%s%s%s\n", depth, key != NULL ? key : "-", names[event],
		quoted && value != NULL ? "'" : "", value != NULL ? value : "",
		quoted && value != NULL ? "'" : "");
	return true;
}

/* The text in pieces of `first` bytes and the rest. */
static bool read_cut(const char *text, size_t first, struct text *events, struct error *error)
{
	struct json_stream stream;
	bool ok;

	text_clear(events);
	json_stream_init(&stream, "t", write_event, events);
	ok = json_stream_feed(&stream, text, first, error) &&
	     json_stream_feed(&stream, text + first, strlen(text) - first, error) &&
	     json_stream_end(&stream, error);
	json_stream_finish(&stream);
	return ok;
}

static void every_cut_is_the_same(void **state)
{
	static const char text[] =
		" {\"a\": [1, -2.5e3, true, null, {}], \"\\u00e9\\n\": \"\\ud83d\\ude00 x\", "
		"\"b\": {\"c\": []}} ";
	static const char expected[] =
		"0 -:map\n1 a:list\n2 -:1\n2 -:-2.5e3\n2 -:true\n2 -:null\n2 -:map\n2 -:end\n"
		"1 -:end\n1 \xc3\xa9\n:'\xf0\x9f\x98\x80 x'\n1 b:map\n2 c:list\n2 -:end\n1 -:end\n"
		"0 -:end\n";
	struct text events = {0};
	struct error error = {0};

	(void)state;
	for (size_t i = 0; i <= strlen(text); i++) {
		if (!read_cut(text, i, &events, &error))
			fail_msg("cut at %zu: %s", i, error.message);
		assert_string_equal(text_string(&events), expected);
	}
	text_finish(&events);
}

static void bad_text_is_refused(void **state)
{
	static const char *const bad[] = {"", "  ", "{", "[1", "[1,]", "{\"a\":}", "{\"a\" 1}",
		"{\"a\": 1, b: 2}", "{\"a\": 1,}", "[1}", "{\"a\": 1]", "{\"a\": 01}",
		"{\"a\": +1}", "{\"a\": .5}", "{\"a\": 5.}", "{\"a\": 1e}", "{\"a\": -}",
		"{\"a\": 0x10}", "{\"a\": 1.5.2}", "{\"a\": tru}", "{\"a\": NaN}", "{\"a\": 'x'}",
		"{\"a\": \"b\nc\"}", "{\"a\": \"\\x\"}", "{\"a\": \"\\u12g4\"}", "[1] x", "[1][2]",
		"{\"a\": \"bc", "[1 2]"};
	struct text events = {0};
	struct arena arena = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(bad); i++) {
		struct error error = {0}, other = {0};

		if (read_cut(bad[i], 0, &events, &error))
			fail_msg("accepted: %s", bad[i]);
		assert_int_equal(error.code, EXIT_CODE_INPUT);
		assert_null(document_parse(&arena, "t.json", bad[i], strlen(bad[i]), 0, &other));
	}
	arena_finish(&arena);
	text_finish(&events);
}

static void depth_is_limited(void **state)
{
	struct text events = {0};
	struct error error = {0};
	char deep[JSON_STREAM_DEEPEST + 2];

	(void)state;
	memset(deep, '[', sizeof(deep));
	deep[sizeof(deep) - 1] = '\0';
	assert_false(read_cut(deep, 3, &events, &error));
	assert_non_null(
		strstr(error.message, "t:1:65: nested too deeply, expected at most 64 levels"));
	text_finish(&events);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cut_is_the_same),
		cmocka_unit_test(bad_text_is_refused),
		cmocka_unit_test(depth_is_limited),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
