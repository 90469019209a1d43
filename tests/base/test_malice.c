/* Malicious documents: none may crash, hang, or use memory out of proportion. Limits of depth and
 * size are tested from both sides. */
#include "tests/base/support.h"

enum { MANY = 1000000 };

static void add_many(struct text *text, const char *piece, int count)
{
	for (int i = 0; i < count; i++)
		text_add(text, piece);
}

/* Refused with a message that contains `words`. */
static void check_refused(struct text *text, const char *words)
{
	struct arena arena = {0};
	struct error error = {0};

	if (parse_bytes(&arena, text->data, text->length, 0, &error) != NULL)
		fail_msg("accepted, but expected \"%s\"", words);
	assert_int_equal(error.code, EXIT_CODE_INPUT);
	if (strstr(error.message, words) == NULL)
		fail_msg("got \"%s\", expected \"%s\"", error.message, words);
	text_finish(text);
	arena_finish(&arena);
}

static void check_accepted(struct text *text, int n_children)
{
	struct arena arena = {0};
	struct error error = {0};
	struct node *root = parse_bytes(&arena, text->data, text->length, 0, &error);

	if (root == NULL)
		fail_msg("%s", error.message);
	assert_int_equal(root->n_children, n_children);
	text_finish(text);
	arena_finish(&arena);
}

static void test_nesting(void **state)
{
	static const char *const json[] = {"[", "{\"a\":", "[{\"a\":"};
	/* Stopped before the parser sees them (hence the column), as it would queue every bracket.
	 */
	static const char *const yaml[] = {"[a, [", "{a: ", "{a: [", "[a: ", "a: ["};

	(void)state;
	for (int i = 0; i < COUNT_OF(json); i++) {
		struct text text = {0};
		add_many(&text, json[i], MANY);
		check_refused(&text, "nested too deeply, expected at most 64 levels");
	}
	for (int i = 0; i < COUNT_OF(yaml); i++) {
		struct text text = {0};
		add_many(&text, yaml[i], MANY);
		check_refused(&text, "t:1:1: nested too deeply, expected at most 64 levels");
	}
	struct text dashes = {0};
	add_many(&dashes, "- ", MANY);
	check_refused(&dashes, "t:1:129: nested too deeply, expected at most 64 levels");
	struct text block = {0};
	for (int i = 0; i < 200; i++) {
		text_repeat(&block, ' ', i);
		text_add(&block, "a:\n");
	}
	check_refused(&block, "t:65:65: nested too deeply, expected at most 64 levels");
}

static void test_depth_bound(void **state)
{
	static const char *const frames[][3] = {
		{"", "[", "]"}, {"a: ", "[", "]"}, {"- ", "{a: ", "}"}};

	(void)state;
	for (int i = 0; i < COUNT_OF(frames); i++) {
		int most = frames[i][0][0] == '\0' ? 64 : 63;
		for (int depth = most; depth <= most + 1; depth++) {
			struct text text = {0};
			text_add(&text, frames[i][0]);
			add_many(&text, frames[i][1], depth);
			add_many(&text, frames[i][2], depth);
			if (depth == most)
				check_accepted(&text, 1);
			else
				check_refused(&text, "nested too deeply");
		}
	}
}

/* A billion laughs: it must fail at the first anchor, before anything is multiplied. */
static void test_aliases(void **state)
{
	struct text text = {0};

	(void)state;
	text_add(&text, "a0: &a0 [lol, lol]\n");
	for (int i = 1; i < 40; i++)
		text_printf(&text, "a%d: &a%d [*a%d, *a%d]\n", i, i, i - 1, i - 1);
	check_refused(&text, "t:1:9: anchors (&) and aliases (*) are not supported");
}

static void test_floods(void **state)
{
	static const struct {
		const char *start, *piece, *words;
	} cases[] = {{"", "]", "YAML syntax"}, {"", "? ", "expected a plain word as a key"},
		{"a: ", "&a ", "anchors"}, {"a: ", "!x ", "tags"}, {"", "!", "tags"},
		{"", "---\n", "expected one document"}, {"a: \"", "x", "without closing quote"},
		{"{\"a\": \"", "x", "string without a closing quote"},
		{"[", "1,1 ", "expected ',' or ']'"}, {"{", "\"a\":1,", "expected a key"}};

	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct text text = {0};
		text_add(&text, cases[i].start);
		add_many(&text, cases[i].piece, MANY);
		check_refused(&text, cases[i].words);
	}
}

/* Large but honest: 200000 keys are looked at for duplicates without comparing all pairs. */
static void test_many_keys(void **state)
{
	struct text yaml = {0}, json = {0};

	(void)state;
	text_add_char(&json, '{');
	for (int i = 0; i < 200000; i++) {
		text_printf(&yaml, "k%d: %d\n", i, i);
		text_printf(&json, "%s\"k%d\": %d", i > 0 ? "," : "", i, i);
	}
	text_add_char(&json, '}');
	check_accepted(&yaml, 200000);
	check_accepted(&json, 200000);
}

static void test_long_words(void **state)
{
	struct text text = {0};

	(void)state;
	text_add_char(&text, '"');
	text_repeat(&text, 'k', 5 * MANY);
	text_add(&text, "\": ");
	text_repeat(&text, '9', 5 * MANY);
	check_accepted(&text, 1);
}

static void test_numbers(void **state)
{
	struct arena arena = {0};
	struct error error = {0};
	struct text text = {0};
	int64_t i = 42;
	double d = 42;

	(void)state;
	text_add_char(&text, '[');
	text_repeat(&text, '9', MANY);
	text_add(&text, ",1e999,-1e999,9223372036854775808]");
	struct node *root = parse_bytes(&arena, text.data, text.length, 0, &error);
	assert_non_null(root);
	for (int k = 0; k < root->n_children; k++) {
		assert_false(node_int(root->children[k], &i, &error));
		assert_int_equal(node_double(root->children[k], &d, &error), k == 3);
	}
	assert_int_equal(i, 42);
	text_finish(&text);
	arena_finish(&arena);
}

static void test_size_bound(void **state)
{
	struct text yaml = {0}, json = {0};

	(void)state;
	text_add(&yaml, "a: 1\n#");
	text_repeat(&yaml, ' ', (16 << 20) + 1 - (int)yaml.length);
	check_refused(&yaml,
		"t: too large, expected at most 16 MiB of YAML (or 64 MiB of JSON), got "
		"16777217 bytes");
	text_add(&json, "[1]");
	text_repeat(&json, ' ', (64 << 20) - (int)json.length);
	struct text larger = {0};
	text_add_bytes(&larger, json.data, json.length);
	text_add_char(&larger, ' ');
	check_accepted(&json, 1);
	check_refused(&larger, "t: too large, expected at most 64 MiB, got 67108865 bytes");
}

/* Good documents with bytes overwritten, cut and repeated at random: any verdict, no crash, and a
 * message with a code whenever it is refused. */
static void test_damaged(void **state)
{
	static const char *const sources[] = {"name: a\nlist:\n  - x: 1\n    y: [1, 'b', "
					      "\"c\\n\"]\n  - |\n    text\nmap: {k: ~}\n",
		"{\"name\": \"a\\u00e9\", \"list\": [1, -2.5e3, true, {\"x\": null}], \"m\": {}}"};
	static const char bytes[] = "{}[]:,\"'\\&*!|>%#-?@ \n\t\xc3\xa9\xff\0ue0";
	uint64_t seed = 5;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		char text[128];
		const char *source = sources[round % 2];
		int length = (int)strlen(source);
		memcpy(text, source, (size_t)length);
		for (int edits = 1 + random_below(&seed, 4); edits > 0; edits--)
			text[random_below(&seed, length)] =
				bytes[random_below(&seed, (int)sizeof(bytes) - 1)];
		if (round % 5 == 0)
			length = random_below(&seed, length);
		struct arena arena = {0};
		struct error error = {0};
		struct node *root =
			parse_bytes(&arena, text, (size_t)length, (unsigned)round & 1, &error);
		assert_int_equal(error.code, root != NULL ? EXIT_CODE_OK : EXIT_CODE_INPUT);
		assert_int_equal(error.message[0] == '\0', root != NULL);
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nesting),
		cmocka_unit_test(test_depth_bound),
		cmocka_unit_test(test_aliases),
		cmocka_unit_test(test_floods),
		cmocka_unit_test(test_many_keys),
		cmocka_unit_test(test_long_words),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_size_bound),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
